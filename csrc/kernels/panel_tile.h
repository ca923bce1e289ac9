// The register tile that linear layers and attention scores share: a few rows times panels of 16
// outputs. Templates over `Simd`; included, after one simd_*.h, by the files of each instruction
// set. No functions of the standard library here: their inline code would be shared with files
// compiled for other processors.
#pragma once

#include <cstdint>

#include "csrc/kernels/kernels.h"
#include "csrc/kernels/prefetch.h"

namespace pinfer {
namespace {

constexpr int kPanelVectors = static_cast<int>(kPanelWidth) / Simd::kLanes;

// To bfloat16, to nearest even; NaN stays NaN.
inline uint16_t to_bfloat16(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof(bits));
  const bool is_nan = (bits & 0x7fffffff) > 0x7f800000;
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  return static_cast<uint16_t>(is_nan ? (bits >> 16) | 0x40 : rounded);
}

inline void prefetch_ahead(const void* p) {
  prefetch<Fetch::FAR>(static_cast<const char*>(p) + kFetchBytes<Fetch::FAR>);
}

// What a panel holds and how it is multiplied. A step is one k (float32) or a pair (bfloat16):
//   X              element of a prepared row; X[kXStep] per step
//   Element        element of a panel; Element[kElements] per step
//   kPhases        multiply-adds per step and vector
//   steps(k)       steps that k numbers take
//   TilePanel      what many rows are multiplied with: itself, or what expand() makes of it

template <bool expanded>
struct FloatPanel {
  using X = float;
  using Element = float;
  using W = Simd::F;
  static constexpr int kXStep = 1;
  static constexpr int kElements = kPanelWidth;
  static constexpr int kPhases = 1;
  static constexpr int kNumbersPerStep = 1;
  static constexpr bool kExpanded = expanded;
  using TilePanel = FloatPanel;
  static int64_t steps(int64_t k) { return k; }
  template <int phase>
  static W load(const Element* p) {
    return Simd::load(p);
  }
  template <int phase>
  static W broadcast(const X* x) {
    return Simd::set1(*x);
  }
  static Simd::F fma(W x, W w, Simd::F sum) { return Simd::fma(x, w, sum); }
  static void prepare(const float* x, int64_t k, X* prepared) {
    for (int64_t i = 0; i < k; ++i) prepared[i] = x[i];
  }
};

using Float32Panel = FloatPanel<false>;
using ExpandedPanel = FloatPanel<true>;

// bfloat16 by way of float32: rows are rounded to bfloat16 but stored as floats; a 32-bit word of
// the panel is split into its two numbers.
struct BFloat16Panel {
  using X = float;
  using Element = uint16_t;
  using W = Simd::F;
  static constexpr int kXStep = 2;
  static constexpr int kElements = 2 * kPanelWidth;
  static constexpr int kPhases = 2;
  static constexpr int kNumbersPerStep = 2;
  using TilePanel = ExpandedPanel;
  static int64_t steps(int64_t k) { return (k + 1) / 2; }
  template <int phase>
  static W load(const Element* p) {
    const Simd::I words = Simd::load_int(p);
    if constexpr (phase == 0) {
      return Simd::as_float(Simd::template shift_left<16>(words));
    } else {
      return Simd::as_float(
          Simd::and_int(words, Simd::set1_int(static_cast<int32_t>(0xffff0000u))));
    }
  }
  template <int phase>
  static W broadcast(const X* x) {
    return Simd::set1(x[phase]);
  }
  static Simd::F fma(W x, W w, Simd::F sum) { return Simd::fma(x, w, sum); }
  static void prepare(const float* x, int64_t k, X* prepared) {
    for (int64_t i = 0; i < k; ++i) {
      const uint32_t bits = static_cast<uint32_t>(to_bfloat16(x[i])) << 16;
      __builtin_memcpy(&prepared[i], &bits, sizeof(bits));
    }
    if (k % 2 != 0) prepared[k] = 0;
  }
  // The same panel in floats: [2 * steps, 16].
  static void expand(const Element* panel, int64_t steps, float* expanded) {
    for (int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 4
      for (int v = 0; v < kPanelVectors; ++v) {
        const Element* words = panel + v * (kElements / kPanelVectors);
        prefetch_ahead(words);
        Simd::store(expanded + v * Simd::kLanes, load<0>(words));
        Simd::store(expanded + kPanelWidth + v * Simd::kLanes, load<1>(words));
      }
      panel += kElements;
      expanded += 2 * kPanelWidth;
    }
  }
};

#if defined(PINFER_AVX512_BF16)
// bfloat16 pairs multiplied by the processor's own dot product.
struct BFloat16DotPanel {
  using X = uint32_t;
  using Element = uint16_t;
  using W = Simd::I;
  static constexpr int kXStep = 1;
  static constexpr int kElements = 2 * kPanelWidth;
  static constexpr int kPhases = 1;
  static int64_t steps(int64_t k) { return (k + 1) / 2; }
  template <int phase>
  static W load(const Element* p) {
    return Simd::load_int(p);
  }
  template <int phase>
  static W broadcast(const X* x) {
    return Simd::set1_int(static_cast<int32_t>(*x));
  }
  static constexpr int kNumbersPerStep = 2;
  static constexpr bool kExpanded = false;
  using TilePanel = BFloat16DotPanel;
  static Simd::F fma(W x, W w, Simd::F sum) { return Simd::bfloat16_dot(x, w, sum); }
  static void prepare(const float* x, int64_t k, X* prepared) {
    int64_t i = 0;
    for (; i + Simd::kLanes <= k; i += Simd::kLanes) {
      Simd::store_bfloat16(prepared + i / 2, Simd::load(x + i));
    }
    for (; i < k; i += 2) {
      const uint32_t low = to_bfloat16(x[i]), high = i + 1 < k ? to_bfloat16(x[i + 1]) : 0;
      prepared[i / 2] = low | high << 16;
    }
  }
};
using BestBFloat16Panel = BFloat16DotPanel;
#else
using BestBFloat16Panel = BFloat16Panel;
#endif

template <class Panel, int kRows, int kPanels, int phase>
inline void multiply_phase(const typename Panel::X* x, int64_t x_stride,
                           const typename Panel::Element* const* panels, int64_t offset,
                           Simd::F (&sums)[kRows][kPanels * kPanelVectors]) {
  constexpr int kVectors = kPanels * kPanelVectors;
  constexpr int kVectorElements = Panel::kElements / kPanelVectors;
  const auto load_panel = [&](int v) {
    return Panel::template load<phase>(panels[v / kPanelVectors] + offset +
                                       (v % kPanelVectors) * kVectorElements);
  };
  // The smaller side is held in registers, so that with the sums 16 of them suffice.
  if constexpr (kRows < kVectors) {
    typename Panel::W values[kRows];
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      values[r] = Panel::template broadcast<phase>(x + r * x_stride);
    }
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      const typename Panel::W w = load_panel(v);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) sums[r][v] = Panel::fma(values[r], w, sums[r][v]);
    }
  } else {
    typename Panel::W w[kVectors];
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) w[v] = load_panel(v);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const typename Panel::W value = Panel::template broadcast<phase>(x + r * x_stride);
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) sums[r][v] = Panel::fma(value, w[v], sums[r][v]);
    }
  }
}

