// What is wrong with a request, as the OpenAI protocol words it.
#pragma once

#include <stdexcept>
#include <string>

#include "server/http/message.h"

namespace pinfer::server {

class ApiError : public std::runtime_error {
 public:
  // status: of HTTP. param: the field that is wrong, as a path; "" for none. The message is cut
  // after a few hundred characters: it must not echo what a client sent at length.
  explicit ApiError(int status, std::string message, std::string param = "", std::string code = "");

  int status() const { return status_; }
  // {"error": {"message", "type", "param", "code"}}
  std::string body() const;
  // With Retry-After where a client should come back, and WWW-Authenticate where it needs a key.
  HttpResponse response() const;

 private:
  int status_;
  std::string param_, code_;
};

// An error that the engine threw while it served a request. default_param: the field that a bad
// value is in unless the message names it.
ApiError from_engine_error(const std::exception& error, const std::string& default_param);

}  // namespace pinfer::server
