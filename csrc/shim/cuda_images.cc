#include "csrc/shim/cuda_images.h"

#include <cstring>

namespace pinfer {
namespace {

constexpr char kMagic[] = "PFKERNEL";

struct ListHead {
  char magic[8];
  uint32_t count, padding;
};

struct ListEntry {
  uint32_t arch, is_exact;
  uint64_t offset, bytes;
};

}  // namespace

CudaArch parse_cuda_arch(const std::string& text) {
  CudaArch arch;
  size_t used = 0;
  while (used < text.size() && used < 4 && text[used] >= '0' && text[used] <= '9') {
    arch.number = arch.number * 10 + (text[used++] - '0');
  }
  arch.is_exact = text.substr(used) == "a";
  if (used == 0 || (used != text.size() && !arch.is_exact)) return {};
  return arch;
}

const CudaArch* choose_cuda_arch(const std::vector<CudaArch>& archs, int32_t device) {
  const CudaArch* chosen = nullptr;
  for (const CudaArch& arch : archs) {
    if (arch.runs_on(device) && (chosen == nullptr || arch.number > chosen->number)) {
      chosen = &arch;
    }
  }
  return chosen;
}

const void* choose_cuda_image(const void* image, int32_t device, std::string* error) {
  ListHead head;
  std::memcpy(head.magic, image, sizeof(head.magic));
  if (std::memcmp(head.magic, kMagic, sizeof(head.magic)) != 0) return image;
  std::memcpy(&head, image, sizeof(head));
  const auto* bytes = static_cast<const char*>(image);
  std::vector<CudaArch> archs;
  std::vector<ListEntry> entries(head.count);
  std::string names;
  for (uint32_t i = 0; i < head.count; ++i) {
    std::memcpy(&entries[i], bytes + sizeof(head) + i * sizeof(ListEntry), sizeof(ListEntry));
    archs.push_back({static_cast<int32_t>(entries[i].arch), entries[i].is_exact != 0});
    names += (i == 0 ? "sm_" : ", sm_") + archs.back().name();
  }
  const CudaArch* chosen = choose_cuda_arch(archs, device);
  if (chosen == nullptr) {
    *error = "kernels are for " + names + ", the device is sm_" + std::to_string(device);
    return nullptr;
  }
  return bytes + entries[static_cast<size_t>(chosen - archs.data())].offset;
}

}  // namespace pinfer
