// What a compiled kernel says of itself: parameters and threads of a block.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace fake_cuda {

struct KernelInfo {
  std::vector<uint32_t> parameter_bytes;  // by ordinal
  uint32_t threads = 0;                   // of a block, if it must be just these; 0: any
};

// By name. Empty if the image is no compiled kernel for the architecture.
std::map<std::string, KernelInfo> read_cubin(const void* image, int32_t arch);

}  // namespace fake_cuda
