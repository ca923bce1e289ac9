#include "fake_driver.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cubin.h"

namespace {

using fake_cuda::KernelInfo;

constexpr int kSuccess = 0, kInvalidValue = 1, kOutOfMemory = 2, kNotInitialized = 3,
              kNoDevice = 100, kInvalidContext = 201, kNoBinary = 209, kInvalidHandle = 400,
              kNotFound = 500, kIllegalInCapture = 900;
constexpr size_t kPlainSharedBytes = 48 * 1024, kMostSharedBytes = 227 * 1024;

using Work = std::function<void()>;

struct Module {
  std::map<std::string, KernelInfo> kernels;
};

struct Function {
  std::string name;
  KernelInfo info;
  Module* module;
  size_t shared_bytes = kPlainSharedBytes;
};

struct Graph {
  std::vector<Work> work;
};

struct Stream {
  bool is_capturing = false;
  Graph captured;
  std::deque<Work> pending;
  std::vector<std::pair<const void*, size_t>> pending_host;  // pinned memory that it copies
};

struct State {
  std::mutex mutex;
  int num_devices = 1, arch = 90, driver_version = 13000;
  uint64_t memory_bytes = uint64_t{1} << 30, used_bytes = 0;
  uint8_t fill = 0;
  bool is_initialized = false;
  int contexts = 0;
  std::map<char*, size_t> device, pinned;
  std::map<char*, size_t> freed;  // the last place that memory was at
  std::set<void*> modules, streams, events, graphs, executables;
  std::map<void*, std::unique_ptr<Function>> functions;
  int64_t calls = 0, fail_at = -1, waits = 0;
  int failure = kSuccess;
  std::string failed_function, faults, alive;
  std::deque<std::string> names;
  std::vector<FakeCudaLaunch> launches;
  FakeCudaLauncher launcher = nullptr;
};

State& state() {
  static State* only = new State;  // outlives what other libraries give back at exit
  return *only;
}

thread_local bool has_context = false;

void fault(const std::string& text) {
  // The same one again and again says nothing new.
  if (state().faults.find(text + "\n") == std::string::npos) state().faults += text + "\n";
}

// Counts a call; its error, if it is to fail.
int begin(const char* function, bool needs_context = true) {
  State& s = state();
  const int64_t call = s.calls++;
  if (call == s.fail_at) {
    s.failed_function = function;
    return s.failure;
  }
  if (!s.is_initialized && std::strcmp(function, "cuInit") != 0) {
    fault(std::string(function) + " before cuInit");
    return kNotInitialized;
  }
  if (needs_context && (!has_context || s.contexts == 0)) {
    fault(std::string(function) + " without a current context");
    return kInvalidContext;
  }
  return kSuccess;
}

// For calls that are illegal while any stream is captured.
int refuse_in_capture(const char* function) {
  for (void* stream : state().streams) {
    if (static_cast<Stream*>(stream)->is_capturing) {
      fault(std::string(function) + " while a stream is captured");
      return kIllegalInCapture;
    }
  }
  return kSuccess;
}

bool lies_in(const std::map<char*, size_t>& memory, const void* data, size_t bytes) {
  auto* begin = const_cast<char*>(static_cast<const char*>(data));
  auto found = memory.upper_bound(begin);
  if (found == memory.begin()) return false;
  --found;
  return begin + bytes <= found->first + found->second;
}

bool is_device(const void* data, size_t bytes) { return lies_in(state().device, data, bytes); }

std::string place(const void* data, size_t bytes) {
  const char* kind = lies_in(state().freed, data, 1)    ? "freed"
                     : lies_in(state().pinned, data, 1) ? "host"
                     : is_device(data, 1)               ? "the end of device"
                                                        : "no";
  return std::to_string(bytes) + " bytes in " + kind + " memory";
}

void check_device(const char* function, const char* argument, const void* data, size_t bytes) {
  if (!is_device(data, bytes)) {
    fault(std::string(function) + ": " + argument + ": " + place(data, bytes));
  }
}

int give_back(const char* function, std::set<void*>& alive, void* handle) {
  if (alive.erase(handle) == 0) {
    fault(std::string(function) + " of what is not alive");
    return kInvalidHandle;
  }
  return kSuccess;
}

Stream* find_stream(const char* function, void* stream) {
  if (state().streams.count(stream) == 0) {
    fault(std::string(function) + (stream == nullptr ? ": the default stream" : ": not a stream"));
    return nullptr;
  }
  return static_cast<Stream*>(stream);
}

void wait_for(Stream* stream) {
  if (!stream->pending.empty()) ++state().waits;
  while (!stream->pending.empty()) {
    const Work work = std::move(stream->pending.front());
    stream->pending.pop_front();
    work();
  }
  stream->pending_host.clear();
}

void wait_for_all() {
  for (void* stream : state().streams) wait_for(static_cast<Stream*>(stream));
}

// Does the work when the stream is waited for, or when the graph that it is captured into is
// launched and waited for.
int enqueue(const char* function, void* stream, Work work) {
  Stream* found = find_stream(function, stream);
  if (found == nullptr) return kInvalidHandle;
  if (found->is_capturing) {
    found->captured.work.push_back(std::move(work));
  } else {
    found->pending.push_back(std::move(work));
  }
  return kSuccess;
}

int copy(const char* function, void* to, const void* from, size_t bytes, void* stream,
         bool to_device, bool from_device) {
  if (const int error = begin(function)) return error;
  if (to_device) check_device(function, "to", to, bytes);
  if (from_device) check_device(function, "from", from, bytes);
  Stream* found = find_stream(function, stream);
  if (found == nullptr) return kInvalidHandle;
  const void* host = to_device ? (from_device ? nullptr : from) : to;
  const bool is_pageable = host != nullptr && !lies_in(state().pinned, host, bytes);
  // A graph copies again what is there when it runs: memory of the host must be there, too.
  if (is_pageable && found->is_capturing) {
    fault(std::string(function) + ": pageable memory in a captured copy");
  }
  if (host != nullptr) found->pending_host.emplace_back(host, bytes);
  const int error = enqueue(function, stream, [=] { std::memmove(to, from, bytes); });
  if (is_pageable && !found->is_capturing) wait_for(found);  // such copies are not asynchronous
  return error;
}

void record(const char* kernel, const unsigned* grid, const unsigned* block, unsigned shared_bytes,
            bool is_captured) {
  State& s = state();
  s.names.emplace_back(kernel);
  s.launches.push_back({s.names.back().c_str(),
                        {grid[0], grid[1], grid[2]},
                        {block[0], block[1], block[2]},
                        shared_bytes,
                        is_captured});
}

void check_launch(const Function& function, const unsigned* grid, const unsigned* block,
                  unsigned shared_bytes) {
  const std::string name = function.name + ": ";
  if (grid[0] == 0 || grid[0] > 2147483647u || grid[1] == 0 || grid[1] > 65535 || grid[2] == 0 ||
      grid[2] > 65535) {
    fault(name + "a grid of " + std::to_string(grid[0]) + " x " + std::to_string(grid[1]) + " x " +
          std::to_string(grid[2]));
  }
  const unsigned threads = block[0] * block[1] * block[2];
  if (threads == 0 || threads > 1024 ||
      (function.info.threads != 0 && threads != function.info.threads)) {
    fault(name + std::to_string(threads) + " threads, compiled for " +
          std::to_string(function.info.threads));
  }
  if (shared_bytes > function.shared_bytes) {
    fault(name + std::to_string(shared_bytes) + " bytes of shared memory, " +
          std::to_string(function.shared_bytes) + " have been asked for");
  }
}

// Pointers are the parameters of 8 bytes; the last two, Triton's scratch memory, may be null. What
// is small is a count of 64 bits: no memory of a process lies there.
void check_parameters(const Function& function, void** parameters) {
  const auto& bytes = function.info.parameter_bytes;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != 8) continue;
    void* pointer = nullptr;
    std::memcpy(&pointer, parameters[i], sizeof(pointer));
    if (pointer == nullptr && i + 2 >= bytes.size()) continue;
    const auto value = reinterpret_cast<uintptr_t>(pointer);
    if (value != 0 && value < uintptr_t{1} << 32) continue;
    const std::string argument = "parameter " + std::to_string(i);
    check_device(function.name.c_str(), argument.c_str(), pointer, 1);
  }
}

}  // namespace

