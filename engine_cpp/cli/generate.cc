#include "cli/generate.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>

#include "cli/interrupt.h"
#include "cli/json_lines.h"

namespace pinfer::cli {

std::string stream_to_stdout(Request request, bool as_ids, Stats* stats) {
  std::string text;
  bool first_id = true;
  bool aborted = false;
  for (;;) {
    if (interrupted() && !aborted) {
      request.abort();
      aborted = true;
    }
    const std::optional<Output> piece = request.next(kPollMilliseconds);
    if (!piece.has_value()) continue;
    stats->received(*piece);
    text += piece->text;
    if (as_ids) {
      for (const int32_t id : piece->token_ids) {
        std::printf("%s%d", first_id ? "" : " ", id);
        first_id = false;
      }
    } else {
      std::fwrite(piece->text.data(), 1, piece->text.size(), stdout);
    }
    flush_output();
    if (piece->finish_reason == "error") throw Error(PINFER_INTERNAL, piece->error_message);
    if (piece->finished()) break;
  }
  std::printf("\n");
  flush_output();
  return text;
}

std::string read_all(const std::string& path) {
  if (path.empty() || path == "-") {
    return std::string(std::istreambuf_iterator<char>(std::cin), {});
  }
  std::ifstream file(path, std::ios::binary);
  if (!file || std::filesystem::is_directory(path))
    throw Error(PINFER_NOT_FOUND, path + ": cannot read");
  return std::string(std::istreambuf_iterator<char>(file), {});
}

}  // namespace pinfer::cli
