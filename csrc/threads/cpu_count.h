// How many threads this process should compute with: what affinity and cgroup quotas allow, not
// what the machine has.
#pragma once

#include <string>

namespace pinfer {

struct CpuCount {
  int count = 1;  // >= 1
  std::string
      reason;  // what decided, for logs: "affinity mask: 8 CPUs", "cgroup quota 2.5 CPUs in ..."
};

// The smaller of the affinity mask's CPUs and the tightest cgroup (v1 or v2) CPU quota on the path
// from this process's group to the root, rounded down, at least 1. Unreadable files count as no
// quota. `root` is prepended to /proc and to cgroup mount points; `affinity_count` above 0 replaces
// the mask: both for tests.
CpuCount default_thread_count(const std::string& root = "", int affinity_count = 0);

}  // namespace pinfer
