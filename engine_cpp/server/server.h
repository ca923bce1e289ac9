// The HTTP server: listens, loads the engine, serves until it is told to stop.
#pragma once

#include <functional>
#include <memory>

#include "pinfer/pinfer.hpp"
#include "server/server_config.h"
#include "server/server_log.h"

namespace pinfer::server {

// Opens the engine, on a thread of its own while /health says that the model is loading. Throws.
using LoadEngine = std::function<std::shared_ptr<Engine>()>;

// Serves until SIGTERM or SIGINT: then new work is refused, and what runs may end within
// config.drain_timeout; a second signal ends the process at once. SIGHUP reads keys and
// certificates again. Returns the exit code. Throws std::runtime_error for a configuration that
// cannot be served, and what `load` throws.
int serve(const ServerConfig& config, ServerLog* log, const LoadEngine& load);

}  // namespace pinfer::server
