// Lists of processors, on made-up nodes and on the real machine.
#include "csrc/threads/cpu_list.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "csrc/threads/thread_pool.h"

namespace pinfer {
namespace {

class CpuListTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "cpu_list_XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    write_node(0, "0-3,8-11\n");
    write_node(1, "4-7,12-15\n");
    write_node(10, "16\n");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void write_node(int node, const std::string& text) {
    const std::filesystem::path folder =
        root_ + "/sys/devices/system/node/node" + std::to_string(node);
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "cpulist") << text;
  }

  // The list, or the error.
  std::string read(const std::string& text, std::vector<int> allowed) {
    std::vector<int> cpus;
    std::string error;
    if (read_cpu_list(text, &cpus, &error, root_, std::move(allowed))) return cpu_list_text(cpus);
    EXPECT_TRUE(cpus.empty());
    return error;
  }

  std::string root_;
};

const std::vector<int> kEight = {0, 1, 2, 3, 4, 5, 6, 7};

TEST_F(CpuListTest, RangesAndNumbers) {
  EXPECT_EQ(read("0", kEight), "0");
  EXPECT_EQ(read("2,0-1", kEight), "0-2");
  EXPECT_EQ(read("6-7,1,1-2", kEight), "1-2,6-7");
  EXPECT_EQ(read("0,2,4", kEight), "0,2,4");
}

TEST_F(CpuListTest, Nodes) {
  EXPECT_EQ(read("node:1", kEight), "4-7");  // of 4-7,12-15 those that may be used
  EXPECT_EQ(read("node:0", {1, 9, 20}), "1,9");
}

TEST_F(CpuListTest, WrongTextNamesWhatIsExpected) {
  for (const std::string text : {"", ",", "1,", "a", "1-", "-1", "3-1", "1 2", "0x1", "1-2-3",
                                 "99999999999", "node", "0-9999999"}) {
    EXPECT_EQ(read(text, kEight),
              "expected CPUs as 0-3,8 or a memory node as node:0, found " + text);
  }
  EXPECT_EQ(read("2,8", kEight), "expected CPUs that this process may use (0-7), found 8");
  EXPECT_EQ(read("node:10", kEight),
            "expected CPUs that this process may use (0-7), found node:10 with 16");
  for (const std::string text : {"node:2", "node:", "node:x", "node:-1", "node:1/../node0"}) {
    EXPECT_EQ(read(text, kEight), "expected a node of 0-1,10, found " + text);
  }
  std::filesystem::remove_all(root_ + "/sys");
  EXPECT_EQ(read("node:0", kEight),
            "expected a node of none (the system names no nodes), found node:0");
}

TEST(CpuBindingTest, WorkersRunWhereTheyAreBound) {
  const std::vector<int> cpus = affinity_cpus();
  ASSERT_FALSE(cpus.empty());
  const int last = cpus.back();
  std::thread([&] {
    ASSERT_TRUE(bind_thread(last));
    EXPECT_EQ(affinity_cpus(), std::vector<int>{last});
  }).join();
  ThreadPool pool(3, {last});
  std::atomic<int> bound{0};
  struct Work {
    int cpu;
    std::atomic<int>* bound;
  } work{last, &bound};
  pool.run(
      [](void* arg, int index) {
        const auto* w = static_cast<Work*>(arg);
        if (index > 0 && affinity_cpus() == std::vector<int>{w->cpu}) w->bound->fetch_add(1);
      },
      &work);
  EXPECT_EQ(bound, 2);
  EXPECT_EQ(affinity_cpus(), cpus);  // the calling thread binds itself, or does not
}

}  // namespace
}  // namespace pinfer
