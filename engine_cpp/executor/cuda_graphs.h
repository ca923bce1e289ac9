// Steps that were recorded on the device's stream, to be started again as one.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "core/status.h"
#include "csrc/shim/cuda_device.h"

namespace pinfer {

// Decode steps are rounded up to one of these many requests, so that a few graphs serve all; 0 if
// there are more than the largest.
int64_t graph_batch_size(int64_t num_seqs);
// Blocks of the longest table, rounded up likewise, but not beyond `most`.
int64_t graph_max_blocks(int64_t max_blocks, int64_t most);

class CudaGraphs {
 public:
  using Key = std::pair<int64_t, int64_t>;  // requests, blocks of the longest table

  explicit CudaGraphs(std::shared_ptr<CudaDevice> device) : device_(std::move(device)) {}
  ~CudaGraphs();
  CudaGraphs(const CudaGraphs&) = delete;
  CudaGraphs& operator=(const CudaGraphs&) = delete;

  // Whether a step of these sizes has run before: what it needs is loaded, and there is memory for
  // its buffers, which a capture cannot add.
  bool is_warm(const Key& key) { return !warm_.insert(key).second; }

  // Starts the graph of the key; the first time, records what `work` puts on the stream.
  template <typename Work>
  Status run(const Key& key, Work&& work) {
    auto found = executables_.find(key);
    if (found == executables_.end()) {
      PINFER_RETURN_IF_ERROR(begin());
      const Status status = work();
      PINFER_ASSIGN_OR_RETURN(CudaHandle executable, end(status));
      found = executables_.emplace(key, executable).first;
    }
    return launch(found->second);
  }

  int64_t size() const { return static_cast<int64_t>(executables_.size()); }

 private:
  Status begin();
  Result<CudaHandle> end(const Status& status);
  Status launch(CudaHandle executable);

  std::shared_ptr<CudaDevice> device_;
  std::set<Key> warm_;
  std::map<Key, CudaHandle> executables_;
};

}  // namespace pinfer
