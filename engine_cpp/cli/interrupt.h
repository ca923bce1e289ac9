// Ctrl-C: the first one asks the running command to end, the second ends the process.
#pragma once

namespace pinfer::cli {

// Installs the handler; interrupted() is true after the first SIGINT.
void catch_interrupt();
bool interrupted();
void clear_interrupt();

}  // namespace pinfer::cli
