#include "fiber.h"

#include <cstdint>

#if defined(__SANITIZE_ADDRESS__)
#define PINFER_ASAN_FIBERS
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define PINFER_ASAN_FIBERS
#endif
#endif
#if defined(PINFER_ASAN_FIBERS)
#include <sanitizer/common_interface_defs.h>
#endif

namespace pinfer::cuda::emulation {

namespace {

constexpr size_t kStackBytes = 128 * 1024;

void before_switch([[maybe_unused]] void** fake_stack, [[maybe_unused]] const void* bottom,
                   [[maybe_unused]] size_t size) {
#if defined(PINFER_ASAN_FIBERS)
  __sanitizer_start_switch_fiber(fake_stack, bottom, size);
#endif
}

void after_switch([[maybe_unused]] void* fake_stack, [[maybe_unused]] const void** bottom,
                  [[maybe_unused]] size_t* size) {
#if defined(PINFER_ASAN_FIBERS)
  __sanitizer_finish_switch_fiber(fake_stack, bottom, size);
#endif
}

}  // namespace

Fiber::Fiber() : stack_(new char[kStackBytes]) {}

#if defined(PINFER_OWN_SWITCH)

// swapcontext() makes a system call for the signal mask; a block's threads switch millions of
// times.
extern "C" void pinfer_emulation_switch(void** save, void* to);
asm(R"(
.text
.weak pinfer_emulation_switch
.type pinfer_emulation_switch, @function
pinfer_emulation_switch:
  push %rbp
  push %rbx
  push %r12
  push %r13
  push %r14
  push %r15
  mov %rsp, (%rdi)
  mov %rsi, %rsp
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbx
  pop %rbp
  ret
.size pinfer_emulation_switch, . - pinfer_emulation_switch
)");

void Fiber::start(void (*entry)()) {
  const uintptr_t end = reinterpret_cast<uintptr_t>(stack_.get()) + kStackBytes;
  void** top = reinterpret_cast<void**>(end & ~uintptr_t{63});
  top[-2] = reinterpret_cast<void*>(entry);  // where the first switch returns to
  fiber_ = top - 8;                          // below it, six registers
  fake_stack_ = nullptr;
}

void Fiber::resume() {
  void* own_fake_stack = nullptr;
  before_switch(&own_fake_stack, stack_.get(), kStackBytes);
  pinfer_emulation_switch(&caller_, fiber_);
  after_switch(own_fake_stack, nullptr, nullptr);
}

void Fiber::leave(bool for_good) {
  before_switch(for_good ? nullptr : &fake_stack_, caller_bottom_, caller_size_);
  pinfer_emulation_switch(&fiber_, caller_);
  after_switch(fake_stack_, &caller_bottom_, &caller_size_);
}

#else

void Fiber::start(void (*entry)()) {
  getcontext(&fiber_);
  fiber_.uc_stack.ss_sp = stack_.get();
  fiber_.uc_stack.ss_size = kStackBytes;
  fiber_.uc_link = nullptr;
  makecontext(&fiber_, entry, 0);
  fake_stack_ = nullptr;
}

void Fiber::resume() {
  void* own_fake_stack = nullptr;
  before_switch(&own_fake_stack, stack_.get(), kStackBytes);
  swapcontext(&caller_, &fiber_);
  after_switch(own_fake_stack, nullptr, nullptr);
}

void Fiber::leave(bool for_good) {
  before_switch(for_good ? nullptr : &fake_stack_, caller_bottom_, caller_size_);
  swapcontext(&fiber_, &caller_);
  after_switch(fake_stack_, &caller_bottom_, &caller_size_);
}

#endif

void Fiber::enter() { after_switch(nullptr, &caller_bottom_, &caller_size_); }

}  // namespace pinfer::cuda::emulation
