#include "cuda_emulation.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "fiber.h"

namespace pinfer::cuda::emulation {

namespace {

constexpr size_t kSharedAlignment = 128;
constexpr unsigned char kPoison = 0xff;  // NaN in every float format
#if defined(__SANITIZE_ADDRESS__)
constexpr size_t kCanaryBytes = 0;  // the sanitizer sees every access beyond the end
#else
constexpr size_t kCanaryBytes = 1024;
#endif
constexpr unsigned char kCanary = 0xa5;

struct Copy {
  void* to;
  const void* from;
  size_t bytes, zero_bytes;
};

struct Thread {
  enum class State { READY, AT_BARRIER, AT_WARP_OPERATION, RETURNED };

  Fiber fiber;
  State state;
  uint3 index;
  unsigned mask;  // of the warp operation it waits at
  WarpRun run;
  void* argument;
  std::vector<std::vector<Copy>> copies;  // groups, oldest first; the last one is open
  int num_barriers, num_copy_waits;       // that it has come to
};

struct SharedBytes {
  unsigned char* begin = nullptr;
  explicit SharedBytes(size_t size)
      : begin(static_cast<unsigned char*>(
            ::operator new(size + kCanaryBytes, std::align_val_t{kSharedAlignment}))) {
    std::memset(begin, kPoison, size);
    std::memset(begin + size, kCanary, kCanaryBytes);
  }
  ~SharedBytes() { ::operator delete(begin, std::align_val_t{kSharedAlignment}); }
  SharedBytes(const SharedBytes&) = delete;
  SharedBytes& operator=(const SharedBytes&) = delete;
};

unsigned current_seed = 0;
Counts current_counts;
PlantedFault planted;

class Block {
 public:
  Block(unsigned threads, const std::function<void()>& body, unsigned seed)
      : body_(body), policy_(seed % 3), random_(seed), threads_(threads) {}

  void run(size_t shared_size) {
    SharedBytes shared(shared_size);
    shared_ = shared.begin;
    ready_.clear();
    num_at_barrier_ = num_returned_ = 0;
    for (size_t i = 0; i < threads_.size(); ++i) {
      Thread& thread = threads_[i];
      thread.index = {static_cast<unsigned>(i), 0, 0};
      thread.copies.assign(1, {});
      thread.num_barriers = thread.num_copy_waits = 0;
      thread.fiber.start(&Block::entry);
      make_ready(i);
    }
    while (num_returned_ < threads_.size()) {
      if (ready_.empty()) throw_stuck();
      resume(next());
    }
    const unsigned char* canary = shared_ + shared_size;
    if (std::any_of(canary, canary + kCanaryBytes, [](unsigned char c) { return c != kCanary; })) {
      throw_fault("a write beyond the " + std::to_string(shared_size) + " bytes of shared memory");
    }
    ++current_counts.blocks;
  }

  Thread& current() { return threads_[current_]; }
  bool toss_coin() { return random_() % 2 == 0; }
  unsigned char* shared() const { return shared_; }

  // A kernel's thread waits; whoever completes the set lets all go on.
  void wait_at_barrier() {
    current().state = Thread::State::AT_BARRIER;
    if (++num_at_barrier_ == threads_.size()) {
      ++current_counts.barriers;
      num_at_barrier_ = 0;
      for (size_t i = 0; i < threads_.size(); ++i) make_ready(i);
    }
    current().fiber.suspend();
  }

  void wait_at_warp_operation(unsigned mask, WarpRun run, void* argument) {
    Thread& me = current();
    me.state = Thread::State::AT_WARP_OPERATION;
    me.mask = mask;
    me.run = run;
    me.argument = argument;
    try {
      complete_warp_operation(me);
    } catch (...) {
      failure_ = std::current_exception();
    }
    current().fiber.suspend();
  }

  static thread_local Block* active;

 private:
  static void entry() {
    Block& block = *active;
    block.current().fiber.enter();
    try {
      block.body_();
    } catch (...) {
      block.failure_ = std::current_exception();
    }
    block.current().state = Thread::State::RETURNED;
    ++block.num_returned_;
    block.current().fiber.finish();
  }

  void make_ready(size_t i) {
    threads_[i].state = Thread::State::READY;
    ready_.push_back(i);
  }

  size_t next() {
    size_t at = ready_.size() - 1;
    if (policy_ == 0) at = random_() % ready_.size();
    // Some disorder in the other policies, too.
    if (policy_ == 1) at -= random_() % std::min<size_t>(ready_.size(), 32);
    if (policy_ == 2) at = random_() % std::min<size_t>(ready_.size(), 32);
    const size_t i = ready_[at];
    ready_.erase(ready_.begin() + static_cast<std::ptrdiff_t>(at));
    return i;
  }

