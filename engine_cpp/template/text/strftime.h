// Python's datetime.now().strftime(pattern): local time, English names, glibc's extensions.
#pragma once

#include <chrono>
#include <string>

namespace pinfer::jinja {

std::string format_local_time(std::chrono::system_clock::time_point time,
                              const std::string& pattern);

}  // namespace pinfer::jinja