// ---- for tests ----

void fake_cuda_reset(int32_t num_devices, int32_t arch, uint64_t memory_bytes,
                     int32_t driver_version) {
  State& s = state();
  s.num_devices = num_devices;
  s.arch = arch;
  s.memory_bytes = memory_bytes;
  s.driver_version = driver_version;
  s.calls = 0;
  s.waits = 0;
  s.fail_at = -1;
  s.failed_function.clear();
  s.faults.clear();
  s.launches.clear();
  s.names.clear();
  s.freed.clear();
  s.launcher = nullptr;
  s.fill = 0;
  s.is_initialized = false;
}

void fake_cuda_fail_at(int64_t call, int32_t error) {
  State& s = state();
  s.fail_at = call < 0 ? -1 : s.calls + call;
  s.failure = error;
  if (call >= 0) s.failed_function.clear();
}

int64_t fake_cuda_num_calls() { return state().calls; }
const char* fake_cuda_failed_function() { return state().failed_function.c_str(); }
const char* fake_cuda_faults() { return state().faults.c_str(); }

const char* fake_cuda_alive() {
  State& s = state();
  s.alive.clear();
  const auto add = [&](size_t count, const std::string& what) {
    if (count > 0) {
      s.alive += (s.alive.empty() ? "" : ", ") + std::to_string(count) + " " + what;
    }
  };
  add(s.device.size(), "allocations of " + std::to_string(s.used_bytes) + " bytes");
  add(s.pinned.size(), "pinned allocations");
  add(s.modules.size(), "modules");
  add(s.streams.size(), "streams");
  add(s.events.size(), "events");
  add(s.graphs.size(), "graphs");
  add(s.executables.size(), "executable graphs");
  add(static_cast<size_t>(s.contexts), "contexts");
  return s.alive.c_str();
}

