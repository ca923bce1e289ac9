// Paged attention for one instruction set: a handful of rows (query, head) that share a kv head,
// over partitions of the context. See kernels.h for the contract and the layouts.
//
// Exactness: a row's numbers are combined in an order that only positions decide. Scores are one
// chain of multiply-adds over head_dim, values one chain over positions; the softmax is taken per
// partition, and partitions are merged in ascending order. Positions outside a row's range are
// skipped, never multiplied by zero: recycled blocks may hold NaN.
#pragma once

#include "csrc/kernels/exp_kernel.h"
#include "csrc/kernels/int8_rounding.h"
#include "csrc/kernels/panel_tile.h"

namespace pinfer {
namespace {

constexpr int64_t kGroup = kPanelWidth;  // tokens of a K tile
constexpr int64_t kGroups = kPartitionSize / kGroup;
constexpr int64_t kLineBytes = 64;  // of a cache

// Numbers of the cache: how V is read, and whether tiles begin with a scale for each token.
struct Float32Values {
  using Element = float;
  static constexpr bool kScaled = false;
  static Simd::F load(const Element* p) { return Simd::load(p); }
  static float to_float(Element x) { return x; }
  static Element from_float(float x) { return x; }
};

struct BFloat16Values {
  using Element = uint16_t;
  static constexpr bool kScaled = false;
  static Simd::F load(const Element* p) { return Simd::load_bfloat16(p); }
  static Element from_float(float x) { return to_bfloat16(x); }
};

// Rows are multiplied in float32; a token's scale is applied to its score and to its weight.
struct Int8Values {
  using Element = int8_t;
  static constexpr bool kScaled = true;
  static Simd::F load(const Element* p) { return Simd::load_int8(p); }
};

struct Int8Panel : FloatPanel<false> {
  using Element = int8_t;
  using TilePanel = Int8Panel;
  template <int phase>
  static W load(const Element* p) {
    return Simd::load_int8(p);
  }
};

inline int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }

inline Simd::F tanh_from_exp(Simd::F x) {
  // 1 - 2 / (exp(2x) + 1): absolute error near that of a float, which a soft cap needs no better.
  const Simd::F e = exp_float(Simd::add(x, x));
  return Simd::sub(Simd::set1(1.0f), Simd::div(Simd::set1(2.0f), Simd::add(e, Simd::set1(1.0f))));
}

// x where position first + lane is in [begin, end), else `otherwise`.
inline Simd::F keep_inside(Simd::F x, int64_t first, int64_t begin, int64_t end,
                           Simd::F otherwise) {
  if (first >= begin && first + Simd::kLanes <= end) return x;
  const auto all = [](int64_t value) { return Simd::set1_int(static_cast<int32_t>(value)); };
  const Simd::I position = Simd::add_int(all(first), Simd::lane_index());
  x = Simd::select(Simd::greater_int(all(begin), position), otherwise, x);
  return Simd::select(Simd::greater_int(position, all(end - 1)), otherwise, x);
}

// Scores of one row and partition, in place: scaled, capped, turned into exp(score - maximum).
// Only [begin, end) counts; lanes around it are left undefined or zero.
inline void softmax_row(const AttentionTask& task, int64_t begin, int64_t end, float* scores,
                        float* maximum, float* sum) {
  using F = Simd::F;
  const int64_t first = begin / Simd::kLanes * Simd::kLanes;
  const F minus_infinity = Simd::set1(-__builtin_inff());
  const F scale = Simd::set1(task.scale);
  const F cap = Simd::set1(task.logit_softcap);
  F highest = minus_infinity;
  for (int64_t j = first; j < end; j += Simd::kLanes) {
    F s = Simd::mul(Simd::load(scores + j), scale);
    if (task.logit_softcap != 0) s = Simd::mul(tanh_from_exp(Simd::div(s, cap)), cap);
    Simd::store(scores + j, s);
    // A NaN is passed over here and comes back with exp.
    highest = Simd::max(keep_inside(s, j, begin, end, minus_infinity), highest);
  }
  *maximum = Simd::reduce_max(highest);
  const F offset = Simd::set1(*maximum);
  const F negligible = Simd::set1(-87.0f);  // below, exp is denormal: slow, and too small to count
  F total = Simd::zero();
  for (int64_t j = first; j < end; j += Simd::kLanes) {
    const F difference = Simd::sub(Simd::load(scores + j), offset);
    F e = exp_float(difference);
    e = Simd::select(Simd::less(difference, negligible), Simd::zero(), e);
    e = keep_inside(e, j, begin, end, Simd::zero());
    Simd::store(scores + j, e);
    total = Simd::add(total, e);
  }
  *sum = Simd::reduce_add(total);
}

template <class Panel, class Values>
struct AttentionImpl {
  using X = typename Panel::X;
  using KElement = typename Panel::Element;
  using VElement = typename Values::Element;

