#include "cubin.h"

#include <elf.h>

#include <cstring>

namespace fake_cuda {
namespace {

constexpr uint16_t kCudaMachine = 190;
constexpr uint8_t kSizedValue = 4;
constexpr uint8_t kParameter = 0x17, kRequiredThreads = 0x10;

template <typename T>
T read(const unsigned char* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

// A section of attributes: format and kind, then a value of 16 bits or a size and as many bytes.
KernelInfo read_attributes(const unsigned char* at, const unsigned char* end) {
  KernelInfo info;
  while (at + 4 <= end) {
    const uint8_t format = at[0], kind = at[1];
    const auto size = read<uint16_t>(at + 2);
    const unsigned char* value = at + 4;
    at = format == kSizedValue ? value + size : value;
    if (format != kSizedValue || at > end) continue;
    if (kind == kParameter && size >= 12) {
      const auto ordinal = read<uint16_t>(value + 4);
      if (ordinal >= info.parameter_bytes.size()) info.parameter_bytes.resize(ordinal + 1u);
      info.parameter_bytes[ordinal] = read<uint32_t>(value + 8) >> 18;
    } else if (kind == kRequiredThreads && size >= 12) {
      info.threads = read<uint32_t>(value) * read<uint32_t>(value + 4) * read<uint32_t>(value + 8);
    }
  }
  return info;
}

int32_t arch_of(const Elf64_Ehdr& header) {
  return static_cast<int32_t>(header.e_ident[EI_ABIVERSION] < 8 ? header.e_flags & 255
                                                                : header.e_flags >> 8 & 255);
}

}  // namespace

std::map<std::string, KernelInfo> read_cubin(const void* image, int32_t arch) {
  std::map<std::string, KernelInfo> kernels;
  const auto* bytes = static_cast<const unsigned char*>(image);
  const auto header = read<Elf64_Ehdr>(bytes);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_machine != kCudaMachine) {
    return kernels;
  }
  // Code for 8.0 runs on 8.6; from 9.0 on the exporter's code is for one architecture alone.
  const int32_t compiled = arch_of(header);
  if (compiled / 10 != arch / 10 || compiled > arch || (compiled >= 90 && compiled != arch)) {
    return kernels;
  }
  const auto section = [&](unsigned i) {
    return read<Elf64_Shdr>(bytes + header.e_shoff + i * sizeof(Elf64_Shdr));
  };
  const Elf64_Shdr names = section(header.e_shstrndx);
  for (unsigned i = 0; i < header.e_shnum; ++i) {
    const Elf64_Shdr each = section(i);
    const std::string name(reinterpret_cast<const char*>(bytes + names.sh_offset + each.sh_name));
    const std::string prefix = ".nv.info.";
    if (!name.starts_with(prefix)) continue;
    kernels[name.substr(prefix.size())] =
        read_attributes(bytes + each.sh_offset, bytes + each.sh_offset + each.sh_size);
  }
  return kernels;
}

}  // namespace fake_cuda
