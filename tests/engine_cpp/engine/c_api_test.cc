// The C interface where callers are wrong, old or new, and what callbacks may do. Generation itself
// is tested end to end (tests/e2e).
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <future>
#include <string>
#include <vector>

#include "../text_bundle.h"
#include "engine/c_api_support.h"
#include "fake_executor.h"

namespace pinfer {
namespace {

namespace fs = std::filesystem;

constexpr int32_t kPrompt[] = {65, 66, 67};

class CApiTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    bundle_ = new std::string(testing::TempDir() + "/c_api_test_" + std::to_string(::getpid()));
    write_text_bundle(*bundle_);
  }
  static void TearDownTestSuite() {
    fs::remove_all(*bundle_);
    delete bundle_;
  }

  // An engine as pinfer_engine_open() makes it, over a model whose next token is the last one + 1.
  void SetUp() override {
    EngineOptions options;
    options.config.max_model_len = 128;
    options.config.num_blocks = 40;
    options.config.threads = 1;
    options.executor = std::make_unique<FakeExecutor>(200);
    auto opened = Engine::open(*bundle_, std::move(options));
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    engine_ = new pinfer_engine{opened.take(), "{}"};
    pinfer_sampling_params_default(engine_, &params_, sizeof(params_));
    params_.temperature = 0;
    params_.max_tokens = 4;
    params_.ignore_eos = true;
    pinfer_request_options_init(&options_, sizeof(options_));
    options_.prompt_token_ids = kPrompt;
    options_.num_prompt_token_ids = std::size(kPrompt);
    options_.sampling_params = &params_;
  }
  void TearDown() override { pinfer_engine_close(engine_); }

  // Expects INVALID_ARGUMENT with a message that holds `part`.
  void expect_refused(pinfer_status status, const std::string& part) {
    EXPECT_EQ(status, PINFER_INVALID_ARGUMENT) << part;
    ASSERT_NE(error_, nullptr) << part;
    EXPECT_NE(std::string(pinfer_error_message(error_)).find(part), std::string::npos)
        << pinfer_error_message(error_);
    EXPECT_EQ(pinfer_error_status(error_), PINFER_INVALID_ARGUMENT);
    pinfer_error_free(error_);
  }

  void expect_submit_refused(const std::string& part) {
    pinfer_request* request = reinterpret_cast<pinfer_request*>(this);
    expect_refused(pinfer_submit(engine_, &options_, &request, &error_), part);
    EXPECT_EQ(request, nullptr);
  }

  static std::string* bundle_;
  pinfer_engine* engine_ = nullptr;
  pinfer_sampling_params params_;
  pinfer_request_options options_;
  pinfer_error* error_ = nullptr;
};

std::string* CApiTest::bundle_ = nullptr;

TEST_F(CApiTest, VersionsAndNames) {
  EXPECT_STREQ(pinfer_version(), PINFER_VERSION);
  EXPECT_EQ(pinfer_abi_version(), PINFER_ABI_VERSION);
  EXPECT_STREQ(pinfer_status_name(PINFER_DATA_LOSS), "data_loss");
  EXPECT_STREQ(pinfer_status_name(static_cast<pinfer_status>(99)), "unknown");
}

