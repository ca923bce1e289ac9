// A bundle that holds a small byte-level tokenizer and nothing else, made on the fly.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <string>

#include "core/sha256.h"

namespace pinfer {

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

inline std::string hash_of(const std::string& text) {
  return to_hex(sha256({reinterpret_cast<const uint8_t*>(text.data()), text.size()}));
}

inline std::string file_entry(const std::string& name, const std::string& content) {
  return "\"" + name + "\":{\"size\":" + std::to_string(content.size()) + ",\"sha256\":\"" +
         hash_of(content) + "\"}";
}

// Writes the bundle to `path`. chat_template: the content of chat_template.json, "" for none.
inline void write_text_bundle(const std::string& path, const std::string& chat_template = "") {
  ::mkdir(path.c_str(), 0755);
  const std::string tables = read_file(PINFER_TEST_DIR "/data/tokenizer/byte_level.bin");
  std::ofstream(path + "/tokenizer.bin", std::ios::binary) << tables;
  std::string files = file_entry("tokenizer.bin", tables);
  if (!chat_template.empty()) {
    std::ofstream(path + "/chat_template.json", std::ios::binary) << chat_template;
    files += "," + file_entry("chat_template.json", chat_template);
  }
  const std::string manifest =
      R"({"format_version":1,"exporter_version":"0","parts":["text"],"text":{"eos_token_ids":[]},)"
      R"("generation_defaults":{},"files":{)" +
      files + "}}";
  std::ofstream(path + "/manifest.json", std::ios::binary) << manifest;
  std::ofstream(path + "/manifest.sha256", std::ios::binary) << hash_of(manifest);
}

}  // namespace pinfer