  static constexpr int64_t kScaleBytes =
      Values::kScaled ? kGroup * static_cast<int64_t>(sizeof(float)) : 0;  // of a tile

  // Where the 16-token groups of a partition lie.
  struct Groups {
    const KElement* k[kGroups];
    const VElement* v[kGroups];
  };

  static int64_t k_tile_bytes(int64_t head_dim) {
    return kScaleBytes +
           Panel::steps(head_dim) * Panel::kElements * static_cast<int64_t>(sizeof(KElement));
  }
  static int64_t v_tile_bytes(int64_t head_dim) {
    return kScaleBytes + kGroup * head_dim * static_cast<int64_t>(sizeof(VElement));
  }

  // The scales in front of a tile's numbers.
  template <class Element>
  static const float* scales_of(const Element* tile) {
    return reinterpret_cast<const float*>(reinterpret_cast<const char*>(tile) - kScaleBytes);
  }

  static void write(const float* k, const float* v, int64_t head_dim, int64_t offset, void* k_block,
                    void* v_block) {
    constexpr int64_t kPerStep = Panel::kElements / kGroup;  // numbers of one token side by side
    const int64_t token = offset % kGroup;
    char* k_tile = static_cast<char*>(k_block) + offset / kGroup * k_tile_bytes(head_dim);
    char* v_tile = static_cast<char*>(v_block) + offset / kGroup * v_tile_bytes(head_dim);
    KElement* k_row = reinterpret_cast<KElement*>(k_tile + kScaleBytes) + token * kPerStep;
    VElement* v_row = reinterpret_cast<VElement*>(v_tile + kScaleBytes) + token * head_dim;
    const auto k_place = [k_row](int64_t d) -> KElement& {
      return k_row[d / kPerStep * Panel::kElements + d % kPerStep];
    };
    if constexpr (Values::kScaled) {
      int8_t integers[kMaxHeadDim];
      int32_t sum;
      reinterpret_cast<float*>(k_tile)[token] = quantize(k, head_dim, integers, &sum);
      for (int64_t d = 0; d < head_dim; ++d) k_place(d) = integers[d];
      reinterpret_cast<float*>(v_tile)[token] = quantize(v, head_dim, v_row, &sum);
    } else {
      for (int64_t d = 0; d < head_dim; ++d) k_place(d) = Values::from_float(k[d]);
      for (int64_t d = 0; d < head_dim; ++d) v_row[d] = Values::from_float(v[d]);
    }
  }

  // scores[group * 16 + i] *= the scale of that token, for tiles of K or of V. Tokens that were
  // never written may have any scale: what stands in their lanes is not used.
  template <class Element>
  static void apply_scales(const Element* const* tiles, int64_t group_begin, int64_t group_end,
                           float* scores) {
    for (int64_t g = group_begin; g < group_end; ++g) {
      const float* scales = scales_of(tiles[g]);
      for (int64_t i = 0; i < kGroup; i += Simd::kLanes) {
        float* score = scores + g * kGroup + i;
        Simd::store(score, Simd::mul(Simd::load(score), Simd::load(scales + i)));
      }
    }
  }

  static void find_groups(const AttentionTask& task, int64_t first_position, int64_t group_begin,
                          int64_t group_end, Groups* groups) {
    const int64_t k_bytes = k_tile_bytes(task.head_dim), v_bytes = v_tile_bytes(task.head_dim);
    const int64_t per_block = task.block_size / kGroup;
    for (int64_t g = group_begin; g < group_end; ++g) {
      const int64_t group = first_position / kGroup + g;
      const int64_t block = task.block_table[group / per_block];
      const int64_t tile =
          (block * task.num_kv_heads + task.kv_head) * per_block + group % per_block;
      groups->k[g] = reinterpret_cast<const KElement*>(static_cast<const char*>(task.k_cache) +
                                                       tile * k_bytes + kScaleBytes);
      groups->v[g] = reinterpret_cast<const VElement*>(static_cast<const char*>(task.v_cache) +
                                                       tile * v_bytes + kScaleBytes);
    }
  }

