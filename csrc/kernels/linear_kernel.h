// Linear layers over packed panels, for one instruction set (see panel_tile.h).
#pragma once

#include "csrc/kernels/panel_tile.h"
#include "csrc/kernels/store_tile.h"

namespace pinfer {
namespace {

// Numbers of k at a time when panels are used by many rows: a panel's part and the rows' then stay
// in the first level cache (32 KB).
constexpr int64_t kBlockK = 256;

// Rows whose sums are held at a time.
constexpr int64_t kRowBlock = 96;

constexpr int kMaxTilePanels = 8;

template <class Panel>
struct LinearImpl {
  using X = typename Panel::X;
  using Element = typename Panel::Element;
  // What tiles of many rows work on.
  using TilePanel = typename Panel::TilePanel;

  static int64_t x_stride(const LinearTask& task) {
    return task.x_stride / static_cast<int64_t>(sizeof(X));
  }
  static const X* row_of(const LinearTask& task, int64_t row) {
    return static_cast<const X*>(task.x) + row * x_stride(task);
  }

  static int64_t prepared_row_size(int64_t k, int64_t) {
    return Panel::steps(k) * Panel::kXStep * static_cast<int64_t>(sizeof(X));
  }

  static void prepare(const float* x, int64_t k, int64_t, void* prepared) {
    Panel::prepare(x, k, static_cast<X*>(prepared));
  }

  static void store_rows(const LinearTask& task, int64_t row_begin, int64_t rows, int64_t panel,
                         int64_t width, const float* sums) {
    const int64_t first = panel * kPanelWidth;
    store_tile(sums, width, rows, task.n - first < width ? task.n - first : width,
               task.out + row_begin * task.out_stride + first, task.out_stride);
  }

  // Up to a tile's rows over 2^size panels side by side: every panel is read once.
  template <Prefetch prefetch>
  static void multiply_few(const LinearTask& task, int64_t row, int64_t rows, int64_t panel,
                           int size) {
    const int64_t steps = Panel::steps(task.k);
    const int num_panels = 1 << size;
    const int64_t width = num_panels * kPanelWidth;
    alignas(64) float sums[Simd::kTileRows * kPanelWidth * kMaxTilePanels];
    const Element* panels[kMaxTilePanels];
    for (int p = 0; p < num_panels; ++p) {
      panels[p] = static_cast<const Element*>(task.weight) + (panel + p) * steps * Panel::kElements;
    }
    constexpr const TileTable<Panel>& tiles = kTiles<Panel, prefetch>;
    tiles.by_size[size][rows](
        {row_of(task, row), x_stride(task), panels, steps, false, sums, width});
    store_rows(task, row, rows, panel, width, sums);
  }

  // A part of a panel, from a step on.
  static const Element* part_of(const LinearTask& task, int64_t panel, int64_t step) {
    return static_cast<const Element*>(task.weight) +
           (panel * Panel::steps(task.k) + step) * Panel::kElements;
  }

