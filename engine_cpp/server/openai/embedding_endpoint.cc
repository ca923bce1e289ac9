// /v1/embeddings
#include <algorithm>
#include <bit>
#include <boost/asio/post.hpp>
#include <boost/asio/strand.hpp>

#include "json/float_list.h"
#include "server/api_error.h"
#include "server/openai/embedding_json.h"
#include "server/openai/endpoint.h"

namespace pinfer::server {
namespace {

constexpr size_t kMaxInputs = 2048;  // of one request

struct EmbeddingPlan {
  std::string model;
  std::vector<std::vector<int32_t>> inputs;
  EmbedOptions options;
  bool as_base64 = false;
};

// A request while it runs: every input through the engine, one answer at the end.
class EmbeddingRun : public std::enable_shared_from_this<EmbeddingRun> {
 public:
  EmbeddingRun(const EndpointContext& context, std::shared_ptr<Exchange> exchange,
               EmbeddingPlan plan)
      : engine_(context.engine),
        exchange_(std::move(exchange)),
        metrics_(context.metrics),
        plan_(std::move(plan)),
        strand_(boost::asio::make_strand(context.executor)) {}

  // Returns at once.
  void start() {
    boost::asio::post(strand_, [self = shared_from_this()] {
      try {
        self->submit();
      } catch (const std::exception& error) {
        self->fail(from_engine_error(error, "input"), "error");
        self->requests_.clear();
      }
    });
  }

 private:
  // The requests' callbacks keep this alive, which owns the requests: finish_all() unties them.
  void submit() {
    const auto self = shared_from_this();
    outputs_.resize(plan_.inputs.size());
    requests_.reserve(plan_.inputs.size());
    for (size_t i = 0; i < plan_.inputs.size(); ++i) {
      EmbedOptions options = plan_.options;
      options.callback = [self, i](Output output) {
        boost::asio::post(self->strand_, [self, i, output = std::move(output)]() mutable {
          self->receive(i, std::move(output));
        });
      };
      requests_.push_back(engine_->embed(plan_.inputs[i], std::move(options)));
    }
    exchange_->on_cancel([self] { boost::asio::post(self->strand_, [self] { self->abort(); }); });
  }

  void receive(size_t i, Output output) {
    if (!output.finished()) return;
    metrics_->add({.finish_reason = output.finish_reason,
                   .num_prompt_tokens = output.num_prompt_tokens,
                   .is_embedding = true,
                   .queue_ms = output.queue_ms,
                   .prefill_ms = output.prefill_ms,
                   .decode_ms = 0});
    if (output.finish_reason == "error") {
      fail(ApiError(500, output.error_message), "error");
    } else if (output.finish_reason == "abort") {
      fail(ApiError(503, "the request was aborted: the server is shutting down"), "abort");
    }
    outputs_[i] = std::move(output);
    if (++num_finished_ == outputs_.size()) finish_all();
  }

  void finish_all() {
    if (!ended_) {
      ended_ = true;
      try {
        exchange_->set_notes({.num_prompt_tokens = static_cast<int>(num_prompt_tokens()),
                              .queue_ms = outputs_[0].queue_ms,
                              .prefill_ms = outputs_[0].prefill_ms,
                              .finish_reason = "stop"});
        exchange_->respond({.body = to_json_text(answer())});
      } catch (const std::exception& error) {  // out of memory
        exchange_->respond(ApiError(500, error.what()).response());
      }
    }
    exchange_->forget_cancel();
    requests_.clear();
  }

  Json answer() const {
    Json list = Json::array();
    for (size_t i = 0; i < outputs_.size(); ++i) {
      const std::vector<float>& values = outputs_[i].embedding;
      Json vector = plan_.as_base64 ? Json(base64_floats(values)) : float_list(values);
      list.push_back({{"object", "embedding"}, {"index", i}, {"embedding", std::move(vector)}});
    }
    const int64_t num_tokens = num_prompt_tokens();
    return {{"object", "list"},
            {"data", std::move(list)},
            {"model", plan_.model},
            {"usage", {{"prompt_tokens", num_tokens}, {"total_tokens", num_tokens}}}};
  }

  int64_t num_prompt_tokens() const {
    int64_t sum = 0;
    for (const Output& output : outputs_) sum += output.num_prompt_tokens;
    return sum;
  }

  void fail(const ApiError& error, const std::string& finish_reason) {
    if (std::exchange(ended_, true)) return;
    exchange_->set_notes({.num_prompt_tokens = static_cast<int>(num_prompt_tokens()),
                          .finish_reason = finish_reason});
    exchange_->respond(error.response());
    abort();
  }