  // A tile of K or of V, with its scales if it has some.
  template <class Element>
  static void fetch_tile(const Element* tile, int64_t bytes) {
    const char* begin = reinterpret_cast<const char*>(tile) - kScaleBytes;
    for (int64_t i = 0; i < bytes; i += kLineBytes) prefetch<Fetch::FAR>(begin + i);
  }

  // scores[row, group * 16 + i] for rows [row, row + r). from_memory: nobody has read these tiles
  // in this step; the next ones of K and those of V are fetched meanwhile.
  static void score_rows(const AttentionTask& task, const X* q, int64_t q_stride, int r,
                         const Groups& groups, int64_t group_begin, int64_t group_end,
                         bool from_memory, float* scores) {
    constexpr const TileTable<Panel>& tiles = kTiles<Panel, Prefetch::NONE>;
    const int64_t steps = Panel::steps(task.head_dim);
    const int64_t k_bytes = k_tile_bytes(task.head_dim), v_bytes = v_tile_bytes(task.head_dim);
    int size = largest_tile_size(r);
    for (int64_t g = group_begin; g < group_end; g += 1 << size) {
      while (g + (1 << size) > group_end) --size;
      if (from_memory) {
        const int64_t stop = min64(g + (2 << size), group_end);
        for (int64_t i = g + (1 << size); i < stop; ++i) fetch_tile(groups.k[i], k_bytes);
        for (int64_t i = g; i < g + (1 << size); ++i) fetch_tile(groups.v[i], v_bytes);
      }
      tiles.by_size[size][r](
          {q, q_stride, groups.k + g, steps, false, scores + g * kGroup, kPartitionSize});
    }
  }

  // sums[row, 0 ... kVectors) += weights[row, t] * V[t, d ...] for positions [begin, end).
  template <int kRows, int kVectors>
  static void add_values(const float* weights, const Groups& groups, int64_t head_dim, int64_t d,
                         int64_t begin, int64_t end, float* sums, int64_t sums_stride) {
    Simd::F acc[kRows][kVectors];
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (int c = 0; c < kVectors; ++c) {
        acc[r][c] = Simd::load(sums + r * sums_stride + d + c * Simd::kLanes);
      }
    }
    for (int64_t t = begin; t < end;) {
      const int64_t stop = min64(end, (t / kGroup + 1) * kGroup);
      const VElement* v = groups.v[t / kGroup] + t % kGroup * head_dim + d;
      for (; t < stop; ++t, v += head_dim) {
        // The smaller side is held in registers (see multiply_phase).
        if constexpr (kRows < kVectors) {
          Simd::F weight[kRows];
#pragma GCC unroll 16
          for (int r = 0; r < kRows; ++r) weight[r] = Simd::set1(weights[r * kPartitionSize + t]);
#pragma GCC unroll 16
          for (int c = 0; c < kVectors; ++c) {
            const Simd::F values = Values::load(v + c * Simd::kLanes);
#pragma GCC unroll 16
            for (int r = 0; r < kRows; ++r) acc[r][c] = Simd::fma(weight[r], values, acc[r][c]);
          }
        } else {
          Simd::F values[kVectors];
#pragma GCC unroll 16
          for (int c = 0; c < kVectors; ++c) values[c] = Values::load(v + c * Simd::kLanes);
#pragma GCC unroll 16
          for (int r = 0; r < kRows; ++r) {
            const Simd::F weight = Simd::set1(weights[r * kPartitionSize + t]);
#pragma GCC unroll 16
            for (int c = 0; c < kVectors; ++c) acc[r][c] = Simd::fma(weight, values[c], acc[r][c]);
          }
        }
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (int c = 0; c < kVectors; ++c) {
        Simd::store(sums + r * sums_stride + d + c * Simd::kLanes, acc[r][c]);
      }
    }
  }

  // The last, partly filled vector of head_dim: values are copied, so that nothing behind the cache
  // is read.
  static void add_last_values(const float* weights, const Groups& groups, int64_t head_dim,
                              int64_t d, int64_t begin, int64_t end, float* sums) {
    VElement padded[Simd::kLanes] = {};
    Simd::F acc = Simd::load(sums + d);
    for (int64_t t = begin; t < end; ++t) {
      const VElement* v = groups.v[t / kGroup] + t % kGroup * head_dim + d;
      __builtin_memcpy(padded, v, static_cast<size_t>(head_dim - d) * sizeof(VElement));
      acc = Simd::fma(Simd::set1(weights[t]), Values::load(padded), acc);
    }
    Simd::store(sums + d, acc);
  }

