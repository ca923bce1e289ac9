#include "cli/interrupt.h"

#include <csignal>

namespace pinfer::cli {
namespace {

volatile std::sig_atomic_t g_interrupted = 0;

void on_interrupt(int) {
  if (g_interrupted != 0) {
    std::signal(SIGINT, SIG_DFL);
    std::raise(SIGINT);
  }
  g_interrupted = 1;
}

}  // namespace

void catch_interrupt() {
  struct sigaction action{};
  action.sa_handler = &on_interrupt;  // without SA_RESTART: a blocked read of stdin returns
  sigaction(SIGINT, &action, nullptr);
}

bool interrupted() { return g_interrupted != 0; }

void clear_interrupt() { g_interrupted = 0; }

}  // namespace pinfer::cli
