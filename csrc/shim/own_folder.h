// Where the program or library lies that this code is linked into.
#pragma once

#include <filesystem>

namespace pinfer {

// Links resolved; empty if the system does not tell.
std::filesystem::path own_folder();

}  // namespace pinfer
