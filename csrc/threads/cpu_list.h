// The processors that compute threads are bound to.
#pragma once

#include <string>
#include <vector>

namespace pinfer {

// Reads "0-3,8" (as taskset and cpusets write it) or "node:1", the CPUs of a NUMA node that this
// process may use; ascending, each once. False with *error set ("expected ..., found ...") where
// the text is neither, or names a CPU that the affinity mask leaves out, or no such node. `root` is
// prepended to /sys; `allowed`, where not empty, replaces the mask: both for tests.
bool read_cpu_list(const std::string& text, std::vector<int>* cpus, std::string* error,
                   const std::string& root = "", std::vector<int> allowed = {});

// "0-3,8"
std::string cpu_list_text(const std::vector<int>& cpus);

// The CPUs of this process's affinity mask, ascending.
std::vector<int> affinity_cpus();

// Binds the calling thread. False where the system refuses.
bool bind_thread(int cpu);

}  // namespace pinfer
