#include "bundle/archive.h"

#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

namespace pinfer {
namespace {

// Of PKWARE's APPNOTE, 4.3: sizes without names and extra fields.
constexpr uint32_t kEndSignature = 0x06054b50, kEnd64Signature = 0x06064b50,
                   kLocatorSignature = 0x07064b50, kEntrySignature = 0x02014b50,
                   kLocalSignature = 0x04034b50;
constexpr size_t kEndSize = 22, kEnd64Size = 56, kLocatorSize = 20, kEntrySize = 46,
                 kLocalSize = 30;
constexpr uint16_t kZip64Field = 1;
constexpr uint32_t kIn64 = 0xffffffff;  // the number stands in the 64-bit part
constexpr size_t kAlignment = 64;
constexpr uint64_t kMaxEntries = 100'000;

// Little-endian numbers, each read only where it lies in the file.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> file) : file_(file) {}

  bool holds(uint64_t offset, uint64_t size) const {
    return offset <= file_.size() && size <= file_.size() - offset;
  }

  template <typename T>
  T number(uint64_t offset) const {
    T value{};
    if (holds(offset, sizeof(T))) std::memcpy(&value, file_.data() + offset, sizeof(T));
    return value;
  }

  std::string_view text(uint64_t offset, uint64_t size) const {
    return {reinterpret_cast<const char*>(file_.data()) + offset, size};
  }

 private:
  std::span<const std::byte> file_;
};

struct Directory {
  uint64_t num_entries = 0, offset = 0, size = 0;
};

std::optional<Directory> find_directory(const Reader& reader, uint64_t file_size) {
  if (file_size < kEndSize) return std::nullopt;
  const uint64_t end = file_size - kEndSize;
  if (reader.number<uint32_t>(end) != kEndSignature) return std::nullopt;
  Directory directory{reader.number<uint16_t>(end + 10), reader.number<uint32_t>(end + 16),
                      reader.number<uint32_t>(end + 12)};
  if (end < kLocatorSize || reader.number<uint32_t>(end - kLocatorSize) != kLocatorSignature) {
    return directory;
  }
  const auto end64 = reader.number<uint64_t>(end - kLocatorSize + 8);
  if (!reader.holds(end64, kEnd64Size) || reader.number<uint32_t>(end64) != kEnd64Signature) {
    return std::nullopt;
  }
  return Directory{reader.number<uint64_t>(end64 + 32), reader.number<uint64_t>(end64 + 48),
                   reader.number<uint64_t>(end64 + 40)};
}

// Numbers of the 64-bit field take the places of those that are kIn64, in this order.
bool read_wide(const Reader& reader, uint64_t begin, uint64_t end, uint64_t* size, uint64_t* stored,
               uint64_t* local) {
  while (begin + 4 <= end) {
    const auto kind = reader.number<uint16_t>(begin);
    uint64_t at = begin + 4;
    begin = at + reader.number<uint16_t>(begin + 2);
    if (kind != kZip64Field) continue;
    for (uint64_t* value : {size, stored, local}) {
      if (*value != kIn64) continue;
      if (at + 8 > begin || begin > end) return false;
      *value = reader.number<uint64_t>(at);
      at += 8;
    }
  }
  return true;
}

bool is_plain_name(std::string_view name) {
  if (name.empty() || name.front() == '/' || name.find('\0') != std::string_view::npos) {
    return false;
  }
  return ("/" + std::string(name) + "/").find("/../") == std::string::npos;
}

}  // namespace

Result<std::map<std::string, ArchiveEntry>> read_archive(std::span<const std::byte> file,
                                                         const std::string& what) {
  const Reader reader(file);
  const std::optional<Directory> directory = find_directory(reader, file.size());
  if (!directory) return Status::not_found(what + ": no archive ends there");
  const auto damaged = [&](const std::string& where) {
    return Status::data_loss(what + ": damaged archive: " + where);
  };
  if (!reader.holds(directory->offset, directory->size) || directory->num_entries > kMaxEntries) {
    return damaged("its directory lies outside of the file");
  }
  std::map<std::string, ArchiveEntry> entries;
  uint64_t at = directory->offset;
  const uint64_t end = directory->offset + directory->size;
  for (uint64_t i = 0; i < directory->num_entries; ++i) {
    const std::string which = "entry " + std::to_string(i);
    const uint64_t name_size = reader.number<uint16_t>(at + 28);
    const uint64_t extra_size = reader.number<uint16_t>(at + 30);
    const uint64_t next =
        at + kEntrySize + name_size + extra_size + reader.number<uint16_t>(at + 32);
    if (next > end || reader.number<uint32_t>(at) != kEntrySignature) return damaged(which);
    const std::string name(reader.text(at + kEntrySize, name_size));
    uint64_t stored = reader.number<uint32_t>(at + 20), size = reader.number<uint32_t>(at + 24),
             local = reader.number<uint32_t>(at + 42);
    const uint64_t extra = at + kEntrySize + name_size;
    const bool is_stored =
        reader.number<uint16_t>(at + 10) == 0 && (reader.number<uint16_t>(at + 8) & 1) == 0;
    if (!is_plain_name(name) || !is_stored ||
        !read_wide(reader, extra, extra + extra_size, &size, &stored, &local) || size != stored) {
      return damaged(which + ": expected an uncompressed file with a relative name");
    }
    if (!reader.holds(local, kLocalSize) || reader.number<uint32_t>(local) != kLocalSignature) {
      return damaged(name);
    }
    const uint64_t offset = local + kLocalSize + reader.number<uint16_t>(local + 26) +
                            reader.number<uint16_t>(local + 28);
    if (!reader.holds(offset, size)) return damaged(name + ": it lies outside of the file");
    if (offset % kAlignment != 0) return damaged(name + ": expected at a multiple of 64 bytes");
    if (!entries.emplace(name, ArchiveEntry{offset, size}).second) {
      return damaged(name + " stands there twice");
    }
    at = next;
  }
  return entries;
}

}  // namespace pinfer
