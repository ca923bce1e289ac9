// Runs a libFuzzer target without libFuzzer (gcc has none): seeds changed at random, no coverage.
// `fuzz_x [-max_total_time=SECONDS] [-seed=N] FILE...`
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

class Mutator {
 public:
  explicit Mutator(uint32_t seed) : random_(seed) {}

  size_t below(size_t limit) { return limit == 0 ? 0 : random_() % limit; }

  // A few changes: bytes set, bits turned, parts cut out, doubled or taken from another seed.
  std::string change(std::string data, const std::vector<std::string>& seeds) {
    for (size_t changes = 1 + below(8); changes > 0; --changes) {
      const size_t at = below(data.size() + 1);
      const size_t size = below(1 + below(64));
      switch (below(6)) {
        case 0:
          data.insert(at, 1, static_cast<char>(random_()));
          break;
        case 1:
          if (at < data.size()) data[at] = static_cast<char>(random_());
          break;
        case 2:
          if (at < data.size()) data[at] = static_cast<char>(data[at] ^ (1 << below(8)));
          break;
        case 3:
          data.erase(at, size);
          break;
        case 4:
          data.insert(at, data.substr(below(data.size() + 1), size));
          break;
        default: {
          const std::string& other = seeds[below(seeds.size())];
          data.insert(at, other.substr(below(other.size() + 1), size));
          break;
        }
      }
    }
    return data;
  }

 private:
  std::mt19937 random_;
};

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> seeds{""};
  double max_seconds = 10;
  uint32_t seed = 1;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument.starts_with("-max_total_time=")) {
      max_seconds = std::atof(argv[i] + std::string_view("-max_total_time=").size());
    } else if (argument.starts_with("-seed=")) {
      seed = static_cast<uint32_t>(std::atoi(argv[i] + std::string_view("-seed=").size()));
    } else {
      std::ifstream file(argv[i], std::ios::binary);
      seeds.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    }
  }
  Mutator mutator(seed);
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&start] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  uint64_t runs = 0;
  for (; seconds() < max_seconds; ++runs) {
    const std::string input = mutator.change(seeds[mutator.below(seeds.size())], seeds);
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
  }
  std::printf("%llu runs in %.1f s\n", static_cast<unsigned long long>(runs), seconds());
  return 0;
}
