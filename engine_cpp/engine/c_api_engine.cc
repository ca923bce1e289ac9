// C interface: errors, engine, tools. See include/pinfer/pinfer.h.
#include <nlohmann/json.hpp>

#include "bundle/bundle.h"
#include "bundle/weights_file.h"
#include "core/mapped_file.h"
#include "core/utf8.h"
#include "engine/c_api_support.h"

namespace pinfer {

pinfer_status to_c(const Status& status, pinfer_error** error) {
  const auto code = static_cast<pinfer_status>(status.code());
  if (code != PINFER_OK && error != nullptr) {
    *error = new (std::nothrow) pinfer_error{code, valid_utf8(status.message())};
  }
  return code;
}

namespace {

// The codes of both enumerations are the same numbers.
static_assert(static_cast<int>(StatusCode::INVALID_ARGUMENT) == PINFER_INVALID_ARGUMENT);
static_assert(static_cast<int>(StatusCode::CANCELLED) == PINFER_CANCELLED);
static_assert(static_cast<int>(StatusCode::INTERNAL) == PINFER_INTERNAL);
static_assert(static_cast<int>(LogLevel::ERROR) == PINFER_LOG_ERROR);

template <typename Enum>
Status read_enum(const char* field, const char* text, Enum* out) {
  const std::optional<Enum> value = text == nullptr ? std::nullopt : parse_enum<Enum>(text);
  if (!value.has_value()) {
    std::string names;
    for (const std::string_view name : kEnumNames<Enum>) {
      names += (names.empty() ? "" : ", ") + std::string(name);
    }
    return Status::invalid_argument(std::string(field) + ": expected one of " + names + ", found " +
                                    (text == nullptr ? "nothing" : text));
  }
  *out = *value;
  return Status();
}

Status read_engine_options(const pinfer_engine_options& given, EngineOptions* options) {
  EngineConfig& config = options->config;
  config.max_model_len = given.max_model_len;
  config.max_num_seqs = given.max_num_seqs;
  config.max_num_batched_tokens = given.max_num_batched_tokens;
  config.num_blocks = given.num_blocks;
  config.block_size = given.block_size;
  config.long_prefill_token_threshold = given.long_prefill_token_threshold;
  config.enable_prefix_caching = given.enable_prefix_caching;
  config.threads = given.threads;
  PINFER_RETURN_IF_ERROR(
      read_enum("scheduling_policy", given.scheduling_policy, &config.scheduling_policy));
  PINFER_RETURN_IF_ERROR(read_enum("provider", given.provider, &config.provider));
  options->verify = given.verify;
  options->text_only = given.text_only;
  options->max_queue = given.max_queue;
  options->max_queue_tokens = given.max_queue_tokens;
  if (given.log_callback != nullptr) {
    options->log = [given](LogLevel level, const std::string& message) {
      given.log_callback(given.log_user_data, static_cast<pinfer_log_level>(level),
                         message.c_str());
    };
  }
  if (given.progress_callback != nullptr) {
    options->progress = [given](double fraction, const char* stage) {
      given.progress_callback(given.progress_user_data, fraction, stage);
    };
  }
  return Status();
}

nlohmann::ordered_json describe_pooling(const PoolingEntry& pooling) {
  nlohmann::ordered_json described = {
      {"mode", pooling.mode == PoolingMode::MEAN ? "mean" : "last"},
      {"normalize", pooling.normalize},
      {"prompts", pooling.prompts},
      {"default_prompt_name", nullptr},
  };
  if (pooling.default_prompt_name.has_value()) {
    described["default_prompt_name"] = *pooling.default_prompt_name;
  }
  return described;
}

std::string describe_engine(const Engine& engine) {
  const Manifest& manifest = engine.bundle().manifest();
  const EngineConfig& config = engine.config();
  nlohmann::ordered_json info = {
      {"version", PINFER_VERSION},
      {"has_model", engine.has_model()},
      {"has_chat_template", engine.text().has_chat_template()},
      {"tokenizer_vocab_size", engine.text().tokenizer().vocab_size()},
      {"eos_token_ids", manifest.eos_token_ids},
      {"load_ms", engine.load_ms()},
  };
  if (engine.has_model()) {
    info.update({
        {"task", manifest.task == Task::EMBED ? "embed" : "generate"},
        {"model_name", manifest.model_name},
        {"architecture", manifest.architecture},
        {"dtype", manifest.dtype},
        {"vocab_size", manifest.vocab_size},
        {"num_layers", manifest.num_layers},
        {"hidden_size", manifest.hidden_size},
        {"max_model_len", config.max_model_len},
        {"max_num_seqs", config.max_num_seqs},
        {"max_num_batched_tokens", config.max_num_batched_tokens},
        {"num_blocks", config.num_blocks},
        {"block_size", config.block_size},
        {"threads", engine.num_threads()},
        {"provider", enum_name(config.provider)},
    });
    if (manifest.task == Task::EMBED) info["pooling"] = describe_pooling(manifest.pooling);
  }
  return info.dump();
}

}  // namespace
}  // namespace pinfer

using pinfer::Status;

const char* pinfer_version(void) { return PINFER_VERSION; }

const char* pinfer_error_message(const pinfer_error* error) {
  return error == nullptr ? "" : error->message.c_str();
}

pinfer_status pinfer_error_status(const pinfer_error* error) {
  return error == nullptr ? PINFER_OK : error->status;
}