  void resume(size_t i) {
    current_ = i;
    threadIdx = threads_[i].index;
    threads_[i].fiber.resume();
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  }

  void complete_warp_operation(const Thread& me) {
    const size_t first = current_ / 32 * 32;
    if ((me.mask >> (current_ - first) & 1) == 0) throw_fault("a lane outside of its own mask");
    void* lanes[32] = {};
    for (size_t i = 0; i < 32; ++i) {
      if ((me.mask >> i & 1) == 0) continue;
      if (first + i >= threads_.size()) throw_fault("a mask names lanes beyond the block");
      const Thread& other = threads_[first + i];
      if (!are_together(other, me)) return;  // not all are here yet
      lanes[i] = other.argument;
    }
    me.run(lanes, me.mask);
    ++current_counts.warp_operations;
    const unsigned mask = me.mask;
    for (size_t i = 0; i < 32; ++i) {
      if (mask >> i & 1) make_ready(first + i);
    }
  }

  static bool are_together(const Thread& a, const Thread& b) {
    constexpr auto kState = Thread::State::AT_WARP_OPERATION;
    return a.state == kState && b.state == kState && a.run == b.run && a.mask == b.mask;
  }

  [[noreturn]] void throw_stuck() const {
    for (size_t i = 1; i < threads_.size(); ++i) {
      const Thread &a = threads_[i - 1], &b = threads_[i];
      if (i % 32 != 0 && a.state == b.state && a.state == Thread::State::AT_WARP_OPERATION &&
          !are_together(a, b)) {
        throw_fault("lanes of a warp at different operations, or with different masks");
      }
    }
    const std::string where = std::to_string(num_at_barrier_) + " of " +
                              std::to_string(threads_.size()) + " threads at __syncthreads(), " +
                              std::to_string(num_returned_) + " returned";
    if (num_at_barrier_ > 0 && num_at_barrier_ + num_returned_ == threads_.size()) {
      throw_fault("threads returned before a barrier: " + where);
    }
    throw_fault("deadlock: " + where + ", the others wait for lanes that do not come");
  }

  [[noreturn]] static void throw_fault(const std::string& what) {
    throw Fault(what + " (block " + std::to_string(blockIdx.x) + ", " + std::to_string(blockIdx.y) +
                ", " + std::to_string(blockIdx.z) + ")");
  }

  const std::function<void()>& body_;
  unsigned policy_;
  std::minstd_rand random_;
  std::vector<Thread> threads_;
  std::vector<size_t> ready_;
  size_t current_ = 0, num_at_barrier_ = 0, num_returned_ = 0;
  unsigned char* shared_ = nullptr;
  std::exception_ptr failure_;
};

thread_local Block* Block::active = nullptr;

void finish_copy(const Copy& copy) {
  std::memcpy(copy.to, copy.from, copy.bytes);
  std::memset(static_cast<unsigned char*>(copy.to) + copy.bytes, 0, copy.zero_bytes);
}

}  // namespace

void set_seed(unsigned seed) { current_seed = seed; }

void plant(const PlantedFault& fault) { planted = fault; }

const Counts& counts() { return current_counts; }

void run_grid(dim3 grid, unsigned threads, size_t shared_size, const std::function<void()>& body) {
  Block block(threads, body, current_seed);
  Block::active = &block;
  shared_size -= std::min(shared_size, planted.missing_bytes);
  gridDim = grid;
  blockDim = dim3(threads);
  ++current_counts.launches;
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) {
        blockIdx = {x, y, z};
        block.run(shared_size);
      }
    }
  }
}

unsigned char* shared_bytes() { return Block::active->shared(); }

void sync_block() {
  if (Block::active->current().num_barriers++ == planted.barrier) return;
  Block::active->wait_at_barrier();
}

void sync_warp(unsigned mask, WarpRun run, void* argument) {
  Block::active->wait_at_warp_operation(mask, run, argument);
}

// Some copies are done at once: they may be, and what is still read there must not notice.
void copy_later(void* to, const void* from, size_t bytes, size_t zero_bytes) {
  const Copy copy = {to, from, bytes, zero_bytes};
  if (Block::active->toss_coin()) {
    finish_copy(copy);
  } else {
    Block::active->current().copies.back().push_back(copy);
  }
}

void commit_copies() { Block::active->current().copies.emplace_back(); }

void wait_copies(int pending_groups) {
  if (Block::active->current().num_copy_waits++ == planted.copy_wait) return;
  std::vector<std::vector<Copy>>& groups = Block::active->current().copies;
  while (groups.size() > static_cast<size_t>(pending_groups) + 1) {
    for (const Copy& copy : groups.front()) finish_copy(copy);
    groups.erase(groups.begin());
  }
}

}  // namespace pinfer::cuda::emulation
