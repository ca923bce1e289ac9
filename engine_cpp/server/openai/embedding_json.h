// Embeddings as the endpoint writes them.
#pragma once

#include <span>
#include <string>

namespace pinfer::server {

// The floats' bytes, little-endian, in base64 (RFC 4648, with padding).
std::string base64_floats(std::span<const float> values);

}  // namespace pinfer::server