int64_t fake_cuda_num_launches() { return static_cast<int64_t>(state().launches.size()); }
FakeCudaLaunch fake_cuda_launch(int64_t index) {
  return state().launches[static_cast<size_t>(index)];
}
void fake_cuda_forget_launches() { state().launches.clear(); }
int64_t fake_cuda_num_waits() { return state().waits; }
uint64_t fake_cuda_extent(const void* memory) {
  auto* data = const_cast<char*>(static_cast<const char*>(memory));
  auto found = state().device.upper_bound(data);
  if (found == state().device.begin()) return 0;
  --found;
  char* end = found->first + found->second;
  return data < end ? static_cast<uint64_t>(end - data) : 0;
}
void fake_cuda_set_launcher(FakeCudaLauncher launcher) { state().launcher = launcher; }
void fake_cuda_set_fill(uint8_t fill) { state().fill = fill; }

void fake_cuda_check_range(const char* kernel, const char* argument, const void* memory,
                           size_t bytes) {
  if (bytes > 0) check_device(kernel, argument, memory, bytes);
}

int32_t fake_cuda_run(const char* kernel, void* stream, const FakeCudaClosure* functions,
                      void* closure) {
  Stream* found = find_stream(kernel, stream);
  if (found == nullptr) return kInvalidHandle;
  const unsigned none[3] = {0, 0, 0};
  record(kernel, none, none, 0, found->is_capturing);
  const std::shared_ptr<void> kept(functions->copy(closure), functions->free);
  return enqueue(kernel, stream, [name = std::string(kernel), run = functions->run, kept] {
    if (const int32_t error = run(kept.get())) fault(name + ": error " + std::to_string(error));
  });
}

// ---- the driver ----

#define DRIVER extern "C" __attribute__((visibility("default"))) int

