// What the files of the C interface share: handles, errors, structs that grow, memory for the
// caller.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

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
  bool has_callback = false;
  pinfer::OutputForC output;  // what the last pinfer_request_next() handed out
};

namespace pinfer {

// The C status of a Status; fills *error if there is one to fill. Never throws.
pinfer_status to_c(const Status& status, pinfer_error** error) noexcept;
// The same when there is no memory left for a message.
pinfer_status out_of_memory(pinfer_error** error) noexcept;

// Runs `body`, which returns a Status; turns exceptions (memory) into errors.
template <typename Body>
pinfer_status guarded(pinfer_error** error, Body&& body) noexcept {
  if (error != nullptr) *error = nullptr;
  try {
    return to_c(body(), error);
  } catch (const std::bad_alloc&) {
    return out_of_memory(error);
  } catch (const std::exception& exception) {
    return to_c(Status::internal(exception.what()), error);
  } catch (...) {
    return to_c(Status::internal("unknown exception"), error);
  }
}

// INVALID_ARGUMENT, by name, if one of these is NULL.
inline Status check_given(std::initializer_list<std::pair<const char*, const void*>> arguments) {
  for (const auto& [name, argument] : arguments) {
    if (argument == nullptr) return Status::invalid_argument(std::string(name) + ": found NULL");
  }
  return Status();
}

// The same for an array that may be NULL when it is empty.
inline Status check_array(const char* name, const void* array, size_t count) {
  if (array != nullptr || count == 0) return Status();
  return Status::invalid_argument(std::string(name) + ": found NULL with a count of " +
                                  std::to_string(count));
}

// The size that a struct had in version 1: callers have no smaller one. A struct that grows gets a
// specialisation with the size it had before.
template <typename Struct>
inline constexpr size_t kFirstSize = sizeof(Struct);

template <typename Struct>
Status check_struct(const Struct* given, size_t struct_size) {
  if (given == nullptr) return Status::invalid_argument("the struct is NULL");
  if (struct_size >= kFirstSize<Struct>) return Status();
  return Status::invalid_argument("struct_size: expected " + std::to_string(sizeof(Struct)) +
                                  " or more, found " + std::to_string(struct_size));
}

// Copies as much of `filled` as the caller's struct has room for; what this library does not know
// becomes 0. REQUIRES: check_struct() is OK.
template <typename Struct>
void write_struct(const Struct& filled, Struct* out, size_t struct_size) {
  std::memset(static_cast<void*>(out), 0, struct_size);
  std::memcpy(static_cast<void*>(out), &filled, std::min(struct_size, sizeof(Struct)));
}

// Options for the caller to change: they keep the caller's size.
template <typename Options>
Status write_options(const Options& defaults, Options* out, size_t struct_size) {
  PINFER_RETURN_IF_ERROR(check_struct(out, struct_size));
  write_struct(defaults, out, struct_size);
  out->struct_size = struct_size;
  return Status();
}

// The caller's options over the defaults: fields that an older caller does not have keep them, and
// what a newer caller has set that this library does not know is refused.
template <typename Options>
Status read_options(const char* name, const Options* given, Options* options) {
  if (given == nullptr) return Status();
  const size_t size = given->struct_size;
  if (size < kFirstSize<Options>) {
    return Status::invalid_argument(std::string(name) + ": struct_size: expected " +
                                    std::to_string(sizeof(Options)) + " or more, found " +
                                    std::to_string(size) + "; ..._init() sets it");
  }
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  if (size > sizeof(Options) &&
      std::any_of(bytes + sizeof(Options), bytes + size, [](unsigned char b) { return b != 0; })) {
    return Status::failed_precondition(std::string(name) + ": has fields that this libpinfer, " +
                                       pinfer_version() + ", is too old for");
  }
  std::memcpy(static_cast<void*>(options), given, std::min(size, sizeof(Options)));
  options->struct_size = sizeof(Options);
  return Status();
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

// A wait that clocks can count with: longer ones are no different.
inline std::chrono::milliseconds milliseconds(int64_t count) {
  constexpr int64_t kYear = int64_t{365} * 24 * 3600 * 1000;
  return std::chrono::milliseconds(std::min(count, kYear));
}

// What a failed call leaves in its results.
template <typename Result>
void clear(Result** out, size_t* size = nullptr) {
  if (out != nullptr) *out = nullptr;
  if (size != nullptr) *size = 0;
}

// Pieces of output to a C function; empty if there is none.
RequestStream::Callback make_callback(pinfer_output_callback callback, void* user_data);

// Hands a request to the engine with `submit`, which returns its RequestHandle, and makes the
// caller's handle of it. Nothing can fail once the engine has the request.
template <typename Submit>
Status make_request(const pinfer_engine& engine, bool has_callback, pinfer_request** request,
                    Submit&& submit) {
  auto handle = std::make_unique<pinfer_request>();
  handle->engine = engine.engine;
  handle->has_callback = has_callback;
  PINFER_ASSIGN_OR_RETURN(handle->handle, submit());
  *request = handle.release();
  return Status();
}

}  // namespace pinfer
