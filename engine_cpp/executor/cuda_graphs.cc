#include "executor/cuda_graphs.h"

#include <algorithm>
#include <bit>

#include "executor/cuda_memory_block.h"

namespace pinfer {
namespace {

constexpr int64_t kSmallSizes[] = {1, 2, 4, 8, 16};
constexpr int64_t kSizeStep = 16;
constexpr int64_t kLargestSize = 256;
constexpr int64_t kLeastBlocks = 16;
constexpr int kThreadLocalCapture = 1;  // other threads may go on calling the driver

}  // namespace

int64_t graph_batch_size(int64_t num_seqs) {
  for (const int64_t size : kSmallSizes) {
    if (num_seqs <= size) return size;
  }
  return num_seqs > kLargestSize ? 0 : (num_seqs + kSizeStep - 1) / kSizeStep * kSizeStep;
}

int64_t graph_max_blocks(int64_t max_blocks, int64_t most) {
  const auto power = std::bit_ceil(static_cast<uint64_t>(std::max(max_blocks, kLeastBlocks)));
  return std::max(max_blocks, std::min(static_cast<int64_t>(power), most));
}

CudaGraphs::~CudaGraphs() {
  for (const auto& [key, executable] : executables_) {
    device_->driver().graph_executable_destroy(executable);
  }
}

Status CudaGraphs::begin() {
  return cuda_status(
      device_->check(device_->driver().capture_begin(device_->stream(), kThreadLocalCapture),
                     "cuStreamBeginCapture"));
}

Result<CudaHandle> CudaGraphs::end(const Status& status) {
  const CudaDriver& driver = device_->driver();
  CudaHandle graph = nullptr, executable = nullptr;
  // A capture is ended whatever has come of it; the first error is the one to tell.
  Status ended = cuda_status(
      device_->check(driver.capture_end(device_->stream(), &graph), "cuStreamEndCapture"));
  if (status.ok() && ended.ok()) {
    ended = cuda_status(
        device_->check(driver.graph_instantiate(&executable, graph, 0), "cuGraphInstantiate"));
  }
  if (graph != nullptr) driver.graph_destroy(graph);
  PINFER_RETURN_IF_ERROR(status);
  PINFER_RETURN_IF_ERROR(ended);
  return executable;
}

Status CudaGraphs::launch(CudaHandle executable) {
  return cuda_status(device_->check(device_->driver().graph_launch(executable, device_->stream()),
                                    "cuGraphLaunch"));
}

}  // namespace pinfer
