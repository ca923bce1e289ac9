#include "bundle/archive.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace pinfer {
namespace {

template <typename T>
void put(std::string* bytes, T value) {
  bytes->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// What an archive of this test says of one file; the defaults are right.
struct Entry {
  std::string name = "a";
  std::string data = "hello";
  uint16_t method = 0;
  uint16_t flags = 0;
  int64_t size_in_directory = -1;  // -1: the data's
  bool is_wide = false;            // with sizes and offset in the 64-bit field
  size_t alignment = 64;
};

// A file that begins with `before` and ends with an archive, as zipfile writes it.
struct Archive {
  std::string before = std::string(100, 'x');
  std::vector<Entry> entries;
  bool is_wide = false;  // with a 64-bit end

  std::string bytes() const {
    std::string file = before;
    std::string directory;
    for (const Entry& entry : entries) add(entry, &file, &directory);
    const uint64_t offset = file.size();
    file += directory;
    if (is_wide) {
      const uint64_t end64 = file.size();
      put<uint32_t>(&file, 0x06064b50);
      put<uint64_t>(&file, 44);
      put<uint32_t>(&file, 45 | 45 << 16);
      put<uint64_t>(&file, 0);  // disks
      put<uint64_t>(&file, entries.size());
      put<uint64_t>(&file, entries.size());
      put<uint64_t>(&file, directory.size());
      put<uint64_t>(&file, offset);
      put<uint32_t>(&file, 0x07064b50);
      put<uint32_t>(&file, 0);
      put<uint64_t>(&file, end64);
      put<uint32_t>(&file, 1);
    }
    put<uint32_t>(&file, 0x06054b50);
    put<uint32_t>(&file, 0);
    const auto count = static_cast<uint16_t>(is_wide ? 0xffff : entries.size());
    put<uint16_t>(&file, count);
    put<uint16_t>(&file, count);
    put<uint32_t>(&file, is_wide ? 0xffffffff : static_cast<uint32_t>(directory.size()));
    put<uint32_t>(&file, is_wide ? 0xffffffff : static_cast<uint32_t>(offset));
    put<uint16_t>(&file, 0);
    return file;
  }

 private:
  static void add(const Entry& entry, std::string* file, std::string* directory) {
    const uint64_t local = file->size();
    const uint64_t size = entry.size_in_directory < 0
                              ? entry.data.size()
                              : static_cast<uint64_t>(entry.size_in_directory);
    size_t extra = 4;
    while ((local + 30 + entry.name.size() + extra) % entry.alignment != 0) ++extra;
    put<uint32_t>(file, 0x04034b50);
    file->append(22, '\0');
    put<uint16_t>(file, static_cast<uint16_t>(entry.name.size()));
    put<uint16_t>(file, static_cast<uint16_t>(extra));
    *file += entry.name + std::string(extra, '\0') + entry.data;

    put<uint32_t>(directory, 0x02014b50);
    put<uint32_t>(directory, 0);
    put<uint16_t>(directory, entry.flags);
    put<uint16_t>(directory, entry.method);
    put<uint64_t>(directory, 0);  // time and CRC
    const uint32_t shown = entry.is_wide ? 0xffffffff : static_cast<uint32_t>(size);
    put<uint32_t>(directory, shown);
    put<uint32_t>(directory, shown);
    put<uint16_t>(directory, static_cast<uint16_t>(entry.name.size()));
    put<uint16_t>(directory, entry.is_wide ? 34 : 0);
    put<uint16_t>(directory, 0);
    put<uint64_t>(directory, 0);  // disk, attributes
    put<uint32_t>(directory, entry.is_wide ? 0xffffffff : static_cast<uint32_t>(local));
    *directory += entry.name;
    if (entry.is_wide) {
      put<uint32_t>(directory, 0xd935 | 2 << 16);  // a field of another kind before it
      put<uint16_t>(directory, 0);
      put<uint32_t>(directory, 1 | 24 << 16);
      put<uint64_t>(directory, size);
      put<uint64_t>(directory, size);
      put<uint64_t>(directory, local);
    }
  }
};

Result<std::map<std::string, ArchiveEntry>> read(const std::string& bytes) {
  return read_archive(std::as_bytes(std::span(bytes)), "file");
}

std::string refusal(const std::string& bytes) {
  const auto result = read(bytes);
  if (result.ok()) return "";
  EXPECT_EQ(result.status().code(), StatusCode::DATA_LOSS) << result.status().message();
  return result.status().message();
}

TEST(Archive, FilesLieWhereItSays) {
  for (const bool is_wide : {false, true}) {
    Archive archive;
    archive.entries = {{.name = "a", .data = "hello", .is_wide = is_wide},
                       {.name = "b/c", .data = "", .is_wide = is_wide},
                       {.name = "d..e", .data = std::string(1000, 'd')}};
    archive.is_wide = is_wide;
    const std::string bytes = archive.bytes();
    const auto entries = read(bytes);
    ASSERT_TRUE(entries.ok()) << entries.status().message();
    ASSERT_EQ(entries.value().size(), 3u);
    for (const Entry& entry : archive.entries) {
      const ArchiveEntry& found = entries.value().at(entry.name);
      EXPECT_EQ(bytes.substr(found.offset, found.size), entry.data);
    }
  }
}

TEST(Archive, OtherFilesHaveNone) {
  const std::string whole = Archive{.entries = {Entry{}}}.bytes();
  for (const std::string& bytes : {std::string(), std::string("x"), std::string(5000, '\0'),
                                   whole + "x", whole.substr(0, whole.size() - 1)}) {
    EXPECT_EQ(read(bytes).status().code(), StatusCode::NOT_FOUND);
  }
}

TEST(Archive, WhatCannotBeMappedIsRefused) {
  const auto with = [](const Entry& entry) { return Archive{.entries = {Entry{}, entry}}.bytes(); };
  EXPECT_NE(refusal(with({.name = "b", .method = 8})).find("entry 1"), std::string::npos);
  EXPECT_NE(refusal(with({.name = "b", .flags = 1})).find("uncompressed"), std::string::npos);
  for (const char* name : {"", "/b", "../b", "b/../../c", "b/.."}) {
    EXPECT_NE(refusal(with({.name = name})).find("relative name"), std::string::npos) << name;
  }
  EXPECT_NE(refusal(with({.name = std::string("b\0c", 3)})).find("relative"), std::string::npos);
  EXPECT_NE(refusal(with({.name = "a"})).find("a stands there twice"), std::string::npos);
  EXPECT_NE(refusal(with({.name = "b", .size_in_directory = 1 << 20})).find("outside"),
            std::string::npos);
  EXPECT_NE(refusal(with({.name = "bb", .alignment = 63})).find("multiple of 64"),
            std::string::npos);
  EXPECT_NE(
      refusal(with({.name = "b", .size_in_directory = INT64_MAX, .is_wide = true})).find("outside"),
      std::string::npos);
}

TEST(Archive, NoDamageIsRead) {
  // Every byte of directory and end, changed in several ways: refused, or files inside the file.
  for (const bool is_wide : {false, true}) {
    Archive archive{.entries = {Entry{}, Entry{.name = "b", .is_wide = is_wide}},
                    .is_wide = is_wide};
    const std::string whole = archive.bytes();
    for (size_t at = 100; at < whole.size(); ++at) {
      for (const int change : {1, 0x7f, 0x80, 0xff}) {
        std::string bytes = whole;
        bytes[at] = static_cast<char>(bytes[at] ^ change);
        const auto entries = read(bytes);
        if (!entries.ok()) continue;
        for (const auto& [name, entry] : entries.value()) {
          ASSERT_LE(entry.offset, bytes.size());
          ASSERT_LE(entry.size, bytes.size() - entry.offset);
        }
      }
    }
  }
}

}  // namespace
}  // namespace pinfer
