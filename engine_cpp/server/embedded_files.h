// Files that the server serves from its own binary.
#pragma once

#include <string_view>

namespace pinfer::server {

extern const std::string_view kChatPage;  // embedded/chat.html
extern const std::string_view kOpenApi;   // embedded/openapi.json

}  // namespace pinfer::server
