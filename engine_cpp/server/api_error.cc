#include "server/api_error.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "pinfer/pinfer.hpp"

namespace pinfer::server {
namespace {

constexpr size_t kMaxMessageBytes = 600;
constexpr const char* kRetryAfterSeconds = "1";

std::string shortened(std::string message) {
  if (message.size() <= kMaxMessageBytes) return message;
  size_t size = kMaxMessageBytes;
  while (size > 0 && (static_cast<unsigned char>(message[size]) & 0xC0) == 0x80) --size;
  return message.substr(0, size) + "...";
}

const char* type_name(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 404:
      return "not_found_error";
    case 503:
      return "service_unavailable_error";
    default:
      return status < 500 ? "invalid_request_error" : "server_error";
  }
}

// "messages[0].content[1].type: expected ..." and "top_p must be ..." begin with a path; "" if the
// message does not.
std::string leading_path(const std::string& message) {
  const size_t colon = std::min(message.find(": "), message.find(" must be "));
  if (colon == std::string::npos || colon > 100) return "";
  for (size_t i = 0; i < colon; ++i) {
    const auto c = static_cast<unsigned char>(message[i]);
    if (std::isalnum(c) == 0 && c != '_' && c != '.' && c != '[' && c != ']') return "";
  }
  return message.substr(0, colon);
}

}  // namespace

ApiError::ApiError(int status, std::string message, std::string param, std::string code)
    : std::runtime_error(shortened(std::move(message))),
      status_(status),
      param_(shortened(std::move(param))),
      code_(std::move(code)) {}

std::string ApiError::body() const {
  using Json = nlohmann::ordered_json;
  const auto text_or_null = [](const std::string& text) {
    return text.empty() ? Json(nullptr) : Json(text);
  };
  const Json json = {{"error",
                      {{"message", what()},
                       {"type", type_name(status_)},
                       {"param", text_or_null(param_)},
                       {"code", text_or_null(code_)}}}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

HttpResponse ApiError::response() const {
  HttpResponse response{.status = status_, .body = body()};
  if (status_ == 503) response.headers.emplace_back("Retry-After", kRetryAfterSeconds);
  if (status_ == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

ApiError from_engine_error(const std::exception& error, const std::string& default_param) {
  if (const auto* api_error = dynamic_cast<const ApiError*>(&error)) return *api_error;
  const auto* engine_error = dynamic_cast<const Error*>(&error);
  if (engine_error == nullptr) return ApiError(500, error.what());
  const std::string message = error.what();
  switch (engine_error->status()) {
    case PINFER_INVALID_ARGUMENT: {
      const std::string code = "context_length_exceeded";
      if (message.starts_with(code + ": ")) {
        return ApiError(400, message.substr(code.size() + 2), default_param, code);
      }
      const std::string path = leading_path(message);
      return ApiError(400, message, path.empty() ? default_param : path);
    }
    case PINFER_RESOURCE_EXHAUSTED:
    case PINFER_FAILED_PRECONDITION:
      return ApiError(503, message);
    default:
      return ApiError(500, message);
  }
}

}  // namespace pinfer::server
