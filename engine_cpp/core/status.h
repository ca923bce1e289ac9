// Errors as values. Loading and the public interface return Status or Result; exceptions do not
// cross a folder's border. Messages name the file or field, what was expected and what was found.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace pinfer {

enum class StatusCode {
  OK = 0,
  INVALID_ARGUMENT,     // the caller's input is wrong
  NOT_FOUND,            // a file or an id is missing
  FAILED_PRECONDITION,  // a bundle does not fit this machine, provider or engine
  DATA_LOSS,            // a file is damaged or of another bundle
  RESOURCE_EXHAUSTED,   // memory, blocks or queue places
  TIMED_OUT,            // the time that a call was given has passed
  INTERNAL,             // our own bug
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  static Status ok_status() { return Status(); }
  static Status invalid_argument(std::string message) {
    return Status(StatusCode::INVALID_ARGUMENT, std::move(message));
  }
  static Status not_found(std::string message) {
    return Status(StatusCode::NOT_FOUND, std::move(message));
  }
  static Status failed_precondition(std::string message) {
    return Status(StatusCode::FAILED_PRECONDITION, std::move(message));
  }
  static Status data_loss(std::string message) {
    return Status(StatusCode::DATA_LOSS, std::move(message));
  }
  static Status resource_exhausted(std::string message) {
    return Status(StatusCode::RESOURCE_EXHAUSTED, std::move(message));
  }
  static Status internal(std::string message) {
    return Status(StatusCode::INTERNAL, std::move(message));
  }

  bool ok() const { return code_ == StatusCode::OK; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  StatusCode code_ = StatusCode::OK;
  std::string message_;
};

// A value or the Status that says why there is none. REQUIRES ok() before value().
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT: implicit on purpose
  Result(Status status) : status_(std::move(status)) {}  // NOLINT: implicit on purpose

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() { return *value_; }
  const T& value() const { return *value_; }
  T take() { return std::move(*value_); }

 private:
  Status status_;
  std::optional<T> value_;
};

// Returns the Status from the enclosing function if it is an error.
#define PINFER_RETURN_IF_ERROR(expression)           \
  do {                                               \
    ::pinfer::Status pinfer_status_ = (expression);  \
    if (!pinfer_status_.ok()) return pinfer_status_; \
  } while (false)

// Declares `target` from a Result, or returns its Status.
#define PINFER_ASSIGN_OR_RETURN(target, expression) \
  PINFER_ASSIGN_OR_RETURN_IMPL_(PINFER_CONCAT_(pinfer_result_, __LINE__), target, expression)
#define PINFER_ASSIGN_OR_RETURN_IMPL_(result, target, expression) \
  auto result = (expression);                                     \
  if (!result.ok()) return result.status();                       \
  target = result.take()
#define PINFER_CONCAT_(a, b) PINFER_CONCAT_INNER_(a, b)
#define PINFER_CONCAT_INNER_(a, b) a##b

}  // namespace pinfer
