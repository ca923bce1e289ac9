// Names of requests and of answers.
#pragma once

#include <string>

namespace pinfer::server {

// 32 hex digits; ids need to be different, not secret. Any thread may call it.
std::string random_id();

}  // namespace pinfer::server
