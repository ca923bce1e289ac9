// What one rendering may use: steps, memory, output, depth. Templates and messages are untrusted; a
// rendering that would use more ends with a RenderError.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>

namespace pinfer::jinja {

// Why a rendering ended early. Private to this folder: ChatTemplate::render catches it.
class RenderError : public std::exception {
 public:
  enum class Origin {
    RUNTIME,   // an operation that Python or Jinja2 refuses too, or a limit
    TEMPLATE,  // the template's own raise_exception
  };
  explicit RenderError(std::string message, Origin origin = Origin::RUNTIME)
      : message_(std::move(message)), origin_(origin) {}

  const char* what() const noexcept override { return message_.c_str(); }
  const std::string& message() const { return message_; }
  Origin origin() const { return origin_; }

 private:
  std::string message_;
  Origin origin_;
};

struct RenderLimits {
  int64_t max_steps = 50'000'000;             // nodes evaluated, elements and 64-byte runs touched
  size_t max_memory_bytes = size_t{1} << 29;  // values alive at one time
  size_t max_output_bytes = size_t{1} << 26;  // of the text, and of any one string
  int max_depth = 1200;                       // nested evaluations
  int max_value_depth = 500;                  // nested lists, dicts and iterators
};

// Counts what one rendering uses. Not thread-safe: one per rendering.
class Heap {
 public:
  explicit Heap(const RenderLimits& limits) : limits_(limits) {}
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  const RenderLimits& limits() const { return limits_; }

  void spend(int64_t steps) {
    steps_ += steps;
    if (steps_ > limits_.max_steps) fail_steps();
  }
  // For work on `bytes` of text.
  void spend_bytes(size_t bytes) { spend(1 + static_cast<int64_t>(bytes / 16)); }

  void reserve(size_t bytes) {
    memory_bytes_ += bytes;
    if (memory_bytes_ > limits_.max_memory_bytes) fail_memory(bytes);
  }
  void release(size_t bytes) noexcept { memory_bytes_ -= bytes; }
  size_t memory_bytes() const { return memory_bytes_; }

  // Before a string of that size is made.
  void check_text_size(size_t bytes) const {
    if (bytes > limits_.max_output_bytes) fail_text(bytes);
  }
  // Before a list of that many elements is made.
  void check_num_items(size_t count) const {
    if (count > (limits_.max_memory_bytes - memory_bytes_) / kItemBytes) fail_items(count);
  }

 private:
  [[noreturn]] void fail_steps() const;
  [[noreturn]] void fail_memory(size_t bytes);
  [[noreturn]] void fail_text(size_t bytes) const;
  [[noreturn]] void fail_items(size_t count) const;

  static constexpr size_t kItemBytes = 32;  // of one element of a list

  RenderLimits limits_;
  int64_t steps_ = 0;
  size_t memory_bytes_ = 0;
};

// Counts one level of recursion while it lives.
class DepthGuard {
 public:
  DepthGuard(int& depth, int limit) : depth_(depth) {
    if (depth_ >= limit) fail(limit);
    ++depth_;
  }
  ~DepthGuard() { --depth_; }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;

 private:
  [[noreturn]] static void fail(int limit);
  int& depth_;
};

}  // namespace pinfer::jinja
