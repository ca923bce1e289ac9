#include "template/value/heap.h"

namespace pinfer::jinja {

void Heap::fail_steps() const {
  throw RenderError("the chat template needs more than " + std::to_string(limits_.max_steps) +
                    " steps");
}

void Heap::fail_memory(size_t bytes) {
  // The object that asked is not made, so nobody would give these bytes back.
  memory_bytes_ -= bytes;
  throw RenderError("the chat template needs more than " +
                    std::to_string(limits_.max_memory_bytes) + " bytes of memory");
}

void Heap::fail_text(size_t bytes) const {
  throw RenderError("the chat template makes a text of " + std::to_string(bytes) +
                    " bytes, more than " + std::to_string(limits_.max_output_bytes));
}

void Heap::fail_items(size_t count) const {
  throw RenderError("the chat template makes a list of " + std::to_string(count) +
                    " elements, and needs more than " + std::to_string(limits_.max_memory_bytes) +
                    " bytes of memory");
}

void DepthGuard::fail(int limit) {
  throw RenderError("the chat template is nested more than " + std::to_string(limit) +
                    " levels deep");
}

}  // namespace pinfer::jinja
