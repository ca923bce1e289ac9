// Linear layers over int8 and int4 weights, for one instruction set. A row is quantised to int8
// when it is prepared, products of integers are exact, and scales are applied in float32: a row's
// result depends on nothing but the row and the weights. Included after one simd_*.h; see
// panel_tile.h for what may not be included here.
//
// Processors multiply unsigned bytes by signed ones. Where they do so exactly (kHasByteDot) rows of
// int8 are stored with 128 added, and 128 times the sum of the weights is taken off again.
// Elsewhere pairs of products must fit 16 bits: |x| is multiplied by the weight with x's sign.
#pragma once

#include <cstdint>

#include "csrc/kernels/quantized_weight.h"

namespace pinfer {
namespace {

constexpr int kByteVectors = static_cast<int>(kPanelWidth) / Simd::kLanes;  // of a panel's row
constexpr int64_t kVectorBytes = 4 * Simd::kLanes;
constexpr int64_t kQuantizedPrefetchBytes = 2048;

// Smaller numbers are zeros: their reciprocals overflow.
constexpr float kSmallestRowMaximum = 1e-30f;

// The largest |x|; infinite if any is not finite.
inline float largest_magnitude(const float* x, int64_t k) {
  const Simd::F infinite = Simd::set1(__builtin_inff());
  const Simd::I magnitude = Simd::set1_int(0x7fffffff);
  Simd::F largest = Simd::zero();
  int64_t i = 0;
  for (; i + Simd::kLanes <= k; i += Simd::kLanes) {
    const Simd::F value = Simd::as_float(Simd::and_int(Simd::as_int(Simd::load(x + i)), magnitude));
    // A NaN is taken for infinity, which no later number replaces.
    largest = Simd::max(largest, Simd::select(Simd::less(value, infinite), value, infinite));
  }
  float result = Simd::reduce_max(largest);
  for (; i < k; ++i) {
    const float value = __builtin_fabsf(x[i]);
    if (!(value < __builtin_inff())) return __builtin_inff();
    result = value > result ? value : result;
  }
  return result;
}

// x to integers of at most 127 in size, which `store(i, integer)` gets; returns the scale, NaN if x
// holds what is not finite.
template <class Store>
inline float quantize(const float* x, int64_t k, const Store& store) {
  const float largest = largest_magnitude(x, k);
  const bool is_finite = largest < __builtin_inff();
  if (!is_finite || largest < kSmallestRowMaximum) {
    for (int64_t i = 0; i < k; ++i) store(i, 0);
    return is_finite ? 0.0f : __builtin_nanf("");
  }
  const float inverse = 127.0f / largest;
  alignas(64) int32_t integers[Simd::kLanes];
  int64_t i = 0;
  for (; i + Simd::kLanes <= k; i += Simd::kLanes) {
    Simd::store_int(integers, Simd::to_int(Simd::mul(Simd::load(x + i), Simd::set1(inverse))));
    for (int lane = 0; lane < Simd::kLanes; ++lane) store(i + lane, integers[lane]);
  }
  for (; i < k; ++i) {
    Simd::store_int(integers, Simd::to_int(Simd::set1(x[i] * inverse)));
    store(i, integers[0]);
  }
  return largest / 127.0f;
}

inline Simd::F load_float16(const uint16_t* p) {
  // Exponents are moved by a multiplication, which also does for subnormal numbers.
  const Simd::I bits = Simd::as_int(Simd::load_bfloat16(p));
  const Simd::I magnitude =
      Simd::template shift_right_arithmetic<3>(Simd::and_int(bits, Simd::set1_int(0x7fff0000)));
  const Simd::I sign = Simd::and_int(bits, Simd::set1_int(static_cast<int32_t>(0x80000000u)));
  const Simd::F value = Simd::mul(Simd::as_float(magnitude), Simd::set1(0x1p112f));
  return Simd::as_float(Simd::or_int(Simd::as_int(value), sign));
}

inline Simd::I broadcast_bytes(const uint8_t* p) {
  int32_t word;
  __builtin_memcpy(&word, p, sizeof(word));
  return Simd::set1_int(word);
}

// A tile: kRows rows times kPanels panels side by side. out [rows, panels * 16].
struct QuantizedTile {
  const uint8_t* rows;  // the first one
  int64_t row_stride;
  const uint8_t* panels;  // the first one
  int64_t panel_stride;
  int64_t k;
  int64_t group_size;
  float* out;
  int64_t out_stride;
};

// Prepared row: float32 scale in the first 64 bytes, then 4 bytes a step (8 without kHasByteDot).
struct Int8Kernel {
  static constexpr int64_t kStepBytes = Simd::kHasByteDot ? 4 : 8;

