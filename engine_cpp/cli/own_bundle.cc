#include "cli/own_bundle.h"

#include <CLI/CLI.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "cli/flags.h"

namespace pinfer::cli {
namespace {

constexpr const char* kOwnFile = "/proc/self/exe";

// Whether the program's file ends as an archive does. What is in it is looked at when it is opened.
bool carries_archive() {
  constexpr char kEndSignature[] = {'P', 'K', 5, 6};
  constexpr int kEndSize = 22;
  char end[kEndSize] = {};
  std::ifstream file(kOwnFile, std::ios::binary);
  file.seekg(-kEndSize, std::ios::end);
  file.read(end, kEndSize);
  return file && std::memcmp(end, kEndSignature, sizeof(kEndSignature)) == 0;
}

std::optional<std::string> find_own_bundle() {
  if (!carries_archive()) return std::nullopt;
  std::error_code error;
  const std::filesystem::path path = std::filesystem::canonical(kOwnFile, error);
  return error ? kOwnFile : path.string();  // the file may have been removed since
}

}  // namespace

const std::optional<std::string>& own_bundle() {
  static const std::optional<std::string> path = find_own_bundle();
  return path;
}

void add_default_command(const CLI::App& app, std::vector<std::string>* arguments) {
  if (!own_bundle()) return;
  if (arguments->empty()) {
    arguments->emplace_back("chat");
    return;
  }
  const std::string& first = arguments->front();
  if (app.get_option_no_throw(first) != nullptr) return;  // --help, --version
  if (has_command(app, first)) return;
  arguments->insert(arguments->begin(), "run");
}

}  // namespace pinfer::cli