  // Many rows: a part of the panels at a time, for all row tiles, which fetch the next part
  // meanwhile. Panels of bfloat16 that are split into floats anyway are split once, into a buffer;
  // the sums are the same.
  static void multiply_many(const LinearTask& task, int64_t row_begin, int64_t rows, int64_t panel,
                            int num_panels, const TileFunction<TilePanel>* tiles) {
    constexpr int kMaxPanels = Simd::panels_for(Simd::kTileRows);
    constexpr int64_t kBlockSteps = kBlockK / Panel::kNumbersPerStep;
    constexpr int64_t kStepsRatio = TilePanel::kExpanded ? Panel::kNumbersPerStep : 1;
    constexpr int64_t kStepBytes = Panel::kElements * static_cast<int64_t>(sizeof(Element));
    const int64_t steps = Panel::steps(task.k);
    const int64_t width = num_panels * kPanelWidth;
    // Tiles of nearly equal height: a flat last one would wait for its few chains.
    const int64_t num_tiles = (rows + Simd::kTileRows - 1) / Simd::kTileRows;
    alignas(64) float sums[kRowBlock * kPanelWidth * kMaxPanels];
    alignas(64) float expanded[kMaxPanels][TilePanel::kExpanded ? kBlockK * kPanelWidth : 1];
    for (int64_t step = 0; step < steps; step += kBlockSteps) {
      const int64_t count = steps - step < kBlockSteps ? steps - step : kBlockSteps;
      const typename TilePanel::Element* panels[kMaxPanels];
      for (int p = 0; p < num_panels; ++p) {
        if constexpr (TilePanel::kExpanded) {
          Panel::expand(part_of(task, panel + p, step), count, expanded[p]);
          panels[p] = expanded[p];
        } else {
          panels[p] = part_of(task, panel + p, step);
        }
      }
      const bool is_last = step + count == steps;
      const int64_t next_panel = is_last ? panel + num_panels : panel;
      const int64_t next_step = is_last ? 0 : step + count;
      for (int64_t i = 0; i < num_tiles; ++i) {
        const int64_t row = rows * i / num_tiles;
        const int64_t r = rows * (i + 1) / num_tiles - row;
        // Each tile fetches its share of the next part of one of the panels. Behind the weights'
        // end there is nothing to fetch, which does no harm.
        const int64_t share = i * num_panels;
        const auto* next =
            reinterpret_cast<const char*>(part_of(task, next_panel + share / num_tiles, next_step));
        tiles[r]({row_of(task, row_begin + row) + step * Panel::kXStep, x_stride(task), panels,
                  count * kStepsRatio, step != 0, sums + row * width, width,
                  next + share % num_tiles * count * kStepBytes / num_tiles,
                  num_panels * kStepBytes / kStepsRatio / num_tiles});
      }
    }
    store_rows(task, row_begin, rows, panel, width, sums);
  }

  static void multiply(const LinearTask& task, int64_t row_begin, int64_t row_end,
                       int64_t panel_begin, int64_t panel_end) {
    for (int64_t row = row_begin; row < row_end; row += kRowBlock) {
      const int64_t rows = row_end - row < kRowBlock ? row_end - row : kRowBlock;
      int64_t panel = panel_begin;
      if (rows <= Simd::kTileRows) {
        int size = largest_tile_size(static_cast<int>(rows));
        for (; panel < panel_end; panel += 1 << size) {
          while (panel + (1 << size) > panel_end) --size;
          multiply_few<Prefetch::AHEAD>(task, row, rows, panel, size);
        }
      } else if (rows <= 2 * Simd::kTileRows && !TilePanel::kExpanded) {
        // The first half brings the panels into the caches for the second one.
        const int64_t first = (rows + 1) / 2;
        int size = largest_tile_size(static_cast<int>(first));
        for (; panel < panel_end; panel += 1 << size) {
          while (panel + (1 << size) > panel_end) --size;
          multiply_few<Prefetch::AHEAD>(task, row, first, panel, size);
          multiply_few<Prefetch::NONE>(task, row + first, rows - first, panel, size);
        }
      } else {
        constexpr const TileTable<TilePanel>& tiles = kTiles<TilePanel, Prefetch::NEXT>;
        constexpr int kWide = Simd::panels_for(Simd::kTileRows);
        for (; panel + kWide <= panel_end; panel += kWide) {
          multiply_many(task, row, rows, panel, kWide, tiles.as_full);
        }
        for (; panel < panel_end; ++panel) {
          multiply_many(task, row, rows, panel, 1, tiles.by_size[0]);
        }
      }
    }
  }
};

constexpr LinearKernel kLinearFloat32 = {nullptr, nullptr, LinearImpl<Float32Panel>::multiply};
constexpr LinearKernel kLinearBFloat16 = {LinearImpl<BestBFloat16Panel>::prepared_row_size,
                                          LinearImpl<BestBFloat16Panel>::prepare,
                                          LinearImpl<BestBFloat16Panel>::multiply};

}  // namespace
}  // namespace pinfer