DRIVER cuGetErrorName(int error, const char** name) {
  static const std::map<int, const char*> kNames = {{0, "CUDA_SUCCESS"},
                                                    {1, "CUDA_ERROR_INVALID_VALUE"},
                                                    {2, "CUDA_ERROR_OUT_OF_MEMORY"},
                                                    {3, "CUDA_ERROR_NOT_INITIALIZED"},
                                                    {100, "CUDA_ERROR_NO_DEVICE"},
                                                    {201, "CUDA_ERROR_INVALID_CONTEXT"},
                                                    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
                                                    {400, "CUDA_ERROR_INVALID_HANDLE"},
                                                    {500, "CUDA_ERROR_NOT_FOUND"},
                                                    {700, "CUDA_ERROR_ILLEGAL_ADDRESS"},
                                                    {719, "CUDA_ERROR_LAUNCH_FAILED"},
                                                    {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"}};
  const auto found = kNames.find(error);
  *name = found == kNames.end() ? nullptr : found->second;
  return found == kNames.end() ? kInvalidValue : kSuccess;
}

DRIVER cuGetErrorString(int error, const char** text) {
  *text = error == kSuccess       ? "no error"
          : error == kOutOfMemory ? "out of memory"
                                  : "an error of the fake driver";
  return kSuccess;
}

DRIVER cuInit(unsigned) {
  if (const int error = begin("cuInit", false)) return error;
  state().is_initialized = true;
  return state().num_devices == 0 ? kNoDevice : kSuccess;
}

DRIVER cuDriverGetVersion(int* version) {
  *version = state().driver_version;
  return begin("cuDriverGetVersion", false);
}

DRIVER cuDeviceGetCount(int* count) {
  *count = state().num_devices;
  return begin("cuDeviceGetCount", false);
}

DRIVER cuDeviceGet(int* device, int ordinal) {
  if (const int error = begin("cuDeviceGet", false)) return error;
  *device = ordinal;
  return ordinal < state().num_devices ? kSuccess : kInvalidValue;
}

DRIVER cuDeviceGetName(char* name, int size, int) {
  if (const int error = begin("cuDeviceGetName", false)) return error;
  std::strncpy(name, "fake GPU", static_cast<size_t>(size));
  return kSuccess;
}

DRIVER cuDeviceGetAttribute(int* value, int attribute, int) {
  if (const int error = begin("cuDeviceGetAttribute", false)) return error;
  *value = attribute == 16 ? 132 : attribute == 75 ? state().arch / 10 : state().arch % 10;
  return attribute == 16 || attribute == 75 || attribute == 76 ? kSuccess : kInvalidValue;
}

DRIVER cuDevicePrimaryCtxRetain(void** context, int) {
  if (const int error = begin("cuDevicePrimaryCtxRetain", false)) return error;
  ++state().contexts;
  *context = &state();
  return kSuccess;
}

DRIVER cuDevicePrimaryCtxRelease_v2(int) {
  if (state().contexts == 0) {
    fault("cuDevicePrimaryCtxRelease of what is not alive");
    return kInvalidContext;
  }
  --state().contexts;
  return kSuccess;
}

DRIVER cuCtxSetCurrent(void* context) {
  if (context == nullptr) {
    has_context = false;
    return kSuccess;
  }
  if (const int error = begin("cuCtxSetCurrent", false)) return error;
  has_context = true;
  return kSuccess;
}

DRIVER cuMemGetInfo_v2(size_t* free, size_t* total) {
  if (const int error = begin("cuMemGetInfo")) return error;
  *total = state().memory_bytes;
  *free = state().memory_bytes - state().used_bytes;
  return kSuccess;
}

DRIVER cuMemAlloc_v2(uint64_t* memory, size_t bytes) {
  if (const int error = begin("cuMemAlloc")) return error;
  if (const int error = refuse_in_capture("cuMemAlloc")) return error;
  State& s = state();
  if (bytes == 0) return kInvalidValue;
  if (bytes > s.memory_bytes - s.used_bytes) return kOutOfMemory;
  // Of exactly this size, so that AddressSanitizer sees the first byte beyond.
  char* data = static_cast<char*>(::operator new(bytes, std::align_val_t{512}));
  std::memset(data, s.fill, bytes);
  s.device.emplace(data, bytes);
  s.used_bytes += bytes;
  *memory = reinterpret_cast<uint64_t>(data);
  return kSuccess;
}

DRIVER cuMemFree_v2(uint64_t memory) {
  State& s = state();
  auto* data = reinterpret_cast<char*>(memory);
  const auto found = s.device.find(data);
  if (found == s.device.end()) {
    fault("cuMemFree of what is not alive");
    return kInvalidValue;
  }
  refuse_in_capture("cuMemFree");
  wait_for_all();
  s.used_bytes -= found->second;
  s.freed[data] = found->second;
  s.device.erase(found);
  ::operator delete(data, std::align_val_t{512});
  return kSuccess;
}

DRIVER cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
  if (const int error = begin("cuMemHostAlloc")) return error;
  if (const int error = refuse_in_capture("cuMemHostAlloc")) return error;
  char* data = static_cast<char*>(::operator new(bytes, std::align_val_t{512}));
  std::memset(data, 0xff, bytes);
  state().pinned.emplace(data, bytes);
  *memory = data;
  return kSuccess;
}

DRIVER cuMemFreeHost(void* memory) {
  auto* data = static_cast<char*>(memory);
  const auto found = state().pinned.find(data);
  if (found == state().pinned.end()) {
    fault("cuMemFreeHost of what is not alive");
    return kInvalidValue;
  }
  for (void* stream : state().streams) {
    for (const auto& [host, bytes] : static_cast<Stream*>(stream)->pending_host) {
      if (host >= data && host < data + found->second) {
        fault("cuMemFreeHost of memory that is still to be copied");
      }
    }
  }
  state().pinned.erase(found);
  ::operator delete(data, std::align_val_t{512});
  return kSuccess;
}

DRIVER cuMemcpy(uint64_t to, uint64_t from, size_t bytes) {
  if (const int error = begin("cuMemcpy")) return error;
  if (const int error = refuse_in_capture("cuMemcpy")) return error;
  wait_for_all();
  std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes);
  return kSuccess;
}

