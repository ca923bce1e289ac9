#include "server/server_log.h"

#include <chrono>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>

namespace pinfer::server {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kLevelNames[] = {"debug", "info", "warning", "error"};

// "2026-01-31T12:00:00.123Z"
std::string time_text() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char date[32], text[48];
  std::strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &utc);
  std::snprintf(text, sizeof(text), "%s.%03dZ", date, static_cast<int>(ms));
  return text;
}

double rounded(double milliseconds) { return std::round(milliseconds * 1000) / 1000; }

// A log line stays one line, whatever a client sent.
std::string one_line(const std::string& text) {
  std::string line;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f) {
      char escaped[5];
      std::snprintf(escaped, sizeof(escaped), "\\x%02x", byte);
      line += escaped;
    } else {
      line += c;
    }
  }
  return line;
}

std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

void ServerLog::write(pinfer_log_level level, const std::string& message) {
  if (!is_on(level)) return;
  if (as_json_) {
    print(dump({{"time", time_text()}, {"level", kLevelNames[level]}, {"message", message}}));
  } else {
    print(time_text() + " " + kLevelNames[level] + ": " + one_line(message));
  }
}

void ServerLog::write_access(const Exchange& exchange, int status, uint64_t bytes,
                             double milliseconds) {
  if (!is_on(PINFER_LOG_INFO)) return;
  const ExchangeNotes notes = exchange.notes();
  const HttpRequest& request = exchange.request();
  Json fields = {{"request_id", request.id},
                 {"status", status},
                 {"bytes", bytes},
                 {"total_ms", rounded(milliseconds)}};
  if (status == 499) fields["cancelled"] = true;
  if (!notes.finish_reason.empty()) {
    fields.update({{"finish_reason", notes.finish_reason},
                   {"prompt_tokens", notes.num_prompt_tokens},
                   {"output_tokens", notes.num_output_tokens},
                   {"queue_ms", rounded(notes.queue_ms)},
                   {"prefill_ms", rounded(notes.prefill_ms)},
                   {"decode_ms", rounded(notes.decode_ms)}});
  }
  const std::string path = one_line(request.path.substr(0, 200));
  if (as_json_) {
    Json line = {{"time", time_text()},
                 {"level", "info"},
                 {"method", one_line(request.method)},
                 {"path", path}};
    line.update(fields);
    print(dump(line));
    return;
  }
  std::string line = time_text() + " info: " + one_line(request.method) + " " + path;
  for (const auto& [name, value] : fields.items()) {
    line += " " + name + "=" + (value.is_string() ? value.get<std::string>() : value.dump());
  }
  print(line);
}

void ServerLog::print(const std::string& line) {
  const std::lock_guard lock(mutex_);
  std::fprintf(stderr, "%s\n", line.c_str());
}

}  // namespace pinfer::server