  static int64_t prepared_row_size(int64_t k, int64_t) {
    return (kByteRow + Int8Layout::steps(k) * kStepBytes + kByteRow - 1) / kByteRow * kByteRow;
  }
  static int64_t panel_bytes(int64_t k, int64_t) { return Int8Layout::panel_bytes(k); }

  static void prepare(const float* x, int64_t k, int64_t, void* prepared) {
    auto* row = static_cast<uint8_t*>(prepared);
    uint8_t* bytes = row + kByteRow;
    const auto store = [bytes](int64_t i, int32_t value) {
      if constexpr (Simd::kHasByteDot) {
        bytes[i] = static_cast<uint8_t>(value + 128);
      } else {
        uint8_t* step = bytes + i / 4 * 8 + i % 4;
        step[0] = static_cast<uint8_t>(value < 0 ? -value : value);
        step[4] = static_cast<uint8_t>(value);
      }
    };
    for (int64_t i = k; i < Int8Layout::steps(k) * 4; ++i) store(i, 0);
    const float scale = quantize(x, k, store);
    __builtin_memcpy(row, &scale, sizeof(scale));
  }

  template <class S>  // Simd, but only one of the branches is looked at
  static typename S::I dot(typename S::I sum, const uint8_t* step, typename S::I weights) {
    if constexpr (S::kHasByteDot) {
      return S::dot_bytes(sum, broadcast_bytes(step), weights);
    } else {
      return S::dot_bytes(sum, broadcast_bytes(step),
                          S::sign_bytes(weights, broadcast_bytes(step + 4)));
    }
  }

  template <int kRows, int kPanels>
  static void multiply_tile(const QuantizedTile& tile) {
    constexpr int kVectors = kPanels * kByteVectors;
    Simd::I sums[kRows][kVectors];
#pragma GCC unroll 32
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 32
      for (int v = 0; v < kVectors; ++v) sums[r][v] = Simd::set1_int(0);
    }
    const auto panel = [&tile](int v) {
      return tile.panels + v / kByteVectors * tile.panel_stride + v % kByteVectors * kVectorBytes;
    };
    const int64_t steps = Int8Layout::steps(tile.k);
    for (int64_t step = 0; step < steps; ++step) {
      const uint8_t* x = tile.rows + kByteRow + step * kStepBytes;
#pragma GCC unroll 32
      for (int v = 0; v < kVectors; ++v) {
        const uint8_t* weights = panel(v) + Int8Layout::kHeaderBytes + step * kByteRow;
        if (v % kByteVectors == 0) __builtin_prefetch(weights + kQuantizedPrefetchBytes);
        const Simd::I w = Simd::load_int(weights);
#pragma GCC unroll 32
        for (int r = 0; r < kRows; ++r)
          sums[r][v] = dot<Simd>(sums[r][v], x + r * tile.row_stride, w);
      }
    }
#pragma GCC unroll 32
    for (int r = 0; r < kRows; ++r) {
      float row_scale;
      __builtin_memcpy(&row_scale, tile.rows + r * tile.row_stride, sizeof(row_scale));
#pragma GCC unroll 32
      for (int v = 0; v < kVectors; ++v) {
        Simd::I sum = sums[r][v];
        if constexpr (Simd::kHasByteDot) {
          sum =
              Simd::sub_int(sum, Simd::template shift_left<7>(Simd::load_int(panel(v) + kByteRow)));
        }
        const Simd::F scale = Simd::as_float(Simd::load_int(panel(v)));
        Simd::store(tile.out + r * tile.out_stride + v * Simd::kLanes,
                    Simd::mul(Simd::to_float(sum), Simd::mul(scale, Simd::set1(row_scale))));
      }
    }
  }
};

// Prepared row: for each group a scale and that times the sum of its integers (float32), padded to
// 64 bytes, then one signed byte a number.
struct Int4Kernel {
  static int64_t scales_bytes(int64_t num_groups) {
    return (num_groups * 8 + kByteRow - 1) / kByteRow * kByteRow;
  }
  static int64_t prepared_row_size(int64_t k, int64_t group_size) {
    const int64_t num_groups = Int4Layout::groups(k, group_size);
    return (scales_bytes(num_groups) + num_groups * group_size + kByteRow - 1) / kByteRow *
           kByteRow;
  }
  static int64_t panel_bytes(int64_t k, int64_t group_size) {
    return Int4Layout::panel_bytes(k, group_size);
  }

