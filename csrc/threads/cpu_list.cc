#include "csrc/threads/cpu_list.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string_view>

namespace pinfer {

namespace {

constexpr int kMaxCpus = 1 << 20;
constexpr std::string_view kNode = "node:";

std::optional<int> read_number(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (number < 0 || number >= kMaxCpus) return std::nullopt;
  return number;
}

// "0-3,8"; none where it is something else.
std::optional<std::vector<int>> read_ranges(std::string_view text) {
  std::vector<int> cpus;
  for (;;) {
    const size_t comma = text.find(',');
    const std::string_view range = text.substr(0, comma);
    const size_t dash = range.find('-');
    const std::optional<int> first = read_number(range.substr(0, dash));
    const std::optional<int> last =
        dash == std::string_view::npos ? first : read_number(range.substr(dash + 1));
    if (!first || !last || *last < *first) return std::nullopt;
    for (int cpu = *first; cpu <= *last; ++cpu) cpus.push_back(cpu);
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
  }
  std::sort(cpus.begin(), cpus.end());
  cpus.erase(std::unique(cpus.begin(), cpus.end()), cpus.end());
  return cpus;
}

std::string nodes_text(const std::filesystem::path& folder) {
  std::vector<int> nodes;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("node")) continue;
    if (const std::optional<int> node = read_number(name.substr(4))) nodes.push_back(*node);
  }
  std::sort(nodes.begin(), nodes.end());
  return nodes.empty() ? "none (the system names no nodes)" : cpu_list_text(nodes);
}

}  // namespace

std::vector<int> affinity_cpus() {
  // The kernel refuses masks smaller than its own, so grow until it fits.
  for (int size = 1024; size <= kMaxCpus; size *= 2) {
    cpu_set_t* set = CPU_ALLOC(static_cast<size_t>(size));
    if (set == nullptr) break;
    const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(size));
    std::vector<int> cpus;
    if (sched_getaffinity(0, bytes, set) == 0) {
      for (int cpu = 0; cpu < size; ++cpu) {
        if (CPU_ISSET_S(static_cast<size_t>(cpu), bytes, set)) cpus.push_back(cpu);
      }
    }
    CPU_FREE(set);
    if (!cpus.empty()) return cpus;
  }
  return {0};
}

std::string cpu_list_text(const std::vector<int>& cpus) {
  std::string text;
  for (size_t i = 0; i < cpus.size();) {
    size_t end = i + 1;
    while (end < cpus.size() && cpus[end] == cpus[end - 1] + 1) ++end;
    text += (text.empty() ? "" : ",") + std::to_string(cpus[i]);
    if (end - i > 1) text += "-" + std::to_string(cpus[end - 1]);
    i = end;
  }
  return text;
}

bool read_cpu_list(const std::string& text, std::vector<int>* cpus, std::string* error,
                   const std::string& root, std::vector<int> allowed) {
  if (allowed.empty()) allowed = affinity_cpus();
  if (text.starts_with(kNode)) {
    const std::filesystem::path nodes = root + "/sys/devices/system/node";
    std::ifstream file(nodes / ("node" + text.substr(kNode.size())) / "cpulist");
    std::string line;
    std::getline(file, line);
    const std::optional<std::vector<int>> all = read_ranges(line);
    if (!read_number(text.substr(kNode.size())) || !all) {
      *error = "expected a node of " + nodes_text(nodes) + ", found " + text;
      return false;
    }
    cpus->clear();
    std::set_intersection(all->begin(), all->end(), allowed.begin(), allowed.end(),
                          std::back_inserter(*cpus));
    if (!cpus->empty()) return true;
    *error = "expected CPUs that this process may use (" + cpu_list_text(allowed) + "), found " +
             text + " with " + line;
    return false;
  }
  std::optional<std::vector<int>> named = read_ranges(text);
  if (!named) {
    *error = "expected CPUs as 0-3,8 or a memory node as node:0, found " + text;
    return false;
  }
  for (const int cpu : *named) {
    if (std::binary_search(allowed.begin(), allowed.end(), cpu)) continue;
    *error = "expected CPUs that this process may use (" + cpu_list_text(allowed) + "), found " +
             std::to_string(cpu);
    return false;
  }
  *cpus = std::move(*named);
  return true;
}

bool bind_thread(int cpu) {
  const auto size = static_cast<size_t>(cpu) + 1;
  cpu_set_t* set = CPU_ALLOC(size);
  if (set == nullptr) return false;
  const size_t bytes = CPU_ALLOC_SIZE(size);
  CPU_ZERO_S(bytes, set);
  CPU_SET_S(static_cast<size_t>(cpu), bytes, set);
  const bool is_bound = sched_setaffinity(0, bytes, set) == 0;
  CPU_FREE(set);
  return is_bound;
}

}  // namespace pinfer
