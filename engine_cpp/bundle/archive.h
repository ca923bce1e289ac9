// The files in an archive at the end of another file: how a bundle travels in one file.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>

#include "core/status.h"

namespace pinfer {

struct ArchiveEntry {
  size_t offset = 0;  // in the whole file; a multiple of 64
  size_t size = 0;
};

// The archive is a ZIP file without compression, as pinfer-export writes it: no comment, offsets
// counted from the start of the whole file, names unique and relative. `what` names the file in
// messages. NOT_FOUND if no archive ends there; DATA_LOSS naming the entry if it is damaged.
Result<std::map<std::string, ArchiveEntry>> read_archive(std::span<const std::byte> file,
                                                         const std::string& what);

}  // namespace pinfer
