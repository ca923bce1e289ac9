// The bundle that this very program carries, if pinfer-export --standalone has made it.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace pinfer::cli {

// The program's own path if it carries a bundle: then no command asks for one.
const std::optional<std::string>& own_bundle();

// Arguments without a command: those of `run`, or of `chat` where there are none. Does nothing
// where the program carries no bundle.
void add_default_command(const CLI::App& app, std::vector<std::string>* arguments);

}  // namespace pinfer::cli
