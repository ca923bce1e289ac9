#include "csrc/threads/cpu_count.h"

#include <cstdio>
#include <fstream>
#include <optional>
#include <sstream>
#include <vector>

#include "csrc/threads/cpu_list.h"

namespace pinfer {

namespace {

// One cgroup hierarchy that can limit CPU time, as this process sees it.
struct Hierarchy {
  bool is_v2 = false;
  std::string group;       // this process's group, from /proc/self/cgroup
  std::string mount_root;  // the group that is mounted at mount_point
  std::string mount_point;
};

bool has_word(const std::string& list, const std::string& word) {
  std::stringstream stream(list);
  std::string item;
  while (std::getline(stream, item, ',')) {
    if (item == word) return true;
  }
  return false;
}

// Lines are "id:controllers:path"; v2's has no controllers.
std::vector<Hierarchy> read_groups(const std::string& root) {
  std::vector<Hierarchy> hierarchies;
  std::ifstream file(root + "/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool is_v2 = controllers.empty();
    if (is_v2 || has_word(controllers, "cpu")) {
      hierarchies.push_back({is_v2, line.substr(second + 1), "", ""});
    }
  }
  return hierarchies;
}

// Lines are "id parent dev root mount_point options [tags] - type source super_options".
void find_mounts(const std::string& root, std::vector<Hierarchy>* hierarchies) {
  std::ifstream file(root + "/proc/self/mountinfo");
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream stream(line);
    std::string skipped, mount_root, mount_point, word, type, source, options;
    stream >> skipped >> skipped >> skipped >> mount_root >> mount_point;
    while (stream >> word && word != "-") {
    }
    if (!(stream >> type >> source >> options)) continue;
    for (Hierarchy& hierarchy : *hierarchies) {
      const bool matches =
          hierarchy.is_v2 ? type == "cgroup2" : type == "cgroup" && has_word(options, "cpu");
      if (matches && hierarchy.mount_point.empty()) {
        hierarchy.mount_root = mount_root;
        hierarchy.mount_point = mount_point;
      }
    }
  }
}

std::optional<double> read_quota(const std::string& directory, bool is_v2) {
  double quota = 0, period = 0;
  if (is_v2) {
    std::ifstream file(directory + "/cpu.max");
    if (!(file >> quota >> period)) return std::nullopt;  // "max 100000" ends here too
  } else {
    std::ifstream quota_file(directory + "/cpu.cfs_quota_us");
    std::ifstream period_file(directory + "/cpu.cfs_period_us");
    if (!(quota_file >> quota) || !(period_file >> period)) return std::nullopt;
  }
  if (quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

// The group's path below the mount point. In a container the mount may show only a part of the
// tree, or the group's name may be one of the host's: then the mount point itself is ours.
std::string path_below_mount(const Hierarchy& hierarchy) {
  const std::string& mounted = hierarchy.mount_root;
  if (mounted == "/" || mounted.empty()) return hierarchy.group == "/" ? "" : hierarchy.group;
  const bool inside =
      hierarchy.group.compare(0, mounted.size(), mounted) == 0 &&
      (hierarchy.group.size() == mounted.size() || hierarchy.group[mounted.size()] == '/');
  return inside ? hierarchy.group.substr(mounted.size()) : "";
}

struct Quota {
  double cpus;
  std::string directory;
};

std::optional<Quota> tightest_quota(const std::string& root) {
  std::vector<Hierarchy> hierarchies = read_groups(root);
  find_mounts(root, &hierarchies);
  std::optional<Quota> tightest;
  for (const Hierarchy& hierarchy : hierarchies) {
    if (hierarchy.mount_point.empty()) continue;
    std::string path = path_below_mount(hierarchy);
    for (;;) {
      const std::string directory = root + hierarchy.mount_point + path;
      const std::optional<double> cpus = read_quota(directory, hierarchy.is_v2);
      if (cpus && (!tightest || *cpus < tightest->cpus)) tightest = Quota{*cpus, directory};
      if (path.empty()) break;
      path.resize(path.find_last_of('/') == std::string::npos ? 0 : path.find_last_of('/'));
    }
  }
  return tightest;
}

}  // namespace

CpuCount default_thread_count(const std::string& root, int affinity_count) {
  const int affinity =
      affinity_count > 0 ? affinity_count : static_cast<int>(affinity_cpus().size());
  const std::optional<Quota> quota = tightest_quota(root);
  if (quota && quota->cpus < affinity) {
    const int count = quota->cpus < 1 ? 1 : static_cast<int>(quota->cpus);
    char text[64];
    std::snprintf(text, sizeof(text), "cgroup quota of %.2f CPUs in ", quota->cpus);
    return {count, text + quota->directory};
  }
  return {affinity, "affinity mask: " + std::to_string(affinity) + " CPUs"};
}

}  // namespace pinfer
