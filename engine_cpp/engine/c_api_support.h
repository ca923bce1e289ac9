// What the files of the C interface share: handles, errors, memory for the caller.
#pragma once

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "engine/engine.h"
#include "pinfer/pinfer.h"

struct pinfer_error {
  pinfer_status status;
  std::string message;
};

struct pinfer_engine {
  std::shared_ptr<pinfer::Engine> engine;
  std::string info_json;
};

namespace pinfer {

// A piece of output with the arrays that the C struct points to.
struct OutputForC {
  StreamOutput piece;
  std::vector<pinfer_token_logprobs> logprobs, prompt_logprobs;
  std::vector<int32_t> top_token_ids;
  std::vector<double> top_logprobs;
};

}  // namespace pinfer

struct pinfer_request {
  std::weak_ptr<pinfer::Engine> engine;  // may be closed before the request is freed
  pinfer::RequestHandle handle;
  pinfer::OutputForC output;  // what the last pinfer_request_next() handed out
};

namespace pinfer {

// The C status of a Status; fills *error if there is one to fill.
pinfer_status to_c(const Status& status, pinfer_error** error);

// Runs `body`, which returns a Status; turns exceptions (memory) into errors.
template <typename Body>
pinfer_status guarded(pinfer_error** error, Body&& body) {
  try {
    return to_c(body(), error);
  } catch (const std::bad_alloc&) {
    return to_c(Status::resource_exhausted("out of memory"), error);
  } catch (const std::exception& exception) {
    return to_c(Status::internal(exception.what()), error);
  }
}

// Zero-terminated copy that pinfer_free() frees.
inline Status copy_text(std::string_view text, char** out, size_t* size) {
  char* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy == nullptr) return Status::resource_exhausted("out of memory");
  if (!text.empty()) std::memcpy(copy, text.data(), text.size());
  copy[text.size()] = '\0';
  *out = copy;
  if (size != nullptr) *size = text.size();
  return Status();
}

// A copy of the ids that pinfer_free() frees.
inline Status copy_ids(const std::vector<int32_t>& ids, int32_t** out, size_t* count) {
  const size_t bytes = ids.size() * sizeof(int32_t);
  auto* copy = static_cast<int32_t*>(std::malloc(bytes + 1));
  if (copy == nullptr) return Status::resource_exhausted("out of memory");
  if (bytes > 0) std::memcpy(copy, ids.data(), bytes);
  *out = copy;
  *count = ids.size();
  return Status();
}

// Pieces of output to a C function; empty if there is none.
RequestStream::Callback make_callback(pinfer_output_callback callback, void* user_data);

// The caller's struct, cut or filled up to what this library knows: fields that an older caller
// does not have keep their defaults.
template <typename Options>
Options read_options(const Options* given, Options defaults) {
  if (given == nullptr) return defaults;
  const size_t known = given->struct_size < sizeof(Options) ? given->struct_size : sizeof(Options);
  std::memcpy(&defaults, given, known);
  defaults.struct_size = sizeof(Options);
  return defaults;
}

}  // namespace pinfer
