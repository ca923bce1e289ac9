// C interface: errors, engine, tools. See include/pinfer/pinfer.h.
#include <algorithm>
#include <cstddef>
#include <limits>
#include <nlohmann/json.hpp>

#include "bundle/bundle.h"
#include "bundle/weights_file.h"
#include "core/field_check.h"
#include "core/mapped_file.h"
#include "core/utf8.h"
#include "engine/c_api_support.h"

namespace pinfer {

namespace {

// The codes of both enumerations are the same numbers.
static_assert(static_cast<int>(StatusCode::INVALID_ARGUMENT) == PINFER_INVALID_ARGUMENT);
static_assert(static_cast<int>(StatusCode::TIMED_OUT) == PINFER_TIMED_OUT);
static_assert(static_cast<int>(StatusCode::INTERNAL) == PINFER_INTERNAL);
static_assert(static_cast<int>(LogLevel::ERROR) == PINFER_LOG_ERROR);

// No struct ends in padding: a field that is added makes it larger, so that sizes tell versions
// apart.
template <typename Struct, typename Last>
constexpr bool ends_with(size_t offset, Last Struct::*) {
  return offset + sizeof(Last) == sizeof(Struct);
}
#define PINFER_ENDS_WITH(type, last) \
  static_assert(ends_with(offsetof(type, last), &type::last), #type " ends in padding")
PINFER_ENDS_WITH(pinfer_engine_options, async_scheduling);
PINFER_ENDS_WITH(pinfer_metrics, stalled_ms);
PINFER_ENDS_WITH(pinfer_sampling_params, prompt_logprobs);
PINFER_ENDS_WITH(pinfer_output, num_embedding);
PINFER_ENDS_WITH(pinfer_request_options, output_user_data);
PINFER_ENDS_WITH(pinfer_embed_options, output_user_data);
#undef PINFER_ENDS_WITH

// Given out when there is no memory for another one; never freed.
pinfer_error* no_memory_error() {
  static pinfer_error error{PINFER_RESOURCE_EXHAUSTED, "out of memory"};  // fits into the string
  return &error;
}

}  // namespace

pinfer_status out_of_memory(pinfer_error** error) noexcept {
  if (error != nullptr) *error = no_memory_error();
  return PINFER_RESOURCE_EXHAUSTED;
}

pinfer_status to_c(const Status& status, pinfer_error** error) noexcept {
  const auto code = static_cast<pinfer_status>(status.code());
  if (code == PINFER_OK || error == nullptr) return code;
  try {
    *error = new pinfer_error{code, valid_utf8(status.message())};
  } catch (const std::bad_alloc&) {
    return out_of_memory(error);
  }
  return code;
}

namespace {

template <typename Enum>
Status read_enum(const char* field, const char* text, Enum* out) {
  if (text == nullptr) return Status();  // the default
  const std::optional<Enum> value = parse_enum<Enum>(text);
  if (!value.has_value()) {
    std::string names;
    for (const std::string_view name : kEnumNames<Enum>) {
      names += (names.empty() ? "" : ", ") + std::string(name);
    }
    return Status::invalid_argument(std::string(field) + ": expected one of " + names + ", found " +
                                    text);
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
  config.gpu_memory_utilization = given.gpu_memory_utilization;
  config.max_cuda_graph_seqs = static_cast<int32_t>(
      std::clamp<int64_t>(given.max_cuda_graph_seqs, -1, std::numeric_limits<int32_t>::max()));
  PINFER_RETURN_IF_ERROR(check_range<int64_t>("async_scheduling", given.async_scheduling, 0, 1));
  config.async_scheduling = given.async_scheduling == 1;
  PINFER_RETURN_IF_ERROR(
      read_enum("scheduling_policy", given.scheduling_policy, &config.scheduling_policy));
  if (given.cpus != nullptr) config.cpus = given.cpus;
  PINFER_RETURN_IF_ERROR(read_enum("provider", given.provider, &config.provider));
  PINFER_RETURN_IF_ERROR(read_enum("huge_pages", given.huge_pages, &config.huge_pages));
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

nlohmann::ordered_json describe_load(const Engine& engine) {
  nlohmann::ordered_json stages;
  for (const LoadStage& stage : engine.load_stages()) stages[stage.name] = stage.ms;
  return stages;
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
      {"load_stages_ms", describe_load(engine)},
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
        {"cpus", config.cpus},
        {"provider", enum_name(config.provider)},
    });
    if (manifest.task == Task::EMBED) info["pooling"] = describe_pooling(manifest.pooling);
  }
  return info.dump();
}

pinfer_engine_options default_engine_options() {
  const EngineConfig defaults;
  pinfer_engine_options options{};
  options.struct_size = sizeof(options);
  options.max_num_seqs = defaults.max_num_seqs;
  options.max_num_batched_tokens = defaults.max_num_batched_tokens;
  options.block_size = defaults.block_size;
  options.scheduling_policy = "fcfs";
  options.enable_prefix_caching = defaults.enable_prefix_caching;
  options.provider = "native";
  options.huge_pages = "auto";
  options.gpu_memory_utilization = defaults.gpu_memory_utilization;
  options.max_cuda_graph_seqs = defaults.max_cuda_graph_seqs;
  options.async_scheduling = defaults.async_scheduling ? 1 : 0;
  return options;
}

pinfer_metrics read_metrics(const EngineMetrics& now) {
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
  return all;
}

}  // namespace
}  // namespace pinfer

