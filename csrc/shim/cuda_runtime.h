// What artifacts call of CUDA's driver and runtime libraries, over CudaDevice::current().
#pragma once

#include <string_view>

namespace pinfer {

// The function behind a name; nullptr if there is none.
void* find_cuda_function(std::string_view symbol);

}  // namespace pinfer
