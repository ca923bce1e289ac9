// Thread counts from made-up /proc and cgroup trees.
#include "csrc/threads/cpu_count.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace pinfer {
namespace {

class CpuCountTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "cpu_count_XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path full = root_ + path;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }

  void use_v2(const std::string& group, const std::string& mount_root = "/") {
    write("/proc/self/cgroup", "0::" + group + "\n");
    write("/proc/self/mountinfo", "22 1 0:20 / /proc rw - proc proc rw\n30 23 0:26 " + mount_root +
                                      " /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n");
  }

  std::string root_;
};

TEST_F(CpuCountTest, NoFilesMeansAffinity) {
  const CpuCount count = default_thread_count(root_, 8);
  EXPECT_EQ(count.count, 8);
  EXPECT_EQ(count.reason, "affinity mask: 8 CPUs");
}

TEST_F(CpuCountTest, RealMachineGivesAtLeastOne) {
  const CpuCount count = default_thread_count();
  EXPECT_GE(count.count, 1);
  EXPECT_FALSE(count.reason.empty());
}

TEST_F(CpuCountTest, V2QuotaIsRoundedDown) {
  use_v2("/app");
  write("/sys/fs/cgroup/app/cpu.max", "250000 100000\n");
  const CpuCount count = default_thread_count(root_, 8);
  EXPECT_EQ(count.count, 2);
  EXPECT_EQ(count.reason, "cgroup quota of 2.50 CPUs in " + root_ + "/sys/fs/cgroup/app");
}

TEST_F(CpuCountTest, V2BelowOneIsOne) {
  use_v2("/app");
  write("/sys/fs/cgroup/app/cpu.max", "30000 100000\n");
  EXPECT_EQ(default_thread_count(root_, 8).count, 1);
}

TEST_F(CpuCountTest, V2TightestOnThePathUp) {
  use_v2("/a/b/c");
  write("/sys/fs/cgroup/a/b/c/cpu.max", "max 100000\n");
  write("/sys/fs/cgroup/a/b/cpu.max", "600000 100000\n");
  write("/sys/fs/cgroup/a/cpu.max", "300000 100000\n");
  EXPECT_EQ(default_thread_count(root_, 16).count, 3);
}

TEST_F(CpuCountTest, QuotaAboveAffinityDoesNotCount) {
  use_v2("/app");
  write("/sys/fs/cgroup/app/cpu.max", "1600000 100000\n");
  EXPECT_EQ(default_thread_count(root_, 4).count, 4);
}

TEST_F(CpuCountTest, V2InsideAContainer) {
  // The mount shows only the container's part of the tree.
  use_v2("/docker/1234/worker", "/docker/1234");
  write("/sys/fs/cgroup/cpu.max", "400000 100000\n");
  write("/sys/fs/cgroup/worker/cpu.max", "200000 100000\n");
  EXPECT_EQ(default_thread_count(root_, 8).count, 2);
  // A group outside of what is mounted: the mount point is what limits us.
  use_v2("/elsewhere", "/docker/1234");
  EXPECT_EQ(default_thread_count(root_, 8).count, 4);
}

TEST_F(CpuCountTest, V1Quota) {
  write("/proc/self/cgroup", "9:name=systemd:/\n5:cpu,cpuacct:/app\n4:memory:/other\n");
  write("/proc/self/mountinfo",
        "31 23 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
        "32 23 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n");
  write("/sys/fs/cgroup/cpu,cpuacct/app/cpu.cfs_quota_us", "350000\n");
  write("/sys/fs/cgroup/cpu,cpuacct/app/cpu.cfs_period_us", "100000\n");
  write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(default_thread_count(root_, 8).count, 3);
}

TEST_F(CpuCountTest, DamagedFilesCountAsNoQuota) {
  use_v2("/app");
  for (const char* text : {"", "garbage", "100000", "0 0\n", "-5 100000\n"}) {
    write("/sys/fs/cgroup/app/cpu.max", text);
    EXPECT_EQ(default_thread_count(root_, 8).count, 8) << '"' << text << '"';
  }
  write("/proc/self/cgroup", "nonsense\n:\n");
  write("/proc/self/mountinfo", "1 2\n\n");
  EXPECT_EQ(default_thread_count(root_, 8).count, 8);
}

}  // namespace
}  // namespace pinfer