using pinfer::Status;

const char* pinfer_version(void) { return PINFER_VERSION; }

int32_t pinfer_abi_version(void) { return PINFER_ABI_VERSION; }

const char* pinfer_status_name(pinfer_status status) {
  switch (status) {
    case PINFER_OK:
      return "ok";
    case PINFER_INVALID_ARGUMENT:
      return "invalid_argument";
    case PINFER_NOT_FOUND:
      return "not_found";
    case PINFER_FAILED_PRECONDITION:
      return "failed_precondition";
    case PINFER_DATA_LOSS:
      return "data_loss";
    case PINFER_RESOURCE_EXHAUSTED:
      return "resource_exhausted";
    case PINFER_TIMED_OUT:
      return "timed_out";
    case PINFER_INTERNAL:
      return "internal";
    case PINFER_ENDED:
      return "ended";
  }
  return "unknown";
}

const char* pinfer_error_message(const pinfer_error* error) {
  return error == nullptr ? "" : error->message.c_str();
}

pinfer_status pinfer_error_status(const pinfer_error* error) {
  return error == nullptr ? PINFER_OK : error->status;
}

void pinfer_error_free(pinfer_error* error) {
  if (error != pinfer::no_memory_error()) delete error;
}

void pinfer_free(void* memory) { std::free(memory); }

pinfer_status pinfer_engine_options_init(pinfer_engine_options* options, size_t struct_size) {
  return pinfer::guarded(nullptr, [&]() -> Status {
    return pinfer::write_options(pinfer::default_engine_options(), options, struct_size);
  });
}

pinfer_status pinfer_engine_open(const char* bundle_path, const pinfer_engine_options* options,
                                 pinfer_engine** engine, pinfer_error** error) {
  pinfer::clear(engine);
  return pinfer::guarded(error, [&]() -> Status {
    PINFER_RETURN_IF_ERROR(pinfer::check_given({{"bundle_path", bundle_path}, {"engine", engine}}));
    pinfer_engine_options given = pinfer::default_engine_options();
    PINFER_RETURN_IF_ERROR(pinfer::read_options("options", options, &given));
    pinfer::EngineOptions engine_options;
    PINFER_RETURN_IF_ERROR(pinfer::read_engine_options(given, &engine_options));
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
    PINFER_RETURN_IF_ERROR(pinfer::check_given({{"engine", engine}}));
    if (engine->engine->drain(pinfer::milliseconds(timeout_ms))) return Status();
    return Status(pinfer::StatusCode::TIMED_OUT,
                  "requests are still running after " + std::to_string(timeout_ms) + " ms");
  });
}

const char* pinfer_engine_info_json(const pinfer_engine* engine) {
  return engine == nullptr ? "{}" : engine->info_json.c_str();
}

pinfer_status pinfer_engine_metrics(const pinfer_engine* engine, pinfer_metrics* metrics,
                                    size_t struct_size) {
  return pinfer::guarded(nullptr, [&]() -> Status {
    PINFER_RETURN_IF_ERROR(pinfer::check_given({{"engine", engine}}));
    PINFER_RETURN_IF_ERROR(pinfer::check_struct(metrics, struct_size));
    pinfer_metrics all = pinfer::read_metrics(engine->engine->metrics());
    all.struct_size = std::min(struct_size, sizeof(all));
    pinfer::write_struct(all, metrics, struct_size);
    return Status();
  });
}

pinfer_status pinfer_verify(const char* bundle_path, pinfer_error** error) {
  return pinfer::guarded(error, [&]() -> Status {
    PINFER_RETURN_IF_ERROR(pinfer::check_given({{"bundle_path", bundle_path}}));
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
  pinfer::clear(manifest_json, size);
  return pinfer::guarded(error, [&]() -> Status {
    PINFER_RETURN_IF_ERROR(
        pinfer::check_given({{"bundle_path", bundle_path}, {"manifest_json", manifest_json}}));
    PINFER_ASSIGN_OR_RETURN(const std::unique_ptr<pinfer::Bundle> bundle,
                            pinfer::Bundle::open(bundle_path, pinfer::VerifyLevel::SIZES_AND_CODE));
    PINFER_ASSIGN_OR_RETURN(const auto file, bundle->files().map("manifest.json"));
    return pinfer::copy_text(
        {reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size()}, manifest_json,
        size);
  });
}

const char* pinfer_describe_json(void) {
  try {
    static const std::string text = pinfer::describe_configs_json();
    return text.c_str();
  } catch (const std::exception&) {
    return nullptr;
  }
}
