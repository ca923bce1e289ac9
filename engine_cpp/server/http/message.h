// Requests and answers as the endpoints see them.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pinfer::server {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;
  std::string path;  // without the query
  Headers headers;   // names in lower case, in the order they came
  std::string body;
  std::string id;  // X-Request-Id of the client, or a new one
  bool is_http_1_0 = false;

  // The first header of this (lower-case) name; nullptr if there is none.
  const std::string* header(std::string_view name) const {
    for (const auto& [key, value] : headers) {
      if (key == name) return &value;
    }
    return nullptr;
  }
};

struct HttpResponse {
  int status = 200;
  std::string body = {};
  std::string content_type = "application/json";
  Headers headers = {};
};

}  // namespace pinfer::server