// What a tile fetches while it multiplies.
enum class Prefetch {
  NONE,   // its panels are in the caches
  AHEAD,  // its own panels, kFetchBytes<Fetch::FAR> ahead: they come from memory and are read once
  NEXT,   // a part of what is needed after this: its panels are in the caches already
};

template <class Panel>
struct Tile {
  const typename Panel::X* x;  // rows, x_stride elements apart
  int64_t x_stride;
  const typename Panel::Element* const* panels;
  int64_t steps;
  bool resume;  // continue the sums in `out`
  float* out;   // [rows, panels * 16], out_stride floats between rows
  int64_t out_stride;
  const char* next = nullptr;  // for Prefetch::NEXT: where to begin, and bytes per step
  int64_t next_stride = 0;
};

// out[r][p * 16 + i] (+)= sum over steps of x[r] * panels[p][., i]: one chain of multiply-adds per
// output, in ascending order, whatever the tile's size.
template <class Panel, Prefetch prefetch, int kRows, int kPanels>
void multiply_tile(const Tile<Panel>& tile) {
  constexpr int kVectors = kPanels * kPanelVectors;
  const typename Panel::Element* panels[kPanels];
  for (int p = 0; p < kPanels; ++p) panels[p] = tile.panels[p];
  const typename Panel::X* x = tile.x;
  const char* next = tile.next;
  Simd::F sums[kRows][kVectors];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      const float* sum = tile.out + r * tile.out_stride + v * Simd::kLanes;
      sums[r][v] = tile.resume ? Simd::load(sum) : Simd::zero();
    }
  }
  int64_t offset = 0;
  // Behind the panels' ends the next tile's panels are fetched, which lie behind these.
  constexpr int64_t kStepBytes =
      Panel::kElements * static_cast<int64_t>(sizeof(typename Panel::Element));
  const int64_t last_own = tile.steps - kFetchBytes<Fetch::FAR> / kStepBytes;
  int64_t ahead = 0;
  for (int64_t step = 0; step < tile.steps; ++step) {
    if constexpr (prefetch == Prefetch::AHEAD) {
      if (step == last_own) ahead = panels[kPanels - 1] - panels[0];
#pragma GCC unroll 16
      for (int p = 0; p < kPanels; ++p) prefetch_ahead(panels[p] + offset + ahead);
    } else if constexpr (prefetch == Prefetch::NEXT) {
      __builtin_prefetch(next);
      next += tile.next_stride;
    }
    multiply_phase<Panel, kRows, kPanels, 0>(x, tile.x_stride, panels, offset, sums);
    if constexpr (Panel::kPhases == 2) {
      multiply_phase<Panel, kRows, kPanels, 1>(x, tile.x_stride, panels, offset, sums);
    }
    x += Panel::kXStep;
    offset += Panel::kElements;
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      Simd::store(tile.out + r * tile.out_stride + v * Simd::kLanes, sums[r][v]);
    }
  }
}