DRIVER cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t bytes, void* stream) {
  return copy("cuMemcpyHtoDAsync", reinterpret_cast<void*>(to), from, bytes, stream, true, false);
}

DRIVER cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t bytes, void* stream) {
  return copy("cuMemcpyDtoHAsync", to, reinterpret_cast<void*>(from), bytes, stream, false, true);
}

DRIVER cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void* stream) {
  return copy("cuMemcpyDtoDAsync", reinterpret_cast<void*>(to), reinterpret_cast<void*>(from),
              bytes, stream, true, true);
}

DRIVER cuMemsetD8Async(uint64_t to, unsigned char value, size_t bytes, void* stream) {
  if (const int error = begin("cuMemsetD8Async")) return error;
  auto* data = reinterpret_cast<void*>(to);
  check_device("cuMemsetD8Async", "to", data, bytes);
  return enqueue("cuMemsetD8Async", stream, [=] { std::memset(data, value, bytes); });
}

DRIVER cuStreamCreate(void** stream, unsigned) {
  if (const int error = begin("cuStreamCreate")) return error;
  *stream = new Stream;
  state().streams.insert(*stream);
  return kSuccess;
}

DRIVER cuStreamDestroy_v2(void* stream) {
  if (const int error = give_back("cuStreamDestroy", state().streams, stream)) return error;
  wait_for(static_cast<Stream*>(stream));
  delete static_cast<Stream*>(stream);
  return kSuccess;
}

DRIVER cuStreamSynchronize(void* stream) {
  if (const int error = begin("cuStreamSynchronize")) return error;
  Stream* found = find_stream("cuStreamSynchronize", stream);
  if (found == nullptr) return kInvalidHandle;
  if (const int error = refuse_in_capture("cuStreamSynchronize")) return error;
  wait_for(found);
  return kSuccess;
}

DRIVER cuEventCreate(void** event, unsigned) {
  if (const int error = begin("cuEventCreate")) return error;
  *event = new char;
  state().events.insert(*event);
  return kSuccess;
}

DRIVER cuEventDestroy_v2(void* event) {
  if (const int error = give_back("cuEventDestroy", state().events, event)) return error;
  delete static_cast<char*>(event);
  return kSuccess;
}

DRIVER cuEventRecord(void* event, void* stream) {
  if (const int error = begin("cuEventRecord")) return error;
  if (state().events.count(event) == 0) fault("cuEventRecord of what is not alive");
  return find_stream("cuEventRecord", stream) == nullptr ? kInvalidHandle : kSuccess;
}

DRIVER cuEventQuery(void*) {
  if (const int error = begin("cuEventQuery")) return error;
  wait_for_all();
  return kSuccess;
}

DRIVER cuEventSynchronize(void*) {
  if (const int error = begin("cuEventSynchronize")) return error;
  if (const int error = refuse_in_capture("cuEventSynchronize")) return error;
  wait_for_all();
  return kSuccess;
}

DRIVER cuModuleLoadData(void** module, const void* image) {
  if (const int error = begin("cuModuleLoadData")) return error;
  if (const int error = refuse_in_capture("cuModuleLoadData")) return error;
  auto loaded = std::make_unique<Module>(Module{fake_cuda::read_cubin(image, state().arch)});
  if (loaded->kernels.empty()) return kNoBinary;
  *module = loaded.release();
  state().modules.insert(*module);
  return kSuccess;
}

DRIVER cuModuleUnload(void* module) {
  if (const int error = give_back("cuModuleUnload", state().modules, module)) return error;
  std::erase_if(state().functions,
                [&](const auto& entry) { return entry.second->module == module; });
  delete static_cast<Module*>(module);
  return kSuccess;
}

DRIVER cuModuleGetFunction(void** function, void* module, const char* name) {
  if (const int error = begin("cuModuleGetFunction")) return error;
  if (state().modules.count(module) == 0) {
    fault("cuModuleGetFunction of a module that is not loaded");
    return kInvalidHandle;
  }
  auto* loaded = static_cast<Module*>(module);
  const auto found = loaded->kernels.find(name);
  if (found == loaded->kernels.end()) return kNotFound;
  auto made = std::make_unique<Function>(Function{name, found->second, loaded});
  *function = made.get();
  state().functions.emplace(made.get(), std::move(made));
  return kSuccess;
}