  void abort() {
    for (Request& request : requests_) request.abort();
  }

  const std::shared_ptr<Engine> engine_;
  const std::shared_ptr<Exchange> exchange_;
  const std::shared_ptr<ServerMetrics> metrics_;
  const EmbeddingPlan plan_;
  const boost::asio::any_io_executor strand_;

  // Touched in the strand only.
  std::vector<Output> outputs_;
  std::vector<Request> requests_;
  size_t num_finished_ = 0;
  bool ended_ = false;
};

void check_num_inputs(size_t count, const EndpointContext& context) {
  size_t most = kMaxInputs;
  std::string flag;
  if (context.max_queue > 0 && static_cast<size_t>(context.max_queue) < most) {
    most = static_cast<size_t>(context.max_queue);
    flag = " (--max-queue)";
  }
  if (count <= most) return;
  throw ApiError(400,
                 "input: expected at most " + std::to_string(most) + " inputs" + flag + ", found " +
                     std::to_string(count),
                 "input");
}

// A string, a list of strings, a list of ids, or a list of lists of ids.
std::vector<std::vector<int32_t>> read_inputs(const EndpointContext& context, const Fields& body) {
  const std::optional<std::string> prompt_name = body.text("prompt_name");
  const auto tokenized = [&](const Json& json) {
    const std::string text = json.get<std::string>();
    context.prompt_limit->check(text, "input");
    return context.engine->tokenize_to_embed(text, prompt_name);
  };
  const Json* input = body.find("input");
  const std::string expected = "a string, a list of strings, token ids or lists of token ids";
  if (input == nullptr) {
    throw ApiError(400, "input: expected " + expected + ", found none", "input");
  }
  if (input->is_string()) return {tokenized(*input)};
  if (!input->is_array()) refuse_value("input", expected, *input);
  if (input->empty()) throw ApiError(400, "input: the list is empty", "input");
  if (input->front().is_number()) return {read_token_ids(*input, "input")};
  check_num_inputs(input->size(), context);
  std::vector<std::vector<int32_t>> inputs;
  for (size_t i = 0; i < input->size(); ++i) {
    const Json& entry = (*input)[i];
    const std::string path = "input[" + std::to_string(i) + "]";
    if (entry.is_string() && input->front().is_string()) {
      inputs.push_back(tokenized(entry));
    } else if (entry.is_array() && input->front().is_array()) {
      inputs.push_back(read_token_ids(entry, path));
    } else {
      refuse_value(path, input->front().is_array() ? "a list of token ids" : "a string", entry);
    }
  }
  return inputs;
}

bool wants_base64(const Fields& body) {
  const std::string format = body.text("encoding_format").value_or("float");
  if (format == "float" || format == "base64") return format == "base64";
  throw ApiError(400, "encoding_format: expected \"float\" or \"base64\"", "encoding_format");
}

}  // namespace

std::string base64_floats(std::span<const float> values) {
  static_assert(std::endian::native == std::endian::little);  // as clients read it
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const auto* bytes = reinterpret_cast<const unsigned char*>(values.data());
  const size_t size = values.size_bytes();
  std::string text;
  text.reserve((size + 2) / 3 * 4);
  for (size_t i = 0; i < size; i += 3) {
    const size_t left = std::min<size_t>(size - i, 3);
    uint32_t group = 0;
    for (size_t j = 0; j < 3; ++j) group = group << 8 | (j < left ? bytes[i + j] : 0U);
    for (size_t j = 0; j < 4; ++j) {
      text += j <= left ? kDigits[group >> (18 - 6 * j) & 63] : '=';
    }
  }
  return text;
}

void handle_embeddings(const EndpointContext& context, const std::shared_ptr<Exchange>& exchange) {
  const Json json = read_body(context, *exchange);
  const Fields body(json);
  EmbeddingPlan plan;
  plan.model = check_model(body, context);
  check_embeds(context, true);
  plan.as_base64 = wants_base64(body);
  plan.options.dimensions =
      static_cast<int32_t>(body.integer("dimensions", 1, context.hidden_size).value_or(0));
  plan.options.priority =
      static_cast<int32_t>(body.integer("priority", INT32_MIN, INT32_MAX).value_or(0));
  plan.options.cache_salt = body.text("cache_salt").value_or("");
  try {
    plan.inputs = read_inputs(context, body);
  } catch (const Error& error) {
    throw from_engine_error(error, "input");
  }
  std::make_shared<EmbeddingRun>(context, exchange, std::move(plan))->start();
}

}  // namespace pinfer::server
