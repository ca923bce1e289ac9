#include "csrc/row_groups.h"

#include <algorithm>

#include "csrc/ops.h"
#include "csrc/threads/thread_pool.h"

namespace pinfer {

namespace {

// Bytes of the rows of a pass.
constexpr int64_t kPassBytes = 256 * 1024;
constexpr int64_t kRowMultiple = 12;  // of every path's tile rows

// Numbers below which preparing rows is not worth a fork-join.
constexpr int64_t kSerialPrepare = 16 * 1024;

// The time of a piece of work in panels: tiles of one or two panels side by side read fewer streams
// of weights at once, which is slower (by about this factor, measured), and a piece has a start.
double piece_time(int64_t panels) {
  constexpr double kOfRest[] = {0, 1.25, 2.2, 3.45};
  constexpr double kStart = 0.1;
  return static_cast<double>(panels / kPanelsPerTile * kPanelsPerTile) +
         kOfRest[panels % kPanelsPerTile] + kStart;
}

// Panels of a piece of work, so that all threads end at about the same time, and not long after
// each other where one of them has less of its processor.
int64_t panels_per_chunk(int64_t num_panels, int64_t num_passes, int64_t num_threads) {
  constexpr int64_t kChoices[] = {32, 24, 20, 18, 16, 14, 12, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1};
  constexpr double kUnevenness = 0.05;
  int64_t best = 1;
  double best_time = 1e300;
  for (const int64_t choice : kChoices) {
    if (choice > num_panels && choice != 1) continue;
    const int64_t pieces = (num_panels + choice - 1) / choice * num_passes;
    const int64_t rounds = (pieces + num_threads - 1) / num_threads;
    const double time = (static_cast<double>(rounds) + kUnevenness) * piece_time(choice);
    if (time < best_time) {
      best = choice;
      best_time = time;
    }
  }
  return best;
}

int64_t rows_per_pass(int64_t row_size) {
  const int64_t fitting = kPassBytes / std::max<int64_t>(row_size, 1);
  return std::clamp(fitting / kRowMultiple * kRowMultiple, kRowMultiple, kRowsPerPass);
}

}  // namespace

const LinearKernel& linear_kernel(int32_t weight_dtype) {
  const KernelTable& table = kernels();
  switch (weight_dtype) {
    case PINFER_FLOAT32:
      return *table.linear_float32;
    case PINFER_BFLOAT16:
      return *table.linear_bfloat16;
    case PINFER_INT8:
      return *table.linear_int8;
    default:
      return *table.linear_int4;
  }
}

void prepare_rows(const LinearKernel& kernel, const LinearTask& task, const float* x, int64_t rows,
                  char* prepared) {
  const int64_t grain = std::max<int64_t>(1, kSerialPrepare / task.k);
  parallel_for(rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      kernel.prepare(x + row * task.k, task.k, task.group_size, prepared + row * task.x_stride);
    }
  });
}

void multiply_groups(const LinearKernel& kernel, RowGroup* groups, int64_t num_groups) {
  const LinearTask& shape = groups[0].task;
  const int64_t num_panels = (shape.n + kPanelWidth - 1) / kPanelWidth;
  if (ThreadPool* pool = ThreadPool::current();
      pool != nullptr && num_groups == 1 && groups[0].rows <= kFewRows) {
    pool->parallel_for_guided(num_panels, kPanelsPerTile, [&](int64_t begin, int64_t end) {
      kernel.multiply(shape, 0, groups[0].rows, begin, end);
    });
    return;
  }
  const int64_t pass = rows_per_pass(shape.x_stride);
  const auto passes_of = [&](const RowGroup& group) { return (group.rows + pass - 1) / pass; };
  int64_t num_passes = 0;
  for (int64_t g = 0; g < num_groups; ++g) num_passes += passes_of(groups[g]);
  const int64_t chunk = panels_per_chunk(num_panels, num_passes, current_num_threads());
  const int64_t num_chunks = (num_panels + chunk - 1) / chunk;
  int64_t num_pieces = 0;
  for (int64_t g = 0; g < num_groups; ++g) {
    groups[g].first_piece = num_pieces;
    num_pieces += passes_of(groups[g]) * num_chunks;
  }
  parallel_for(num_pieces, 1, [&](int64_t begin, int64_t end) {
    for (int64_t piece = begin; piece < end; ++piece) {
      const auto starts_later = [](int64_t i, const RowGroup& group) {
        return i < group.first_piece;
      };
      const RowGroup& group =
          *(std::upper_bound(groups, groups + num_groups, piece, starts_later) - 1);
      const int64_t i = piece - group.first_piece;
      const int64_t row = i / num_chunks * pass, panel = i % num_chunks * chunk;
      kernel.multiply(group.task, row, std::min(row + pass, group.rows), panel,
                      std::min(panel + chunk, num_panels));
    }
  });
}

}  // namespace pinfer
