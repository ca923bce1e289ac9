// The codes of a kernel in an artifact, one for each architecture that it was compiled for. The
// exporter writes the list (export/cuda_artifact.py).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace pinfer {

// "80": for compute capability 8.0 and later ones of 8.x; "90a": for 9.0 alone.
struct CudaArch {
  int32_t number = 0;
  bool is_exact = false;

  bool runs_on(int32_t device) const {
    return is_exact ? number == device : number / 10 == device / 10 && number <= device;
  }
  std::string name() const { return std::to_string(number) + (is_exact ? "a" : ""); }
};

// {80, false} of "80"; a number of 0 if the text is none.
CudaArch parse_cuda_arch(const std::string& text);

// Of several that run on the device the one nearest to it; nullptr if none does.
const CudaArch* choose_cuda_arch(const std::vector<CudaArch>& archs, int32_t device);

// The code for the device, a compute capability * 10, out of the list at `image`; `image` itself if
// it is no such list. nullptr, and why, if there is none.
const void* choose_cuda_image(const void* image, int32_t device, std::string* error);

}  // namespace pinfer