  static void prepare(const float* x, int64_t k, int64_t group_size, void* prepared) {
    auto* row = static_cast<uint8_t*>(prepared);
    const int64_t num_groups = Int4Layout::groups(k, group_size);
    for (int64_t group = 0; group < num_groups; ++group) {
      const int64_t begin = group * group_size;
      const int64_t count = k - begin < group_size ? k - begin : group_size;
      uint8_t* bytes = row + scales_bytes(num_groups) + begin;
      int32_t sum = 0;
      const float scale = quantize(x + begin, count, [&](int64_t i, int32_t value) {
        bytes[i] = static_cast<uint8_t>(value);
        sum += value;
      });
      for (int64_t i = count; i < group_size; ++i) bytes[i] = 0;
      const float pair[2] = {scale, scale * static_cast<float>(sum)};
      __builtin_memcpy(row + group * 8, pair, sizeof(pair));
    }
  }

  template <int kRows, int kPanels>
  static void multiply_tile(const QuantizedTile& tile) {
    constexpr int kVectors = kPanels * kByteVectors;
    const int64_t num_groups = Int4Layout::groups(tile.k, tile.group_size);
    const int64_t group_bytes = Int4Layout::group_bytes(tile.group_size);
    const Simd::I low_nibbles = Simd::set1_int(0x0f0f0f0f);
    Simd::F sums[kRows][kVectors];
#pragma GCC unroll 32
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 32
      for (int v = 0; v < kVectors; ++v) sums[r][v] = Simd::zero();
    }
    const uint8_t* bytes = tile.rows + scales_bytes(num_groups);
    for (int64_t group = 0; group < num_groups; ++group) {
      const uint8_t* panels = tile.panels + group * group_bytes;
      const auto panel = [&tile, panels](int v) {
        return panels + v / kByteVectors * tile.panel_stride + v % kByteVectors * kVectorBytes;
      };
      Simd::I dots[kRows][kVectors];
#pragma GCC unroll 32
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 32
        for (int v = 0; v < kVectors; ++v) dots[r][v] = Simd::set1_int(0);
      }
      // Sums of 32 numbers fit 16 bits, which some processors add up in.
      for (int64_t part = 0; part < tile.group_size / 32; ++part) {
        Simd::I small[kRows][kVectors];
#pragma GCC unroll 32
        for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 32
          for (int v = 0; v < kVectors; ++v) small[r][v] = Simd::set1_int(0);
        }
        for (int64_t i = part * 4; i < part * 4 + 4; ++i) {
#pragma GCC unroll 32
          for (int v = 0; v < kVectors; ++v) {
            const uint8_t* weights = panel(v) + kByteRow + i * kByteRow;
            if (v % kByteVectors == 0) __builtin_prefetch(weights + kQuantizedPrefetchBytes);
            const Simd::I both = Simd::load_int(weights);
            const Simd::I low = Simd::and_int(both, low_nibbles);
            const Simd::I high =
                Simd::and_int(Simd::template shift_right_arithmetic<4>(both), low_nibbles);
#pragma GCC unroll 32
            for (int r = 0; r < kRows; ++r) {
              const uint8_t* x = bytes + r * tile.row_stride + i * 8;
              small[r][v] = Simd::dot_nibbles(small[r][v], low, broadcast_bytes(x));
              small[r][v] = Simd::dot_nibbles(small[r][v], high, broadcast_bytes(x + 4));
            }
          }
        }
#pragma GCC unroll 32
        for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 32
          for (int v = 0; v < kVectors; ++v) {
            dots[r][v] = Simd::add_nibble_dots(dots[r][v], small[r][v]);
          }
        }
      }