TEST_F(CApiTest, NullWhereSomethingIsNeededIsRefusedByName) {
  int32_t* ids;
  char* text;
  size_t size;
  pinfer_engine* opened;
  const char* path = bundle_->c_str();
  expect_refused(pinfer_engine_open(nullptr, nullptr, &opened, &error_), "bundle_path");
  EXPECT_EQ(opened, nullptr);
  expect_refused(pinfer_engine_open(path, nullptr, nullptr, &error_), "engine");
  expect_refused(pinfer_engine_drain(nullptr, 0, &error_), "engine");
  expect_refused(pinfer_tokenize(nullptr, "a", 1, true, &ids, &size, &error_), "engine");
  EXPECT_EQ(ids, nullptr);
  expect_refused(pinfer_tokenize(engine_, nullptr, 1, true, &ids, &size, &error_), "text");
  expect_refused(pinfer_tokenize(engine_, "a", 1, true, nullptr, &size, &error_), "token_ids");
  expect_refused(pinfer_tokenize(engine_, "a", 1, true, &ids, nullptr, &error_), "num_tokens");
  expect_refused(pinfer_detokenize(nullptr, kPrompt, 3, true, &text, &size, &error_), "engine");
  expect_refused(pinfer_detokenize(engine_, nullptr, 3, true, &text, &size, &error_), "token_ids");
  expect_refused(pinfer_detokenize(engine_, kPrompt, 3, true, nullptr, &size, &error_), "text");
  expect_refused(pinfer_token_bytes(nullptr, 3, &text, &size, &error_), "engine");
  expect_refused(pinfer_token_bytes(engine_, 3, nullptr, &size, &error_), "bytes");
  expect_refused(pinfer_token_bytes(engine_, 3, &text, nullptr, &error_), "size");
  expect_refused(pinfer_render(nullptr, "{}", 2, &text, &size, &error_), "engine");
  expect_refused(pinfer_render(engine_, nullptr, 2, &text, &size, &error_), "request_json");
  expect_refused(pinfer_render(engine_, "{}", 2, nullptr, &size, &error_), "text");
  expect_refused(pinfer_verify(nullptr, &error_), "bundle_path");
  expect_refused(pinfer_inspect(nullptr, &text, &size, &error_), "bundle_path");
  expect_refused(pinfer_inspect(path, nullptr, &size, &error_), "manifest_json");
  EXPECT_EQ(size, 0u);
}

TEST_F(CApiTest, NullInRequestsIsRefusedByName) {
  int32_t* ids;
  size_t size;
  pinfer_request* request;
  expect_refused(pinfer_submit(nullptr, &options_, &request, &error_), "engine");
  expect_refused(pinfer_submit(engine_, nullptr, &request, &error_), "options");
  expect_refused(pinfer_submit(engine_, &options_, nullptr, &error_), "request");
  pinfer_embed_options embed;
  pinfer_embed_options_init(&embed, sizeof(embed));
  expect_refused(pinfer_embed(nullptr, &embed, &request, &error_), "engine");
  expect_refused(pinfer_embed(engine_, nullptr, &request, &error_), "options");
  expect_refused(pinfer_embed(engine_, &embed, nullptr, &error_), "request");
  expect_refused(pinfer_embed_tokenize(nullptr, "a", 1, "", &ids, &size, &error_), "engine");
  expect_refused(pinfer_embed_tokenize(engine_, nullptr, 1, "", &ids, &size, &error_), "text");
  expect_refused(pinfer_embed_tokenize(engine_, "a", 1, "", nullptr, &size, &error_), "token_ids");
  expect_refused(pinfer_embed_tokenize(engine_, "a", 1, "", &ids, nullptr, &error_), "num_tokens");

  const char* const strings[] = {"a", nullptr};
  params_.num_stop = 2;
  expect_submit_refused("stop");
  params_.stop = strings;
  expect_submit_refused("stop: one of the strings is NULL");
  params_.num_stop = 0;
  params_.num_bad_words = 2;
  expect_submit_refused("bad_words");
  params_.bad_words = strings;
  expect_submit_refused("bad_words: one of the strings is NULL");
  params_.num_bad_words = 0;
  params_.num_stop_token_ids = 1;
  expect_submit_refused("stop_token_ids");
  params_.num_stop_token_ids = 0;
  params_.num_allowed_token_ids = 1;
  expect_submit_refused("allowed_token_ids");
  params_.num_allowed_token_ids = 0;
  params_.num_logit_bias = 1;
  expect_submit_refused("logit_bias_token_ids");
  params_.logit_bias_token_ids = kPrompt;
  expect_submit_refused("logit_bias_values");
  params_.num_logit_bias = 0;
  options_.prompt_token_ids = nullptr;
  expect_submit_refused("prompt_token_ids");
}

