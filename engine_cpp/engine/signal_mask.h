// Threads of a library take no signals that are meant for the program around it.
#pragma once

#include <csignal>
#include <initializer_list>

namespace pinfer {

// While it lives, threads that this one starts begin with all signals blocked but those of faults,
// which belong to the thread that has them, and of profilers, which want every thread.
class SignalMask {
 public:
  SignalMask() {
    sigset_t blocked;
    sigfillset(&blocked);
    for (const int signal :
         {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS, SIGPROF, SIGVTALRM}) {
      sigdelset(&blocked, signal);
    }
    pthread_sigmask(SIG_SETMASK, &blocked, &before_);
  }
  ~SignalMask() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalMask(const SignalMask&) = delete;
  SignalMask& operator=(const SignalMask&) = delete;

 private:
  sigset_t before_;
};

}  // namespace pinfer