DRIVER cuFuncSetAttribute(void* function, int attribute, int value) {
  if (const int error = begin("cuFuncSetAttribute")) return error;
  const auto found = state().functions.find(function);
  if (found == state().functions.end()) return kInvalidHandle;
  if (attribute != 8 || value < 0 || static_cast<size_t>(value) > kMostSharedBytes) {
    return kInvalidValue;
  }
  found->second->shared_bytes = std::max(found->second->shared_bytes, static_cast<size_t>(value));
  return kSuccess;
}

DRIVER cuLaunchKernel(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                      unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                      void* stream, void** parameters, void**) {
  if (const int error = begin("cuLaunchKernel")) return error;
  const auto entry = state().functions.find(function);
  if (entry == state().functions.end()) {
    fault("cuLaunchKernel of a function that is not loaded");
    return kInvalidHandle;
  }
  const Function& kernel = *entry->second;
  const unsigned grid[3] = {grid_x, grid_y, grid_z}, block[3] = {block_x, block_y, block_z};
  Stream* found = find_stream(kernel.name.c_str(), stream);
  if (found == nullptr) return kInvalidHandle;
  check_launch(kernel, grid, block, shared_bytes);
  check_parameters(kernel, parameters);
  record(kernel.name.c_str(), grid, block, shared_bytes, found->is_capturing);
  // The driver copies the parameters; so does a graph.
  auto values = std::make_shared<std::vector<std::vector<char>>>();
  for (size_t i = 0; i < kernel.info.parameter_bytes.size(); ++i) {
    const auto* bytes = static_cast<const char*>(parameters[i]);
    values->emplace_back(bytes, bytes + kernel.info.parameter_bytes[i]);
  }
  const std::string name = kernel.name;
  return enqueue(name.c_str(), stream, [=] {
    if (state().launcher == nullptr) return;
    std::vector<void*> pointers;
    for (auto& value : *values) pointers.push_back(value.data());
    const uint32_t size[3] = {grid_x, grid_y, grid_z};
    state().launcher(name.c_str(), size, pointers.data(), static_cast<int32_t>(pointers.size()));
  });
}

DRIVER cuStreamBeginCapture_v2(void* stream, int) {
  if (const int error = begin("cuStreamBeginCapture")) return error;
  Stream* found = find_stream("cuStreamBeginCapture", stream);
  if (found == nullptr) return kInvalidHandle;
  if (found->is_capturing) return kIllegalInCapture;
  found->is_capturing = true;
  found->captured = {};
  return kSuccess;
}

DRIVER cuStreamEndCapture(void* stream, void** graph) {
  Stream* found = find_stream("cuStreamEndCapture", stream);
  if (found == nullptr) return kInvalidHandle;
  // Ends whatever comes of it.
  const bool was_capturing = std::exchange(found->is_capturing, false);
  *graph = nullptr;
  if (const int error = begin("cuStreamEndCapture")) return error;
  if (!was_capturing) return kInvalidValue;
  *graph = new Graph(std::move(found->captured));
  state().graphs.insert(*graph);
  return kSuccess;
}

DRIVER cuGraphDestroy(void* graph) {
  if (const int error = give_back("cuGraphDestroy", state().graphs, graph)) return error;
  delete static_cast<Graph*>(graph);
  return kSuccess;
}

DRIVER cuGraphInstantiateWithFlags(void** executable, void* graph, unsigned long long) {
  if (const int error = begin("cuGraphInstantiate")) return error;
  if (state().graphs.count(graph) == 0) return kInvalidHandle;
  *executable = new Graph(*static_cast<Graph*>(graph));
  state().executables.insert(*executable);
  return kSuccess;
}

DRIVER cuGraphExecDestroy(void* executable) {
  if (const int error = give_back("cuGraphExecDestroy", state().executables, executable)) {
    return error;
  }
  delete static_cast<Graph*>(executable);
  return kSuccess;
}

DRIVER cuGraphLaunch(void* executable, void* stream) {
  if (const int error = begin("cuGraphLaunch")) return error;
  if (state().executables.count(executable) == 0) {
    fault("cuGraphLaunch of what is not alive");
    return kInvalidHandle;
  }
  for (const Work& work : static_cast<Graph*>(executable)->work) {
    if (const int error = enqueue("cuGraphLaunch", stream, work)) return error;
  }
  return kSuccess;
}