#pragma GCC unroll 32
      for (int v = 0; v < kVectors; ++v) {
        const uint8_t* header = panels + v / kByteVectors * tile.panel_stride;
        const auto* scales =
            reinterpret_cast<const uint16_t*>(header) + v % kByteVectors * Simd::kLanes;
        const Simd::F scale = load_float16(scales);
        const Simd::F minimum = load_float16(scales + kPanelWidth);
#pragma GCC unroll 32
        for (int r = 0; r < kRows; ++r) {
          float pair[2];
          __builtin_memcpy(pair, tile.rows + r * tile.row_stride + group * 8, sizeof(pair));
          const Simd::F dot = Simd::mul(Simd::to_float(dots[r][v]), Simd::set1(pair[0]));
          sums[r][v] = Simd::fma(dot, scale, sums[r][v]);
          sums[r][v] = Simd::fma(minimum, Simd::set1(pair[1]), sums[r][v]);
        }
      }
      bytes += tile.group_size;
    }
#pragma GCC unroll 32
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 32
      for (int v = 0; v < kVectors; ++v) {
        Simd::store(tile.out + r * tile.out_stride + v * Simd::kLanes, sums[r][v]);
      }
    }
  }
};

template <class Kernel>
struct QuantizedImpl {
  static constexpr int kMaxRows = Simd::kByteTileRows;
  static constexpr int kMaxPanels = Simd::byte_panels_for(1);
  using TileFunction = void (*)(const QuantizedTile&);

  // By number of rows (1 ... kMaxRows): over as many panels as suit it, and over one.
  struct TileTable {
    TileFunction wide[kMaxRows + 1];
    TileFunction one_panel[kMaxRows + 1];
  };
  template <int kRows>
  static constexpr void fill(TileTable* table) {
    table->wide[kRows] = Kernel::template multiply_tile<kRows, Simd::byte_panels_for(kRows)>;
    table->one_panel[kRows] = Kernel::template multiply_tile<kRows, 1>;
    if constexpr (kRows > 1) fill<kRows - 1>(table);
  }
  static constexpr TileTable make_tiles() {
    TileTable table{};
    fill<kMaxRows>(&table);
    return table;
  }
  static constexpr TileTable kTiles = make_tiles();

  static void multiply_panels(const LinearTask& task, int64_t row, int64_t rows, int64_t panel,
                              int num_panels, TileFunction function) {
    alignas(64) float sums[kMaxRows * kMaxPanels * kPanelWidth];
    const int64_t panel_bytes = Kernel::panel_bytes(task.k, task.group_size);
    const int64_t width = num_panels * kPanelWidth;
    function({static_cast<const uint8_t*>(task.x) + row * task.x_stride, task.x_stride,
              static_cast<const uint8_t*>(task.weight) + panel * panel_bytes, panel_bytes, task.k,
              task.group_size, sums, width});
    const int64_t first = panel * kPanelWidth;
    const int64_t count = task.n - first < width ? task.n - first : width;
    for (int64_t r = 0; r < rows; ++r) {
      __builtin_memcpy(task.out + (row + r) * task.out_stride + first, sums + r * width,
                       static_cast<size_t>(count) * sizeof(float));
    }
  }

  // All rows over a panel before the next one: it stays in the caches.
  static void multiply(const LinearTask& task, int64_t row_begin, int64_t row_end,
                       int64_t panel_begin, int64_t panel_end) {
    // Tiles of nearly equal height: a flat last one would wait for its few chains.
    const int64_t rows = row_end - row_begin;
    const int64_t num_tiles = (rows + kMaxRows - 1) / kMaxRows;
    const int wide = Simd::byte_panels_for(static_cast<int>(rows < kMaxRows ? rows : kMaxRows));
    int64_t panel = panel_begin;
    while (panel < panel_end) {
      const int num_panels = panel + wide <= panel_end ? wide : 1;
      for (int64_t i = 0; i < num_tiles; ++i) {
        const int64_t row = row_begin + rows * i / num_tiles;
        const int64_t count = row_begin + rows * (i + 1) / num_tiles - row;
        const bool is_wide = num_panels == Simd::byte_panels_for(static_cast<int>(count));
        if (is_wide) {
          multiply_panels(task, row, count, panel, num_panels, kTiles.wide[count]);
        } else {
          for (int p = 0; p < num_panels; ++p) {
            multiply_panels(task, row, count, panel + p, 1, kTiles.one_panel[count]);
          }
        }
      }
      panel += num_panels;
    }
  }

  static constexpr LinearKernel kKernel = {Kernel::prepared_row_size, Kernel::prepare, multiply};
};

}  // namespace
}  // namespace pinfer
