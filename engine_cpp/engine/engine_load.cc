// Engine: what a bundle is loaded into.
#include <algorithm>

#include "csrc/threads/cpu_count.h"
#include "csrc/threads/cpu_list.h"
#include "engine/cache_size.h"
#include "engine/engine.h"
#include "engine/signal_mask.h"
#include "executor/cuda_model_runner.h"
#include "executor/model_runner.h"

namespace pinfer {
namespace {

using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

// Vocabularies are padded to round sizes: ids that the tokenizer does not know are never sampled.
std::vector<int32_t> ids_without_token(const Tokenizer& tokenizer, int32_t vocab_size) {
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < vocab_size; ++id) {
    if (!tokenizer.has_token(id)) ids.push_back(id);
  }
  return ids;
}

// Why a request may hold fewer blocks than its length says; "" where all layers see all tokens.
std::string groups_text(const KVCacheConfig& config) {
  std::string windows;
  for (const KVCacheGroup& group : config.groups) {
    windows += (windows.empty() ? "" : ", ") + std::to_string(group.spec.sliding_window);
  }
  if (windows == "0") return "";
  const std::string count = std::to_string(config.num_groups());
  return "; " + count + " groups of layers, with windows of " + windows + " tokens (0: none)";
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::open(const std::string& path, EngineOptions options) {
  const Clock::time_point begin = Clock::now();
  PINFER_RETURN_IF_ERROR(options.config.validate());
  std::unique_ptr<Engine> engine(new Engine());
  engine->options_ = std::move(options);
  engine->config_ = engine->options_.config;
  engine->stage_begin_ = begin;
  const VerifyLevel level =
      engine->options_.verify ? VerifyLevel::EVERYTHING : VerifyLevel::SIZES_AND_CODE;
  PINFER_ASSIGN_OR_RETURN(engine->bundle_, Bundle::open(path, level));
  if (!engine->bundle_->manifest().has_text) {
    return Status::failed_precondition(path + ": the bundle holds no text part");
  }
  engine->report(0.2, "manifest");
  PINFER_ASSIGN_OR_RETURN(engine->text_, TextProcessor::open(*engine->bundle_));
  engine->report(0.4, "text");
  if (engine->options_.executor != nullptr) {
    engine->vocab_size_ = engine->text_->tokenizer().vocab_size();
    engine->make_core(uniform_kv_cache_config(1, engine->config_.block_size),
                      std::move(engine->options_.executor));
  } else if (engine->bundle_->manifest().has_model && !engine->options_.text_only) {
    PINFER_RETURN_IF_ERROR(engine->load_model());
  }
  if (engine->has_model()) engine->start();
  engine->report(1.0, "ready");
  engine->load_ms_ = milliseconds_since(begin);
  engine->log(LogLevel::INFO, "loaded " + path + " in " + std::to_string(engine->load_ms_) + " ms");
  return engine;
}

Result<const ShimProvider*> Engine::find_provider() const {
  if (config_.provider == Provider::NATIVE) return &native_provider();
  std::string error;
  const ShimProvider* provider = torch_provider(&error);
  if (provider == nullptr) return Status::failed_precondition("--provider torch: " + error);
  const std::string& wanted = bundle_->manifest().torch_version;
  const std::string found(provider->torch_version());
  if (!wanted.starts_with(found + ".")) {
    return Status::failed_precondition(bundle_->path() + ": compiled with torch " + wanted +
                                       ", --provider torch has found torch " + found);
  }
  return provider;
}

Status Engine::load_model() {
  const Manifest& manifest = bundle_->manifest();
  PINFER_RETURN_IF_ERROR(bundle_->check_runnable(std::string(enum_name(config_.provider))));
  if (config_.block_size != manifest.block_size) {
    return Status::invalid_argument("--block-size " + std::to_string(config_.block_size) +
                                    ": the bundle was compiled for " +
                                    std::to_string(manifest.block_size));
  }
  PINFER_RETURN_IF_ERROR(resolve_max_model_len(manifest.max_model_len, &config_));
  const KVCacheConfig kv_cache_config =
      make_kv_cache_config(manifest.layer_windows(), manifest.block_size, config_.max_model_len);
  std::vector<int> cpus;
  if (std::string error; !config_.cpus.empty() && !read_cpu_list(config_.cpus, &cpus, &error)) {
    return Status::invalid_argument("cpus: " + error);
  }
  bound_cpu_ = cpus.empty() ? -1 : cpus.front();
  if (manifest.device == "cuda") return load_cuda_model(kv_cache_config);
  PINFER_ASSIGN_OR_RETURN(const ShimProvider* provider, find_provider());
  KVCacheShape shape{kv_cache_config.num_tensors(), 0,
                     manifest.num_kv_heads,         manifest.head_dim,
                     manifest.block_size,           manifest.kv_cache_dtype};
  PINFER_RETURN_IF_ERROR(
      resolve_cache_size(kv_cache_config, shape.bytes_per_block(), available_memory(), &config_));
  shape.num_blocks = config_.num_blocks;
  PINFER_RETURN_IF_ERROR(resolve_threads(cpus));
  PINFER_ASSIGN_OR_RETURN(std::unique_ptr<Model> model, Model::load(bundle_, *provider));
  report(0.9, "code");
  PINFER_ASSIGN_OR_RETURN(std::unique_ptr<KVCacheMemory> memory, KVCacheMemory::create(shape));
  {
    const SignalMask mask;
    pool_ = std::make_unique<ThreadPool>(config_.threads, std::move(cpus));
  }
  HugePageCopy huge_pages = plan_huge_pages(model->weights->bytes());
  auto runner = std::make_unique<ModelRunner>(std::move(model), kv_cache_config, std::move(memory),
                                              pool_.get(), std::move(huge_pages));
  vocab_size_ = manifest.vocab_size;
  make_core(kv_cache_config, std::move(runner));
  log(LogLevel::INFO, "cache: " + std::to_string(config_.num_blocks) + " blocks of " +
                          std::to_string(config_.block_size) + " tokens, " +
                          std::to_string(shape.bytes_per_block() * shape.num_blocks >> 20) +
                          " MiB when all are used" + groups_text(kv_cache_config));
  return Status();
}

Status Engine::resolve_threads(const std::vector<int>& cpus) {
  const auto num_cpus = static_cast<int32_t>(cpus.size());
  if (num_cpus > 0 && config_.threads > num_cpus) {
    return Status::invalid_argument("threads: expected at most " + std::to_string(num_cpus) +
                                    ", one for each of cpus " + cpu_list_text(cpus) + ", found " +
                                    std::to_string(config_.threads));
  }
  if (config_.threads != 0) return Status();
  const CpuCount count = default_thread_count();
  config_.threads = count.count;
  std::string reason = count.reason;
  if (num_cpus > 0 && num_cpus < count.count) {
    config_.threads = num_cpus;
    reason = "cpus " + cpu_list_text(cpus);
  }
  log(LogLevel::INFO, "threads: " + std::to_string(config_.threads) + " (" + reason + ")");
  return Status();
}

// Small weights stay where they are: the caches hold them. Others move if that takes no more than a
// quarter of the free memory, as the cache does.
HugePageCopy Engine::plan_huge_pages(std::span<const std::byte> weights) const {
  constexpr size_t kFewBytes = size_t{32} << 20;
  if (config_.huge_pages == HugePages::OFF || weights.size() < kFewBytes) return {};
  if (!has_huge_pages()) {
    log(LogLevel::INFO, "huge pages: the system gives none (transparent_hugepage is never)");
    return {};
  }
  const int64_t available = available_memory();
  if (static_cast<int64_t>(weights.size()) > available / 4) {
    log(LogLevel::INFO, "huge pages: none for the weights' " +
                            std::to_string(weights.size() >> 20) +
                            " MiB, more than a quarter of the " + std::to_string(available >> 20) +
                            " MiB available");
    return {};
  }
  return HugePageCopy(weights);
}

// The device's memory holds the weights, then what the largest step needs, then the cache.
Status Engine::load_cuda_model(const KVCacheConfig& kv_cache_config) {
  std::string error;
  const std::shared_ptr<CudaDevice> device = CudaDevice::open(CudaDeviceOptions(), &error);
  if (device == nullptr) {
    return Status::failed_precondition(bundle_->path() + ": compiled for cuda: " + error);
  }
  config_.threads = 1;  // what is computed on the host is little
  const CudaRunnerOptions options = {config_.max_num_seqs, config_.max_num_batched_tokens,
                                     config_.max_model_len, config_.max_cuda_graph_seqs};
  PINFER_ASSIGN_OR_RETURN(std::unique_ptr<CudaModelRunner> runner,
                          CudaModelRunner::create(device, bundle_, kv_cache_config, options));
  CudaKVCacheShape shape = runner->cache_shape();
  int64_t cache_bytes = 0;
  if (config_.num_blocks == 0) {
    PINFER_RETURN_IF_ERROR(runner->measure());
    size_t free_bytes = 0, total_bytes = 0;
    PINFER_RETURN_IF_ERROR(cuda_status(device->memory_info(&free_bytes, &total_bytes)));
    const auto spared = static_cast<size_t>((1 - config_.gpu_memory_utilization) *
                                            static_cast<double>(total_bytes));
    cache_bytes = static_cast<int64_t>(free_bytes - std::min(free_bytes, spared));
  }
  PINFER_RETURN_IF_ERROR(
      resolve_device_cache_size(kv_cache_config, shape.bytes_per_block(), cache_bytes, &config_));
  shape.num_blocks = config_.num_blocks;
  PINFER_ASSIGN_OR_RETURN(std::unique_ptr<CudaKVCache> cache, CudaKVCache::create(device, shape));
  runner->set_cache(std::move(cache));
  vocab_size_ = bundle_->manifest().vocab_size;
  make_core(kv_cache_config, std::move(runner));
  log(LogLevel::INFO, "device: " + device->name() + ", sm_" + std::to_string(device->arch()));
  log(LogLevel::INFO, "cache: " + std::to_string(config_.num_blocks) + " blocks of " +
                          std::to_string(config_.block_size) + " tokens, " +
                          std::to_string(shape.bytes_per_block() * shape.num_blocks >> 20) +
                          " MiB of device memory" + groups_text(kv_cache_config));
  return Status();
}

void Engine::make_core(KVCacheConfig kv_cache_config, std::unique_ptr<Executor> executor) {
  core_ = std::make_unique<EngineCore>(config_, std::move(kv_cache_config), std::move(executor),
                                       Sampler(ids_without_token(text_->tokenizer(), vocab_size_)),
                                       bundle_->manifest().task == Task::EMBED);
}

void Engine::report(double fraction, const char* stage) {
  load_stages_.push_back({stage, milliseconds_since(stage_begin_)});
  stage_begin_ = Clock::now();
  if (options_.progress) options_.progress(fraction, stage);
}

}  // namespace pinfer
