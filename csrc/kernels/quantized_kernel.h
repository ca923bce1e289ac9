// Linear layers over int8 and int4 weights, for one instruction set. A row is rounded to int8 when
// it is prepared, with a scale for every 32 numbers; products of integers are exact, and scales are
// applied in float32, in ascending order of k: a row's result depends on nothing but the row and
// the weights. Included after one simd_*.h; see panel_tile.h for what may not be included here.
//
// Processors multiply unsigned bytes by signed ones. Where they do so exactly (kHasByteDot) 128 is
// added to int8 weights, and 128 times the sum of the row is taken off again. Elsewhere pairs of
// products must fit 16 bits: |weight| (at most 128) is multiplied by x (at most 127) with the
// weight's sign.
#pragma once

#include <cstdint>

#include "csrc/kernels/int8_rounding.h"
#include "csrc/kernels/prefetch.h"
#include "csrc/kernels/quantized_weight.h"
#include "csrc/kernels/store_tile.h"

namespace pinfer {
namespace {

constexpr int kByteVectors = static_cast<int>(kPanelWidth) / Simd::kLanes;  // of a panel's row
constexpr int64_t kVectorBytes = 4 * Simd::kLanes;

// How far ahead of a panel's `offset` to fetch: behind the panels' ends the next tile's panels,
// which lie behind these.
template <Fetch fetch>
inline int64_t fetch_distance(int64_t offset, int64_t panel_bytes, int num_panels) {
  const bool is_own = offset + kFetchBytes<fetch> < panel_bytes;
  return kFetchBytes<fetch> + (is_own ? 0 : (num_panels - 1) * panel_bytes);
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

inline int64_t padded_row_bytes(int64_t bytes) {
  return (bytes + kByteRow - 1) / kByteRow * kByteRow;
}

// The 4 bytes at p.
template <class T>
inline T read(const uint8_t* p) {
  T value;
  __builtin_memcpy(&value, p, sizeof(value));
  return value;
}

// Prepared row: for each group its scale (float32) and -128 times the sum of its integers (int32),
// padded to 64 bytes, then one signed byte a number.
struct Int8Kernel {
  static constexpr int64_t kStepsPerGroup = kQuantizedGroup / Int8Layout::kNumbersPerRow;

  static int64_t groups(int64_t k) { return Int8Layout::blocks(k) * 2; }
  static int64_t prepared_row_size(int64_t k, int64_t) {
    return padded_row_bytes(groups(k) * 8) + groups(k) * kQuantizedGroup;
  }
  static int64_t panel_bytes(int64_t k, int64_t) { return Int8Layout::panel_bytes(k); }

  static void prepare(const float* x, int64_t k, int64_t, void* prepared) {
    auto* scales = static_cast<uint8_t*>(prepared);
    auto* bytes = reinterpret_cast<int8_t*>(scales + padded_row_bytes(groups(k) * 8));
    __builtin_memset(bytes, 0, static_cast<size_t>(groups(k) * kQuantizedGroup));
    for (int64_t group = 0; group < groups(k); ++group) {
      const int64_t begin = group * kQuantizedGroup;
      const int64_t left = k - begin < kQuantizedGroup ? k - begin : kQuantizedGroup;
      int32_t sum = 0;
      const float scale = left <= 0 ? 0.0f : quantize(x + begin, left, bytes + begin, &sum);
      sum *= -128;
      __builtin_memcpy(scales + group * 8, &scale, sizeof(scale));
      __builtin_memcpy(scales + group * 8 + 4, &sum, sizeof(sum));
    }
  }

  // What a register of weights is multiplied as: unsigned bytes.
  template <class S>  // Simd, but only one of the branches is looked at
  static typename S::I unsigned_bytes(typename S::I weights) {
    if constexpr (S::kHasByteDot) {
      return S::xor_int(weights, S::set1_int(static_cast<int32_t>(0x80808080u)));
    } else {
      return S::abs_bytes(weights);
    }
  }
  template <class S>
  static typename S::I dot(typename S::I sum, typename S::I x, typename S::I weights,
                           typename S::I unsigned_weights) {
    if constexpr (!S::kHasByteDot) x = S::sign_bytes(x, weights);
    return S::dot_bytes(sum, unsigned_weights, x);
  }

  template <int kRows, int kPanels>
  static void multiply_tile(const QuantizedTile& tile) {
    constexpr int kVectors = kPanels * kByteVectors;
    constexpr Fetch kFetch = kRows <= 2 ? Fetch::FAR : Fetch::NEAR;  // measured
    const int64_t num_groups = groups(tile.k);
    Simd::F sums[kRows][kVectors];
#pragma GCC unroll 32
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 32
      for (int v = 0; v < kVectors; ++v) sums[r][v] = Simd::zero();
    }
    const uint8_t* x = tile.rows + padded_row_bytes(num_groups * 8);
    for (int64_t group = 0; group < num_groups; ++group) {
      const int64_t offset = group / 2 * Int8Layout::kBlockBytes;
      const int64_t ahead = fetch_distance<kFetch>(offset, tile.panel_stride, kPanels);
      const uint8_t* block = tile.panels + offset;
      const uint8_t* numbers = block + kByteRow + group % 2 * kStepsPerGroup * kByteRow;
      Simd::I dots[kRows][kVectors];
#pragma GCC unroll 32
      for (int r = 0; r < kRows; ++r) {
        const uint8_t* scale = tile.rows + r * tile.row_stride + group * 8;
        const int32_t begin = Simd::kHasByteDot ? read<int32_t>(scale + 4) : 0;
#pragma GCC unroll 32
        for (int v = 0; v < kVectors; ++v) dots[r][v] = Simd::set1_int(begin);
      }
      for (int64_t step = 0; step < kStepsPerGroup; ++step) {
        // The weights are held in registers, a row's numbers in one at a time: with the sums, that
        // is what fits.
        Simd::I weights[kVectors], unsigned_weights[kVectors];
#pragma GCC unroll 32
        for (int v = 0; v < kVectors; ++v) {
          const uint8_t* p = numbers + v / kByteVectors * tile.panel_stride +
                             v % kByteVectors * kVectorBytes + step * kByteRow;
          if (v % kByteVectors == 0) prefetch<kFetch>(p + ahead);
          weights[v] = Simd::load_int(p);
          unsigned_weights[v] = unsigned_bytes<Simd>(weights[v]);
        }
#pragma GCC unroll 32
        for (int r = 0; r < kRows; ++r) {
          const Simd::I numbers_of_row = broadcast_bytes(x + r * tile.row_stride);
#pragma GCC unroll 32
          for (int v = 0; v < kVectors; ++v) {
            dots[r][v] = dot<Simd>(dots[r][v], numbers_of_row, weights[v], unsigned_weights[v]);
          }
        }
        x += Int8Layout::kNumbersPerRow;
      }
#pragma GCC unroll 32
      for (int v = 0; v < kVectors; ++v) {
        const uint8_t* scales = block + v / kByteVectors * tile.panel_stride + group % 2 * 32;
        const Simd::F scale = Simd::load_float16(reinterpret_cast<const uint16_t*>(scales) +
                                                 v % kByteVectors * Simd::kLanes);
#pragma GCC unroll 32
        for (int r = 0; r < kRows; ++r) {
          const float x_scale = read<float>(tile.rows + r * tile.row_stride + group * 8);
          const Simd::F dot = Simd::mul(Simd::to_float(dots[r][v]), Simd::set1(x_scale));
          sums[r][v] = Simd::fma(dot, scale, sums[r][v]);
        }
      }
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

// Prepared row: for each 32 numbers their scale (float32), and for each group of weights the sum of
// scale * integer (float32), padded to 64 bytes together; then one signed byte a number.
struct Int4Kernel {
  static int64_t num_parts(int64_t k, int64_t group_size) {
    return Int4Layout::blocks(k, group_size) * (group_size / kQuantizedGroup);
  }
  static int64_t scales_bytes(int64_t k, int64_t group_size) {
    return padded_row_bytes(4 * (num_parts(k, group_size) + Int4Layout::blocks(k, group_size)));
  }
  static int64_t prepared_row_size(int64_t k, int64_t group_size) {
    return padded_row_bytes(scales_bytes(k, group_size) +
                            num_parts(k, group_size) * kQuantizedGroup);
  }
  static int64_t panel_bytes(int64_t k, int64_t group_size) {
    return Int4Layout::panel_bytes(k, group_size);
  }

  static void prepare(const float* x, int64_t k, int64_t group_size, void* prepared) {
    auto* row = static_cast<uint8_t*>(prepared);
    auto* bytes = reinterpret_cast<int8_t*>(row + scales_bytes(k, group_size));
    const int64_t parts = num_parts(k, group_size), parts_per_group = group_size / kQuantizedGroup;
    __builtin_memset(bytes, 0, static_cast<size_t>(parts * kQuantizedGroup));
    float group_sum = 0;
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t begin = part * kQuantizedGroup;
      const int64_t left = k - begin < kQuantizedGroup ? k - begin : kQuantizedGroup;
      int32_t sum = 0;
      const float scale = left <= 0 ? 0.0f : quantize(x + begin, left, bytes + begin, &sum);
      __builtin_memcpy(row + part * 4, &scale, sizeof(scale));
      group_sum += scale * static_cast<float>(sum);
      if ((part + 1) % parts_per_group == 0) {
        __builtin_memcpy(row + (parts + part / parts_per_group) * 4, &group_sum, sizeof(group_sum));
        group_sum = 0;
      }
    }
  }

  template <int kRows, int kPanels>
  static void multiply_tile(const QuantizedTile& tile) {
    if (tile.group_size == kQuantizedGroup) {
      multiply_groups<kRows, kPanels, true>(tile);
    } else {
      multiply_groups<kRows, kPanels, false>(tile);
    }
  }

  // is_one_part: groups of weights are those of x. The sums are the same without it.
  template <int kRows, int kPanels, bool is_one_part>
  static void multiply_groups(const QuantizedTile& tile) {
    constexpr int kVectors = kPanels * kByteVectors;
    constexpr Fetch kFetch = kRows == 1 ? Fetch::FAR : Fetch::NEAR;  // measured
    constexpr int64_t kRowsPerPart = kQuantizedGroup / Int4Layout::kNumbersPerRow;
    const int64_t num_groups = Int4Layout::blocks(tile.k, tile.group_size);
    const int64_t parts = num_parts(tile.k, tile.group_size);
    const int64_t group_size = is_one_part ? kQuantizedGroup : tile.group_size;
    const int64_t parts_per_group = group_size / kQuantizedGroup;
    const int64_t block_bytes = Int4Layout::block_bytes(group_size);
    const Simd::I low_nibbles = Simd::set1_int(0x0f0f0f0f);
    Simd::F sums[kRows][kVectors];
#pragma GCC unroll 32
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 32
      for (int v = 0; v < kVectors; ++v) sums[r][v] = Simd::zero();
    }
    const uint8_t* x = tile.rows + scales_bytes(tile.k, tile.group_size);
    for (int64_t group = 0; group < num_groups; ++group) {
      const int64_t ahead = fetch_distance<kFetch>(group * block_bytes, tile.panel_stride, kPanels);
      const uint8_t* block = tile.panels + group * block_bytes;
      if constexpr (kFetch == Fetch::FAR) {  // the scales
#pragma GCC unroll 32
        for (int p = 0; p < kPanels; ++p) prefetch<kFetch>(block + p * tile.panel_stride + ahead);
      }
      Simd::F group_dots[kRows][kVectors];
      if constexpr (!is_one_part) {
#pragma GCC unroll 32
        for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 32
          for (int v = 0; v < kVectors; ++v) group_dots[r][v] = Simd::zero();
        }
      }
      for (int64_t part = 0; part < parts_per_group; ++part) {
        const uint8_t* nibbles = block + kByteRow + part * kRowsPerPart * kByteRow;
        Simd::I dots[kRows][kVectors];
#pragma GCC unroll 32
        for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 32
          for (int v = 0; v < kVectors; ++v) dots[r][v] = Simd::set1_int(0);
        }
        for (int64_t i = 0; i < kRowsPerPart; ++i) {
          Simd::I low[kVectors], high[kVectors];
#pragma GCC unroll 32
          for (int v = 0; v < kVectors; ++v) {
            const uint8_t* p = nibbles + v / kByteVectors * tile.panel_stride +
                               v % kByteVectors * kVectorBytes + i * kByteRow;
            if (v % kByteVectors == 0) prefetch<kFetch>(p + ahead);
            const Simd::I both = Simd::load_int(p);
            low[v] = Simd::and_int(both, low_nibbles);
            high[v] = Simd::and_int(Simd::template shift_right_arithmetic<4>(both), low_nibbles);
          }
#pragma GCC unroll 32
          for (int r = 0; r < kRows; ++r) {
            const uint8_t* numbers = x + r * tile.row_stride;
            const Simd::I first = broadcast_bytes(numbers), second = broadcast_bytes(numbers + 4);
#pragma GCC unroll 32
            for (int v = 0; v < kVectors; ++v) {
              dots[r][v] = Simd::dot_nibbles(dots[r][v], low[v], first);
              dots[r][v] = Simd::dot_nibbles(dots[r][v], high[v], second);
            }
          }
          x += Int4Layout::kNumbersPerRow;
        }
#pragma GCC unroll 32
        for (int r = 0; r < kRows; ++r) {
          const float x_scale =
              read<float>(tile.rows + r * tile.row_stride + (group * parts_per_group + part) * 4);
#pragma GCC unroll 32
          for (int v = 0; v < kVectors; ++v) {
            const Simd::F dot = Simd::to_float(Simd::nibble_sums(dots[r][v]));
            group_dots[r][v] = is_one_part ? Simd::mul(dot, Simd::set1(x_scale))
                                           : Simd::fma(dot, Simd::set1(x_scale), group_dots[r][v]);
          }
        }
      }
#pragma GCC unroll 32
      for (int v = 0; v < kVectors; ++v) {
        const auto* scales =
            reinterpret_cast<const uint16_t*>(block + v / kByteVectors * tile.panel_stride) +
            v % kByteVectors * Simd::kLanes;
        const Simd::F scale = Simd::load_float16(scales);
        const Simd::F minimum = Simd::load_float16(scales + kPanelWidth);
#pragma GCC unroll 32
        for (int r = 0; r < kRows; ++r) {
          const float x_sum = read<float>(tile.rows + r * tile.row_stride + (parts + group) * 4);
          sums[r][v] = Simd::fma(group_dots[r][v], scale, sums[r][v]);
          sums[r][v] = Simd::fma(minimum, Simd::set1(x_sum), sums[r][v]);
        }
      }
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

  // Sizes of tiles: 1, 2, 4 panels side by side. by_size[i][rows] over 2^i panels, up to those that
  // suit that number of rows.
  static constexpr int kMaxSizes = 3;
  struct TileTable {
    TileFunction by_size[kMaxSizes][kMaxRows + 1];
  };
  template <int kRows, int kSize = 0>
  static constexpr void fill(TileTable* table) {
    static_assert(kSize < kMaxSizes);
    table->by_size[kSize][kRows] = Kernel::template multiply_tile<kRows, 1 << kSize>;
    if constexpr (2 << kSize <= Simd::byte_panels_for(kRows)) {
      fill<kRows, kSize + 1>(table);
    } else if constexpr (kRows > 1) {
      fill<kRows - 1>(table);
    }
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
    store_tile(sums, width, rows, task.n - first < width ? task.n - first : width,
               task.out + row * task.out_stride + first, task.out_stride);
  }

  // All rows over a panel before the next one: it stays in the caches.
  static void multiply(const LinearTask& task, int64_t row_begin, int64_t row_end,
                       int64_t panel_begin, int64_t panel_end) {
    // Tiles of nearly equal height: a flat last one would wait for its few chains.
    const int64_t rows = row_end - row_begin;
    const int64_t num_tiles = (rows + kMaxRows - 1) / kMaxRows;
    const int tallest = static_cast<int>((rows + num_tiles - 1) / num_tiles);
    int size = __builtin_ctz(Simd::byte_panels_for(tallest));
    for (int64_t panel = panel_begin; panel < panel_end; panel += 1 << size) {
      while (panel + (1 << size) > panel_end) --size;
      for (int64_t i = 0; i < num_tiles; ++i) {
        const int64_t row = row_begin + rows * i / num_tiles;
        const int64_t count = row_begin + rows * (i + 1) / num_tiles - row;
        multiply_panels(task, row, count, panel, 1 << size, kTiles.by_size[size][count]);
      }
    }
  }

  static constexpr LinearKernel kKernel = {Kernel::prepared_row_size, Kernel::prepare, multiply};
};

}  // namespace
}  // namespace pinfer
