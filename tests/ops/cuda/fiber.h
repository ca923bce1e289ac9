// A stack on which a function runs until it gives the processor back: the threads of the emulation.
#pragma once

#include <cstddef>
#include <memory>

// Elsewhere, or where this is defined, by ucontext: several times slower.
#if defined(__x86_64__) && !defined(PINFER_UCONTEXT_FIBERS)
#define PINFER_OWN_SWITCH
#else
#include <ucontext.h>
#endif

namespace pinfer::cuda::emulation {

class Fiber {
 public:
  Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Prepares a call of `entry`, which must not return. What was on the stack is forgotten.
  void start(void (*entry)());
  // From outside of all fibers: goes on with this one until it calls suspend() or finish().
  void resume();
  // From within this fiber: back to who has resumed it.
  void suspend() { leave(false); }
  void finish() { leave(true); }
  // To be called first by `entry`.
  void enter();

 private:
  void leave(bool for_good);

  std::unique_ptr<char[]> stack_;
#if defined(PINFER_OWN_SWITCH)
  void* fiber_ = nullptr;  // stack pointers
  void* caller_ = nullptr;
#else
  ucontext_t fiber_, caller_;
#endif
  // What AddressSanitizer wants to know of stacks.
  void* fake_stack_ = nullptr;
  void* caller_fake_stack_ = nullptr;
  const void* caller_bottom_ = nullptr;
  size_t caller_size_ = 0;
};

}  // namespace pinfer::cuda::emulation
