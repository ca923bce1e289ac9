// soak BUNDLE ROUNDS: opens an engine, generates, aborts and closes it, again and again, over the C
// interface. Fails, and says what, if a round leaves a thread, a file descriptor, a mapping or
// memory.
#include <malloc.h>
#include <pinfer/pinfer.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

// Sanitizers have a heap of their own, which they map as they like; AddressSanitizer tells of leaks
// itself.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kOwnHeap = true;
#else
constexpr bool kOwnHeap = false;
#endif

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "soak: %s\n", what.c_str());
  std::exit(1);
}

void check(pinfer_status status, pinfer_error* error = nullptr) {
  if (status == PINFER_OK) return;
  fail(std::string(pinfer_status_name(status)) + ": " + pinfer_error_message(error));
}

// What a process must not gain by a round.
struct Holdings {
  int64_t num_threads, num_files, num_mappings, heap_bytes;

  static Holdings now() {
    const struct mallinfo2 heap = ::mallinfo2();
    return {count("/proc/self/task"), count("/proc/self/fd"), num_lines("/proc/self/maps"),
            static_cast<int64_t>(heap.uordblks + heap.hblkhd)};
  }

  // "" if no more is held now than before.
  std::string growth(const Holdings& before) const {
    if (num_threads != before.num_threads) return "threads";
    if (num_files != before.num_files) return "file descriptors";
    if (kOwnHeap) return "";
    // Containers of the C library grow for a while: not with every round.
    if (num_mappings > before.num_mappings + 16) return "mappings";
    if (heap_bytes > before.heap_bytes + (64 << 10)) return "memory";
    return "";
  }

  std::string text() const {
    return std::to_string(num_threads) + " threads, " + std::to_string(num_files) + " files, " +
           std::to_string(num_mappings) + " mappings, " + std::to_string(heap_bytes) +
           " bytes of heap";
  }

 private:
  static int64_t count(const char* folder) {
    return std::distance(fs::directory_iterator(folder), fs::directory_iterator());
  }
  static int64_t num_lines(const char* file) {
    std::ifstream stream(file);
    return std::count(std::istreambuf_iterator<char>(stream), {}, '\n');
  }
};

void count_output(void* calls, const pinfer_output* output) {
  if (output->finish_reason != nullptr) ++*static_cast<std::atomic<int>*>(calls);
}

class Round {
 public:
  Round(const char* bundle, std::minstd_rand& random) : random_(random) {
    pinfer_engine_options options;
    check(pinfer_engine_options_init(&options, sizeof(options)));
    options.threads = 2;
    options.num_blocks = 40;  // few: requests wait, and are preempted
    pinfer_error* error = nullptr;
    check(pinfer_engine_open(bundle, &options, &engine_, &error), error);
  }

  // Requests that are read, half read, aborted, called back and left alone, freed before and after
  // the engine.
  void run() {
    std::atomic<int> num_ended = 0;
    for (int i = 0; i < 8; ++i) requests_.push_back(submit(i % 4 == 3 ? &num_ended : nullptr));
    read_to_the_end(requests_[0]);
    pinfer_output output;
    pinfer_request_next(requests_[1], /*timeout_ms=*/0, &output, sizeof(output));
    pinfer_request_abort(requests_[2]);
    read_to_the_end(requests_[2]);
    if (coin()) check_refusal();
    if (coin()) free_one(4);
    if (coin()) free_one(3);  // with a callback
    if (coin()) check(pinfer_engine_drain(engine_, /*timeout_ms=*/-1, nullptr));
    const bool free_first = coin();
    if (free_first) free_all();
    pinfer_engine_close(engine_);
    if (!free_first && num_ended == 0) fail("no callback heard of an end");
    free_all();
  }

 private:
  bool coin() { return random_() % 2 == 0; }

  pinfer_request* submit(std::atomic<int>* ended) {
    std::vector<int32_t> prompt(1 + random_() % 40);
    for (int32_t& id : prompt) id = 3 + static_cast<int32_t>(random_() % 250);
    pinfer_sampling_params params;
    check(pinfer_sampling_params_default(engine_, &params, sizeof(params)));
    params.max_tokens = 1 + static_cast<int32_t>(random_() % 8);
    const char* stop[] = {"\x01stop"};
    params.stop = stop;
    params.num_stop = 1;
    params.logprobs = 2;
    pinfer_request_options options;
    check(pinfer_request_options_init(&options, sizeof(options)));
    options.prompt_token_ids = prompt.data();
    options.num_prompt_token_ids = prompt.size();
    options.sampling_params = &params;
    if (ended != nullptr) {
      options.output_callback = count_output;
      options.output_user_data = ended;
    }
    pinfer_request* request = nullptr;
    pinfer_error* error = nullptr;
    check(pinfer_submit(engine_, &options, &request, &error), error);
    return request;
  }

  static void read_to_the_end(pinfer_request* request) {
    pinfer_output output;
    pinfer_status status;
    while ((status = pinfer_request_next(request, -1, &output, sizeof(output))) == PINFER_OK) {
    }
    if (status != PINFER_ENDED) check(status);
  }

  void check_refusal() {
    pinfer_request_options options;
    check(pinfer_request_options_init(&options, sizeof(options)));
    pinfer_request* request = nullptr;
    pinfer_error* error = nullptr;
    const pinfer_status status = pinfer_submit(engine_, &options, &request, &error);
    if (status != PINFER_INVALID_ARGUMENT) fail("a prompt without tokens was not refused");
    pinfer_error_free(error);
  }

  void free_one(size_t index) {
    pinfer_request_free(requests_[index]);
    requests_[index] = nullptr;
  }

  void free_all() {
    for (pinfer_request*& request : requests_) {
      pinfer_request_free(request);
      request = nullptr;
    }
  }

  std::minstd_rand& random_;
  pinfer_engine* engine_ = nullptr;
  std::vector<pinfer_request*> requests_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) fail("usage: soak BUNDLE ROUNDS");
  // What a thread keeps for its next allocations would look lost, too: up to 200 KB, by and by.
  if (std::getenv("GLIBC_TUNABLES") == nullptr) {
    ::setenv("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0", 1);
    ::execv("/proc/self/exe", argv);
    fail("cannot start itself again");
  }
  const int rounds = std::atoi(argv[2]);
  // One arena: what is free in another thread's would look lost.
  ::mallopt(M_ARENA_MAX, 1);
  std::minstd_rand random(1);
  // What is set up once for the process, and how large its heap gets.
  for (int i = 0; i < 10; ++i) Round(argv[1], random).run();
  const Holdings before = Holdings::now();
  for (int i = 0; i < rounds; ++i) Round(argv[1], random).run();
  const Holdings after = Holdings::now();
  const std::string gained = after.growth(before);
  std::printf("before: %s\nafter:  %s\n", before.text().c_str(), after.text().c_str());
  if (!gained.empty()) fail(gained + " are left behind");
  return 0;
}