template <class Panel>
using TileFunction = void (*)(const Tile<Panel>&);

// Sizes of tiles: 1, 2, 4, ... panels side by side. The largest that suits that number of rows:
constexpr int kMaxTileSizes = 4;
inline int largest_tile_size(int rows) { return __builtin_ctz(Simd::panels_for(rows)); }

// The tile functions by number of rows (1 ... Simd::kTileRows): by_size[i][rows] over 2^i panels,
// up to largest_tile_size(rows) (Prefetch::NEXT: one panel only), and over as many as suit a full
// tile.
template <class Panel>
struct TileTable {
  TileFunction<Panel> by_size[kMaxTileSizes][Simd::kTileRows + 1];
  TileFunction<Panel> as_full[Simd::kTileRows + 1];
};

template <class Panel, Prefetch prefetch, int kRows, int kSize = 0>
constexpr void fill_tile_sizes(TileTable<Panel>* table) {
  static_assert(kSize < kMaxTileSizes);
  table->by_size[kSize][kRows] = multiply_tile<Panel, prefetch, kRows, 1 << kSize>;
  if constexpr (2 << kSize <= Simd::panels_for(kRows)) {
    fill_tile_sizes<Panel, prefetch, kRows, kSize + 1>(table);
  }
}

template <class Panel, Prefetch prefetch, int kRows>
constexpr void fill_tile_table(TileTable<Panel>* table) {
  constexpr int kFull = Simd::panels_for(Simd::kTileRows);
  if constexpr (prefetch == Prefetch::NEXT) {
    table->by_size[0][kRows] = multiply_tile<Panel, prefetch, kRows, 1>;
  } else {
    fill_tile_sizes<Panel, prefetch, kRows>(table);
  }
  table->as_full[kRows] = multiply_tile<Panel, prefetch, kRows, kFull>;
  if constexpr (kRows > 1) fill_tile_table<Panel, prefetch, kRows - 1>(table);
}

template <class Panel, Prefetch prefetch>
constexpr TileTable<Panel> make_tile_table() {
  TileTable<Panel> table{};
  fill_tile_table<Panel, prefetch, Simd::kTileRows>(&table);
  return table;
}

template <class Panel, Prefetch prefetch>
constexpr TileTable<Panel> kTiles = make_tile_table<Panel, prefetch>();

}  // namespace
}  // namespace pinfer
