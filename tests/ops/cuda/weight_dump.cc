// Writes a random weight in the layouts of csrc/kernels/kernels_cuda.h for the tests of the
// exporter's packing: numbers, scales and minima as they lie, then what they stand for in double.
//
// Usage: weight_dump bfloat16|float16|float8|int4 OUT_FEATURES IN_FEATURES GROUP_SIZE SEED
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include "device_weight.h"

namespace {

void write(const void* data, size_t bytes) {
  if (bytes > 0 && std::fwrite(data, 1, bytes, stdout) != bytes) std::exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  const std::map<std::string, int32_t> dtypes = {{"bfloat16", PINFER_BFLOAT16},
                                                 {"float16", PINFER_FLOAT16},
                                                 {"float8", PINFER_FLOAT8_E4M3},
                                                 {"int4", PINFER_INT4}};
  if (argc != 6 || dtypes.count(argv[1]) == 0) return 2;
  const auto weight =
      pinfer::cuda::make_weight(dtypes.at(argv[1]), std::atoll(argv[2]), std::atoll(argv[3]),
                                std::atoll(argv[4]), static_cast<unsigned>(std::atoi(argv[5])));
  write(weight.numbers.data(), weight.numbers.bytes());
  write(weight.scales.data(), weight.scales.bytes());
  write(weight.minima.data(), weight.minima.bytes());
  write(weight.values.data(), weight.values.size() * sizeof(double));
  return 0;
}
