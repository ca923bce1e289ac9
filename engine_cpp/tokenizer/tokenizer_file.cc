#include "tokenizer/tokenizer_file.h"

#include <cstring>

namespace pinfer {

namespace {

constexpr char kMagic[] = "PINFTOK1";
constexpr uint32_t kFormatVersion = 1;
constexpr size_t kAlignment = 64;

struct FileHeader {
  char magic[8];
  uint32_t version;
  uint32_t num_sections;
  uint64_t file_size;
};

struct SectionEntry {
  uint32_t id;
  uint32_t zero;
  uint64_t offset;
  uint64_t size;
};

}  // namespace

Result<std::unique_ptr<TokenizerFile>> TokenizerFile::of(std::unique_ptr<MappedFile> mapped) {
  std::unique_ptr<TokenizerFile> file(new TokenizerFile());
  file->name_ = mapped->path();
  file->mapped_ = std::move(mapped);
  file->file_ = file->mapped_->bytes();
  PINFER_RETURN_IF_ERROR(file->read_section_table());
  return file;
}

Result<std::unique_ptr<TokenizerFile>> TokenizerFile::copy(std::span<const std::byte> bytes,
                                                           const std::string& name) {
  std::unique_ptr<TokenizerFile> file(new TokenizerFile());
  file->name_ = name;
  file->copy_ = std::make_unique<Chunk[]>((bytes.size() + kAlignment - 1) / kAlignment);
  if (!bytes.empty()) std::memcpy(file->copy_.get(), bytes.data(), bytes.size());
  file->file_ = {reinterpret_cast<const std::byte*>(file->copy_.get()), bytes.size()};
  PINFER_RETURN_IF_ERROR(file->read_section_table());
  return file;
}

Status TokenizerFile::damaged(const std::string& what) const {
  return Status::data_loss(name_ + ": damaged tokenizer file: " + what);
}

Status TokenizerFile::bad_section(TokenizerSection section, const std::string& what) const {
  return damaged("section " + std::to_string(static_cast<uint32_t>(section)) + ": " + what);
}

Status TokenizerFile::read_section_table() {
  FileHeader header;
  if (file_.size() < sizeof(header)) {
    return damaged("expected a header of 24 bytes, found " + std::to_string(file_.size()) +
                   " bytes in all");
  }
  std::memcpy(&header, file_.data(), sizeof(header));
  if (std::memcmp(header.magic, kMagic, sizeof(header.magic)) != 0) {
    return Status::data_loss(name_ + ": not a tokenizer file (expected it to begin with " +
                             std::string(kMagic) + ")");
  }
  if (header.version != kFormatVersion) {
    return Status::failed_precondition(name_ + ": format version " +
                                       std::to_string(header.version) + ", expected " +
                                       std::to_string(kFormatVersion) + "; export again");
  }
  if (header.file_size != file_.size()) {
    return damaged("expected " + std::to_string(header.file_size) + " bytes, found " +
                   std::to_string(file_.size()));
  }
  if (header.num_sections >= kNumTokenizerSections ||
      sizeof(FileHeader) + header.num_sections * sizeof(SectionEntry) > file_.size()) {
    return damaged("section table of " + std::to_string(header.num_sections) + " entries");
  }
  for (uint32_t i = 0; i < header.num_sections; ++i) {
    SectionEntry entry;
    std::memcpy(&entry, file_.data() + sizeof(FileHeader) + i * sizeof(SectionEntry),
                sizeof(entry));
    if (entry.id == 0 || entry.id >= kNumTokenizerSections) {
      return damaged("unknown section " + std::to_string(entry.id));
    }
    if (entry.offset % kAlignment != 0 || entry.offset > file_.size() ||
        entry.size > file_.size() - entry.offset) {
      return damaged("section " + std::to_string(entry.id) + " at " + std::to_string(entry.offset) +
                     " with " + std::to_string(entry.size) + " bytes lies outside the file's " +
                     std::to_string(file_.size()));
    }
    sections_[entry.id] = file_.subspan(entry.offset, entry.size);
  }
  return Status::ok_status();
}

}  // namespace pinfer