void pinfer_error_free(pinfer_error* error) { delete error; }

void pinfer_free(void* memory) { std::free(memory); }

void pinfer_engine_options_init(pinfer_engine_options* options) {
  const pinfer::EngineConfig defaults;
  *options = pinfer_engine_options();
  options->struct_size = sizeof(*options);
  options->max_num_seqs = defaults.max_num_seqs;
  options->max_num_batched_tokens = defaults.max_num_batched_tokens;
  options->block_size = defaults.block_size;
  options->scheduling_policy = "fcfs";
  options->enable_prefix_caching = defaults.enable_prefix_caching;
  options->provider = "native";
}

pinfer_status pinfer_engine_open(const char* bundle_path, const pinfer_engine_options* options,
                                 pinfer_engine** engine, pinfer_error** error) {
  return pinfer::guarded(error, [&]() -> Status {
    if (bundle_path == nullptr || engine == nullptr) {
      return Status::invalid_argument("bundle_path and engine must not be NULL");
    }
    pinfer_engine_options defaults;
    pinfer_engine_options_init(&defaults);
    pinfer::EngineOptions engine_options;
    PINFER_RETURN_IF_ERROR(
        pinfer::read_engine_options(pinfer::read_options(options, defaults), &engine_options));
    PINFER_ASSIGN_OR_RETURN(std::unique_ptr<pinfer::Engine> opened,
                            pinfer::Engine::open(bundle_path, std::move(engine_options)));
    auto handle = std::make_unique<pinfer_engine>();
    handle->engine = std::move(opened);
    handle->info_json = pinfer::describe_engine(*handle->engine);
    *engine = handle.release();
    return Status();
  });
}

void pinfer_engine_close(pinfer_engine* engine) {
  if (engine == nullptr) return;
  // A request that aborts at this moment may hold the engine for a little longer: the threads are
  // joined here, not by whoever lets go last.
  engine->engine->shutdown();
  delete engine;
}

pinfer_status pinfer_engine_drain(pinfer_engine* engine, int64_t timeout_ms, pinfer_error** error) {
  return pinfer::guarded(error, [&]() -> Status {
    if (engine->engine->drain(std::chrono::milliseconds(timeout_ms))) return Status();
    return Status(pinfer::StatusCode::CANCELLED,
                  "requests are still running after " + std::to_string(timeout_ms) + " ms");
  });
}

const char* pinfer_engine_info_json(const pinfer_engine* engine) {
  return engine->info_json.c_str();
}

void pinfer_engine_metrics(const pinfer_engine* engine, pinfer_metrics* metrics) {
  const pinfer::EngineMetrics now = engine->engine->metrics();
  pinfer_metrics all{};
  all.num_requests_running = now.scheduler.num_running_requests;
  all.num_requests_waiting = now.scheduler.num_waiting_requests;
  all.num_usable_blocks = now.scheduler.num_usable_blocks;
  all.num_free_blocks = now.scheduler.num_free_blocks;
  all.num_preemptions = now.scheduler.num_preemptions;
  all.prefix_cache_queries = now.scheduler.prefix_cache_queried_tokens;
  all.prefix_cache_hits = now.scheduler.prefix_cache_hit_tokens;
  all.prompt_tokens = now.prompt_tokens;
  all.generation_tokens = now.generation_tokens;
  all.num_steps = now.num_steps;
  all.requests_finished_stop = now.finished_stop;
  all.requests_finished_length = now.finished_length;
  all.requests_finished_abort = now.finished_abort;
  all.requests_finished_error = now.finished_error;
  all.num_queued_tokens = now.num_queued_tokens;
  all.stalled_ms = now.stalled.count();
  all.struct_size = std::min(metrics->struct_size, sizeof(all));
  std::memcpy(metrics, &all, all.struct_size);
}

pinfer_status pinfer_verify(const char* bundle_path, pinfer_error** error) {
  return pinfer::guarded(error, [&]() -> Status {
    PINFER_ASSIGN_OR_RETURN(const std::unique_ptr<pinfer::Bundle> bundle,
                            pinfer::Bundle::open(bundle_path, pinfer::VerifyLevel::EVERYTHING));
    if (bundle->manifest().has_text) {
      PINFER_ASSIGN_OR_RETURN(const auto text, pinfer::TextProcessor::open(*bundle));
    }
    if (bundle->manifest().has_model) {
      PINFER_ASSIGN_OR_RETURN(auto file, bundle->files().map("weights.safetensors"));
      PINFER_ASSIGN_OR_RETURN(const auto weights, pinfer::WeightsFile::open(std::move(file)));
    }
    return Status();
  });
}

pinfer_status pinfer_inspect(const char* bundle_path, char** manifest_json, size_t* size,
                             pinfer_error** error) {
  return pinfer::guarded(error, [&]() -> Status {
    PINFER_ASSIGN_OR_RETURN(const std::unique_ptr<pinfer::Bundle> bundle,
                            pinfer::Bundle::open(bundle_path, pinfer::VerifyLevel::SIZES_AND_CODE));
    PINFER_ASSIGN_OR_RETURN(const auto file, bundle->files().map("manifest.json"));
    return pinfer::copy_text(
        {reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size()}, manifest_json,
        size);
  });
}

const char* pinfer_describe_json(void) {
  static const std::string text = pinfer::describe_configs_json();
  return text.c_str();
}