  // Values of kRows rows over one range of positions, all of head_dim.
  template <int kRows>
  static void add_values_rows(const float* weights, const Groups& groups, int64_t head_dim,
                              int64_t begin, int64_t end, float* sums, int64_t sums_stride) {
    constexpr int kWide = Simd::panels_for(kRows) * kPanelVectors;
    int64_t d = 0;
    for (; d + kWide * Simd::kLanes <= head_dim; d += kWide * Simd::kLanes) {
      add_values<kRows, kWide>(weights, groups, head_dim, d, begin, end, sums, sums_stride);
    }
    for (; d + Simd::kLanes <= head_dim; d += Simd::kLanes) {
      add_values<kRows, 1>(weights, groups, head_dim, d, begin, end, sums, sums_stride);
    }
    if (d == head_dim) return;
    for (int r = 0; r < kRows; ++r) {
      add_last_values(weights + r * kPartitionSize, groups, head_dim, d, begin, end,
                      sums + r * sums_stride);
    }
  }

  using ValuesFunction = void (*)(const float*, const Groups&, int64_t, int64_t, int64_t, float*,
                                  int64_t);
  struct ValuesTable {
    ValuesFunction by_rows[Simd::kTileRows + 1];
  };
  template <int kRows>
  static constexpr void fill_values_table(ValuesTable* table) {
    table->by_rows[kRows] = add_values_rows<kRows>;
    if constexpr (kRows > 1) fill_values_table<kRows - 1>(table);
  }
  static constexpr ValuesTable make_values_table() {
    ValuesTable table{};
    fill_values_table<Simd::kTileRows>(&table);
    return table;
  }

  // One partition for rows [0, r) of a tile; begin and end are relative to the partition.
  static void attend_tile(const AttentionTask& task, const X* q, int64_t q_stride, int r,
                          const int64_t* begin, const int64_t* end, const Groups& groups,
                          float* scores, float* partial) {
    static constexpr ValuesTable kValues = make_values_table();
    const int64_t state_size = attention_state_size(task.head_dim);
    int64_t lowest = kPartitionSize, highest = 0;           // of any row
    int64_t common_begin = 0, common_end = kPartitionSize;  // of all rows
    for (int i = 0; i < r; ++i) {
      if (begin[i] < end[i]) {
        lowest = min64(lowest, begin[i]);
        highest = max64(highest, end[i]);
      }
      common_begin = max64(common_begin, begin[i]);
      common_end = min64(common_end, end[i]);
    }
    for (int i = 0; i < r; ++i) {
      float* state = partial + i * state_size;
      __builtin_memset(state, 0, static_cast<size_t>(state_size) * sizeof(float));
    }
    if (lowest >= highest) return;
    score_rows(task, q, q_stride, r, groups, lowest / kGroup, (highest + kGroup - 1) / kGroup,
               task.num_rows <= Simd::kTileRows, scores);
    for (int i = 0; i < r; ++i) {
      if (begin[i] >= end[i]) continue;
      float* state = partial + i * state_size;
      float* row = scores + i * kPartitionSize;
      const int64_t group_begin = begin[i] / kGroup, group_end = (end[i] + kGroup - 1) / kGroup;
      if constexpr (Values::kScaled) apply_scales(groups.k, group_begin, group_end, row);
      softmax_row(task, begin[i], end[i], row, &state[0], &state[1]);
      if constexpr (Values::kScaled) apply_scales(groups.v, group_begin, group_end, row);
    }
    // Rows differ at the ends of their ranges: there each is alone, in between they share loads.
    float* sums = partial + kStateHeader;
    const bool has_common = common_begin < common_end;
    for (int i = 0; i < r; ++i) {
      const int64_t stop = has_common ? common_begin : end[i];
      if (begin[i] < stop) {
        kValues.by_rows[1](scores + i * kPartitionSize, groups, task.head_dim, begin[i], stop,
                           sums + i * state_size, state_size);
      }
    }
    if (!has_common) return;
    kValues.by_rows[r](scores, groups, task.head_dim, common_begin, common_end, sums, state_size);
    for (int i = 0; i < r; ++i) {
      if (common_end < end[i]) {
        kValues.by_rows[1](scores + i * kPartitionSize, groups, task.head_dim, common_end, end[i],
                           sums + i * state_size, state_size);
      }
    }
  }

