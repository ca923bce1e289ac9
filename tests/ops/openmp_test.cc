// The OpenMP entry points, called the way a compiler's outlined code calls them.
#include "csrc/threads/openmp.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <vector>

#include "csrc/threads/thread_pool.h"

namespace pinfer {
namespace {

// What gcc makes of
//   #pragma omp parallel
//   {
//     #pragma omp for
//     for (i = 0; i < n; ++i) out[i] = i;
//     #pragma omp single
//     ++singles;
//     #pragma omp for
//     for (i = 0; i < n; ++i) sum[thread] += out[n - 1 - i];
//   }
struct Data {
  int64_t n;
  std::vector<int64_t> out;
  std::vector<int64_t> sums;
  std::atomic<int> singles{0}, regions{0};
  int team_size = 0;
};

void outlined(void* arg) {
  auto* data = static_cast<Data*>(arg);
  const int64_t threads = pinfer_omp_get_num_threads(), index = pinfer_omp_get_thread_num();
  if (index == 0) data->team_size = static_cast<int>(threads);
  data->regions.fetch_add(1);
  const int64_t begin = data->n * index / threads, end = data->n * (index + 1) / threads;
  for (int64_t i = begin; i < end; ++i) data->out[static_cast<size_t>(i)] = i;
  pinfer_GOMP_barrier();
  if (pinfer_GOMP_single_start()) data->singles.fetch_add(1);
  pinfer_GOMP_barrier();
  for (int64_t i = begin; i < end; ++i) {
    data->sums[static_cast<size_t>(index)] += data->out[static_cast<size_t>(data->n - 1 - i)];
  }
  pinfer_GOMP_critical_start();
  pinfer_GOMP_critical_end();
}

void check_region(int expected_team, unsigned num_threads) {
  Data data;
  data.n = 1000;
  data.out.resize(1000);
  data.sums.resize(16);
  pinfer_GOMP_parallel(outlined, &data, num_threads, 0);
  EXPECT_EQ(data.team_size, expected_team);
  EXPECT_EQ(data.regions, expected_team);
  EXPECT_EQ(data.singles, 1);
  int64_t total = 0;
  for (int64_t sum : data.sums) total += sum;
  EXPECT_EQ(total, 499500);
}

TEST(OpenMpTest, WithoutAPoolRegionsAreSerial) {
  check_region(1, 0);
  EXPECT_EQ(pinfer_omp_get_num_threads(), 1);
  EXPECT_EQ(pinfer_omp_get_thread_num(), 0);
  EXPECT_EQ(pinfer_omp_get_max_threads(), 1);
  EXPECT_EQ(pinfer_omp_in_parallel(), 0);
}

TEST(OpenMpTest, RegionsUseTheWholeTeam) {
  ThreadPool pool(3);
  ThreadPool::Scope scope(&pool);
  EXPECT_EQ(pinfer_omp_get_max_threads(), 3);
  for (int i = 0; i < 100; ++i) check_region(3, 0);
  check_region(2, 2);
  check_region(3, 8);
  EXPECT_EQ(pinfer_omp_get_num_threads(), 1) << "outside of a region";
}

TEST(OpenMpTest, SerialRegions) {
  ThreadPool pool(3);
  ThreadPool::Scope scope(&pool);
  pool.set_serial_regions(true);
  EXPECT_EQ(pinfer_omp_get_max_threads(), 1);
  check_region(1, 0);
  pool.set_serial_regions(false);
  check_region(3, 0);
}

TEST(OpenMpTest, NestedRegionHasATeamOfOne) {
  ThreadPool pool(2);
  ThreadPool::Scope scope(&pool);
  pinfer_GOMP_parallel(
      [](void*) {
        EXPECT_EQ(pinfer_omp_in_parallel(), 1);
        check_region(1, 0);
        EXPECT_EQ(pinfer_omp_get_num_threads(), 2);
      },
      nullptr, 0, 0);
}

TEST(OpenMpTest, LookupKnowsWhatArtifactsAskFor) {
  for (const char* name : {"GOMP_parallel", "GOMP_barrier", "omp_get_num_threads",
                           "omp_get_thread_num", "omp_get_max_threads"}) {
    EXPECT_NE(find_openmp_function(name), nullptr) << name;
  }
  EXPECT_EQ(find_openmp_function("GOMP_parallel"), reinterpret_cast<void*>(&pinfer_GOMP_parallel));
  EXPECT_EQ(find_openmp_function("GOMP_task"), nullptr);
  for (const std::string& name : openmp_function_names()) {
    EXPECT_NE(find_openmp_function(name), nullptr) << name;
  }
}

}  // namespace
}  // namespace pinfer