TEST_F(CApiTest, FunctionsWithoutAnErrorAcceptNull) {
  EXPECT_STREQ(pinfer_error_message(nullptr), "");
  EXPECT_EQ(pinfer_error_status(nullptr), PINFER_OK);
  EXPECT_STREQ(pinfer_engine_info_json(nullptr), "{}");
  pinfer_error_free(nullptr);
  pinfer_free(nullptr);
  pinfer_engine_close(nullptr);
  pinfer_request_abort(nullptr);
  pinfer_request_free(nullptr);
  pinfer_metrics metrics;
  pinfer_output output;
  EXPECT_EQ(pinfer_engine_metrics(nullptr, &metrics, sizeof(metrics)), PINFER_INVALID_ARGUMENT);
  EXPECT_EQ(pinfer_engine_metrics(engine_, nullptr, sizeof(metrics)), PINFER_INVALID_ARGUMENT);
  EXPECT_EQ(pinfer_request_next(nullptr, 0, &output, sizeof(output)), PINFER_INVALID_ARGUMENT);
  EXPECT_EQ(pinfer_engine_options_init(nullptr, 1000), PINFER_INVALID_ARGUMENT);
  EXPECT_EQ(pinfer_sampling_params_init(nullptr, 1000), PINFER_INVALID_ARGUMENT);
  EXPECT_EQ(pinfer_sampling_params_default(nullptr, &params_, sizeof(params_)),
            PINFER_INVALID_ARGUMENT);
  EXPECT_EQ(pinfer_sampling_params_default(engine_, nullptr, 1000), PINFER_INVALID_ARGUMENT);
  EXPECT_EQ(pinfer_request_options_init(nullptr, 1000), PINFER_INVALID_ARGUMENT);
  EXPECT_EQ(pinfer_embed_options_init(nullptr, 1000), PINFER_INVALID_ARGUMENT);
}

TEST_F(CApiTest, TheErrorMayBeNullAndIsClearedOnSuccess) {
  EXPECT_EQ(pinfer_verify(nullptr, nullptr), PINFER_INVALID_ARGUMENT);
  error_ = reinterpret_cast<pinfer_error*>(this);
  EXPECT_EQ(pinfer_verify(bundle_->c_str(), &error_), PINFER_OK);
  EXPECT_EQ(error_, nullptr);
}

TEST_F(CApiTest, OptionsOfNoVersionAreRefused) {
  EXPECT_EQ(pinfer_request_options_init(&options_, sizeof(options_) - 1), PINFER_INVALID_ARGUMENT);
  options_.struct_size = 0;
  expect_submit_refused("struct_size");
  options_.struct_size = sizeof(options_);
  params_.struct_size = 8;
  expect_submit_refused("sampling_params: struct_size");
}

// A program compiled against a header in which the struct has more fields.
TEST_F(CApiTest, NewerOptionsAreRefusedOnlyWhereTheyAreUsed) {
  struct NewerOptions {
    pinfer_request_options known;
    const char* added;
  } newer;
  std::memset(static_cast<void*>(&newer), 0xff, sizeof(newer));
  ASSERT_EQ(pinfer_request_options_init(&newer.known, sizeof(newer)), PINFER_OK);
  EXPECT_EQ(newer.known.struct_size, sizeof(newer));
  EXPECT_EQ(newer.added, nullptr);
  newer.known.prompt_token_ids = kPrompt;
  newer.known.num_prompt_token_ids = std::size(kPrompt);
  newer.known.sampling_params = &params_;
  pinfer_request* request = nullptr;
  ASSERT_EQ(pinfer_submit(engine_, &newer.known, &request, nullptr), PINFER_OK);
  struct {
    pinfer_output known;
    const char* added;
  } output;
  std::memset(static_cast<void*>(&output), 0xff, sizeof(output));
  ASSERT_EQ(pinfer_request_next(request, -1, &output.known, sizeof(output)), PINFER_OK);
  EXPECT_EQ(output.known.struct_size, sizeof(pinfer_output));
  EXPECT_EQ(output.added, nullptr);
  pinfer_request_free(request);
  newer.added = "what this library does not know";
  EXPECT_EQ(pinfer_submit(engine_, &newer.known, &request, &error_), PINFER_FAILED_PRECONDITION);
  EXPECT_NE(std::string(pinfer_error_message(error_)).find("too old"), std::string::npos);
  pinfer_error_free(error_);
}