  static void attend(const AttentionTask& task, int64_t partition_begin, int64_t partition_end,
                     float* states) {
    constexpr int64_t kMaxQSize = (kMaxHeadDim + 1) * static_cast<int64_t>(sizeof(float));
    alignas(64) unsigned char q_buffer[kMaxAttentionRows * kMaxQSize];
    alignas(64) float scores[Simd::kTileRows * kPartitionSize];
    alignas(64) float partial[Simd::kTileRows * attention_state_size(kMaxHeadDim)];
    X* q = reinterpret_cast<X*>(q_buffer);
    const int64_t q_stride = Panel::steps(task.head_dim) * Panel::kXStep;
    const int64_t state_size = attention_state_size(task.head_dim);
    for (int i = 0; i < task.num_rows; ++i) {
      Panel::prepare(task.q[i], task.head_dim, q + i * q_stride);
    }
    __builtin_memset(states, 0, static_cast<size_t>(task.num_rows * state_size) * sizeof(float));
    for (int64_t partition = partition_begin; partition < partition_end; ++partition) {
      const int64_t first = partition * kPartitionSize;
      int64_t begin[kMaxAttentionRows], end[kMaxAttentionRows];
      int64_t lowest = kPartitionSize, highest = 0;
      for (int i = 0; i < task.num_rows; ++i) {
        begin[i] = max64(task.begin[i] - first, 0);
        end[i] = min64(task.end[i] - first, kPartitionSize);
        if (begin[i] >= end[i]) continue;
        lowest = min64(lowest, begin[i]);
        highest = max64(highest, end[i]);
      }
      if (lowest >= highest) continue;
      Groups groups;
      find_groups(task, first, lowest / kGroup, (highest + kGroup - 1) / kGroup, &groups);
      for (int i = 0; i < task.num_rows; i += Simd::kTileRows) {
        const int r = task.num_rows - i < Simd::kTileRows ? task.num_rows - i : Simd::kTileRows;
        attend_tile(task, q + i * q_stride, q_stride, r, begin + i, end + i, groups, scores,
                    partial);
        for (int j = 0; j < r; ++j) {
          merge(partial + j * state_size, task.head_dim, states + (i + j) * state_size);
        }
      }
    }
  }

  static void merge(const float* later, int64_t head_dim, float* state) {
    if (later[1] == 0) return;
    const int64_t state_size = attention_state_size(head_dim);
    if (state[1] == 0) {
      __builtin_memcpy(state, later, static_cast<size_t>(state_size) * sizeof(float));
      return;
    }
    const float maximum = state[0] > later[0] ? state[0] : later[0];
    const Simd::F old_scale = exp_float(Simd::set1(state[0] - maximum));
    const Simd::F new_scale = exp_float(Simd::set1(later[0] - maximum));
    float scales[2][Simd::kLanes];
    Simd::store(scales[0], old_scale);
    Simd::store(scales[1], new_scale);
    state[0] = maximum;
    state[1] = state[1] * scales[0][0] + later[1] * scales[1][0];
    for (int64_t i = kStateHeader; i < state_size; i += Simd::kLanes) {
      const Simd::F scaled = Simd::mul(Simd::load(later + i), new_scale);
      Simd::store(state + i, Simd::fma(Simd::load(state + i), old_scale, scaled));
    }
  }

  static void finish(const float* state, int64_t head_dim, float* out) {
    for (int64_t d = 0; d < head_dim; ++d) out[d] = state[kStateHeader + d] / state[1];
  }
};

using AttentionFloat32 = AttentionImpl<Float32Panel, Float32Values>;
using AttentionBFloat16 = AttentionImpl<BestBFloat16Panel, BFloat16Values>;
using AttentionInt8 = AttentionImpl<Int8Panel, Int8Values>;

constexpr AttentionKernel kAttentionFloat32 = {AttentionFloat32::write, AttentionFloat32::attend,
                                               AttentionFloat32::merge, AttentionFloat32::finish};
constexpr AttentionKernel kAttentionBFloat16 = {AttentionBFloat16::write, AttentionBFloat16::attend,
                                                AttentionBFloat16::merge,
                                                AttentionBFloat16::finish};
constexpr AttentionKernel kAttentionInt8 = {AttentionInt8::write, AttentionInt8::attend,
                                            AttentionInt8::merge, AttentionInt8::finish};

}  // namespace
}  // namespace pinfer
