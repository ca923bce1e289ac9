// Messages of a chat request become the text of a prompt.
#pragma once

#include <string>

#include "pinfer/pinfer.hpp"
#include "server/openai/json_body.h"

namespace pinfer::server {

// Renders `messages`, `tools`, `documents` and the settings of the template that `body` holds.
// Throws ApiError naming the field, or pinfer::Error with what the template raised.
std::string render_chat_prompt(const Engine& engine, const Fields& body);

}  // namespace pinfer::server