TEST_F(CApiTest, ARequestIsReadToItsEnd) {
  pinfer_request* request = nullptr;
  ASSERT_EQ(pinfer_submit(engine_, &options_, &request, &error_), PINFER_OK);
  std::vector<int32_t> ids;
  std::string reason;
  pinfer_output output;
  pinfer_status status;
  while ((status = pinfer_request_next(request, -1, &output, sizeof(output))) == PINFER_OK) {
    ids.insert(ids.end(), output.token_ids, output.token_ids + output.num_token_ids);
    if (output.finish_reason != nullptr) reason = output.finish_reason;
  }
  EXPECT_EQ(status, PINFER_ENDED);
  EXPECT_EQ(ids, (std::vector<int32_t>{68, 69, 70, 71}));
  EXPECT_EQ(reason, "length");
  EXPECT_EQ(pinfer_request_next(request, -1, &output, 3), PINFER_INVALID_ARGUMENT);
  pinfer_metrics metrics;
  ASSERT_EQ(pinfer_engine_metrics(engine_, &metrics, sizeof(metrics)), PINFER_OK);
  EXPECT_EQ(metrics.struct_size, sizeof(metrics));
  EXPECT_EQ(metrics.generation_tokens, 4);
  pinfer_request_free(request);
}

TEST_F(CApiTest, OutputsCanBeReadAfterTheEngineIsClosed) {
  params_.max_tokens = 100;
  pinfer_request* request = nullptr;
  ASSERT_EQ(pinfer_submit(engine_, &options_, &request, &error_), PINFER_OK);
  pinfer_engine_close(engine_);
  engine_ = nullptr;
  pinfer_output output;
  ASSERT_EQ(pinfer_request_next(request, -1, &output, sizeof(output)), PINFER_OK);
  EXPECT_NE(output.finish_reason, nullptr);
  EXPECT_EQ(pinfer_request_next(request, -1, &output, sizeof(output)), PINFER_ENDED);
  pinfer_request_abort(request);
  pinfer_request_free(request);
}

TEST_F(CApiTest, DrainingTellsOfItsTimeAndRefusesNewRequests) {
  EXPECT_EQ(pinfer_engine_drain(engine_, INT64_MAX, &error_), PINFER_OK);
  pinfer_request* request;
  EXPECT_EQ(pinfer_submit(engine_, &options_, &request, nullptr), PINFER_FAILED_PRECONDITION);
}

// What a callback is told it may do: submit, abort, use the text.
struct Chain {
  pinfer_engine* engine;
  pinfer_request_options options;
  std::vector<pinfer_request*> requests;  // of the output thread
  std::string text;
  std::promise<void> ended;
  bool signals_blocked = false;

  static void on_output(void* user_data, const pinfer_output* output) {
    auto* chain = static_cast<Chain*>(user_data);
    char* text = nullptr;
    EXPECT_EQ(pinfer_detokenize(chain->engine, output->token_ids, output->num_token_ids, true,
                                &text, nullptr, nullptr),
              PINFER_OK);
    chain->text += text;
    pinfer_free(text);
    sigset_t blocked;
    pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
    chain->signals_blocked = sigismember(&blocked, SIGINT) == 1 &&
                             sigismember(&blocked, SIGTERM) == 1 &&
                             sigismember(&blocked, SIGSEGV) == 0;
    if (output->finish_reason == nullptr) return;
    if (chain->requests.size() == 3) return chain->ended.set_value();
    pinfer_request* next = nullptr;
    EXPECT_EQ(pinfer_submit(chain->engine, &chain->options, &next, nullptr), PINFER_OK);
    chain->requests.push_back(next);
    if (chain->requests.size() == 3) pinfer_request_abort(next);
  }
};

TEST_F(CApiTest, ACallbackMaySubmitAbortAndUseText) {
  Chain chain{engine_, options_, {}, "", {}};
  chain.options.output_callback = &Chain::on_output;
  chain.options.output_user_data = &chain;
  pinfer_request* first = nullptr;
  ASSERT_EQ(pinfer_submit(engine_, &chain.options, &first, &error_), PINFER_OK);
  ASSERT_EQ(chain.ended.get_future().wait_for(std::chrono::seconds(30)), std::future_status::ready);
  pinfer_output output;
  EXPECT_EQ(pinfer_request_next(first, -1, &output, sizeof(output)), PINFER_INVALID_ARGUMENT);
  pinfer_request_free(first);
  for (pinfer_request* request : chain.requests) pinfer_request_free(request);
  EXPECT_TRUE(chain.text.starts_with("DEFGDEFG")) << chain.text;
  EXPECT_TRUE(chain.signals_blocked);
  sigset_t blocked;
  pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  EXPECT_EQ(sigismember(&blocked, SIGINT), 0) << "the caller's own mask";
}

}  // namespace
}  // namespace pinfer
