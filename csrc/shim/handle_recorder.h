// Collects the tensor handles that compiled code takes for itself. An artifact's container makes
// one for each weight that it is given and never deletes it (torch 2.13, user-managed constants):
// who owns the container deletes them behind it.
#pragma once

#include <vector>

#include "csrc/shim/aoti.h"

namespace pinfer {

// While it lives, handles made by aoti_torch_new_tensor_handle on this thread are added to
// `handles`. One at a time on a thread.
class HandleRecorder {
 public:
  explicit HandleRecorder(std::vector<AtenTensorHandle>* handles) { recorded_ = handles; }
  ~HandleRecorder() { recorded_ = nullptr; }
  HandleRecorder(const HandleRecorder&) = delete;
  HandleRecorder& operator=(const HandleRecorder&) = delete;

  // aoti_torch_new_tensor_handle of a provider, as artifacts get it.
  template <typename Provider>
  static AOTITorchError new_tensor_handle(AtenTensorHandle tensor, AtenTensorHandle* result) {
    const AOTITorchError error = Provider::functions().new_tensor_handle(tensor, result);
    if (error == 0 && recorded_ != nullptr) recorded_->push_back(*result);
    return error;
  }

 private:
  static inline thread_local std::vector<AtenTensorHandle>* recorded_ = nullptr;
};

}  // namespace pinfer
