// libFuzzer: any bytes as the body of a request; the first byte chooses the endpoint. Every request
// is answered once, with a status and a body that clients can read.
#include <cstdlib>
#include <string>

#include "fake_exchange.h"

namespace {

constexpr const char* kPaths[] = {"/v1/completions", "/v1/chat/completions", "/tokenize",
                                  "/detokenize"};
constexpr size_t kMaxErrorBytes = 4096;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static pinfer::server::TextEndpoints endpoints;
  if (size == 0) return 0;
  const std::string body(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto exchange = endpoints.ask(kPaths[data[0] % std::size(kPaths)], body);
  if (exchange->num_answers != 1 || !exchange->response.has_value()) std::abort();
  const pinfer::server::HttpResponse& response = *exchange->response;
  const auto json = nlohmann::json::parse(response.body);
  switch (response.status) {
    case 200:
      break;
    case 400:
    case 404:
    case 503:
      if (!json.at("error").at("message").is_string()) std::abort();
      if (response.body.size() > kMaxErrorBytes) std::abort();
      break;
    default:
      std::abort();
  }
  return 0;
}
