// pinfer_moe: checks, and the stages of all experts together: each stage is one parallel region
// over the rows of every expert, so that a single token keeps all threads busy too.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "csrc/expert_routing.h"
#include "csrc/kernels/kernels.h"
#include "csrc/ops.h"
#include "csrc/ops_error.h"
#include "csrc/packed_weight.h"
#include "csrc/row_groups.h"
#include "csrc/scratch.h"
#include "csrc/threads/thread_pool.h"

namespace pinfer {

namespace {

// Rows (assignments) whose intermediate results are held at a time: bounds the scratch memory of
// long prompts. An expert's weights are read once for all of its rows in such a portion.
constexpr int64_t kMaxPortionRows = 4096;
constexpr int64_t kMaxPortionBytes = 64 << 20;

// Numbers below which a stage is not worth a fork-join.
constexpr int64_t kSerialCopies = 64 * 1024;
constexpr int64_t kSerialGates = 4 * 1024;  // they cost more each
constexpr int64_t kSerialSums = 32 * 1024;

struct Arguments {
  const float* x;              // [num_tokens, hidden]
  const float* router_logits;  // [num_tokens, num_experts]
  PackedWeight gate_up;        // of the first expert: [2 * intermediate, hidden]
  PackedWeight down;           // [hidden, intermediate]
  int64_t num_tokens;
  int64_t hidden;
  int64_t intermediate;
  int64_t num_experts;
  int64_t experts_per_token;
  bool normalize;
  int32_t activation;
  float* out;  // [num_tokens, hidden]
};

int32_t check(const Arguments& a) {
  PINFER_OPS_CHECK(a.num_tokens >= 0, "moe: num_tokens must be at least 0, got %lld",
                   static_cast<long long>(a.num_tokens));
  PINFER_OPS_CHECK(a.hidden >= 1 && a.intermediate >= 1,
                   "moe: hidden_size and intermediate_size must be at least 1, got %lld and %lld",
                   static_cast<long long>(a.hidden), static_cast<long long>(a.intermediate));
  PINFER_OPS_CHECK(a.num_experts >= 1, "moe: num_experts must be at least 1, got %lld",
                   static_cast<long long>(a.num_experts));
  PINFER_OPS_CHECK(a.experts_per_token >= 1 && a.experts_per_token <= a.num_experts,
                   "moe: experts_per_token must be 1 to num_experts (%lld), got %lld",
                   static_cast<long long>(a.num_experts),
                   static_cast<long long>(a.experts_per_token));
  PINFER_OPS_CHECK(a.activation >= PINFER_SILU && a.activation <= PINFER_GELU_TANH,
                   "moe: activation must be silu (0), gelu (1) or gelu_tanh (2), got %d",
                   a.activation);
  if (const int32_t error = check_weight_format("moe", a.gate_up)) return error;
  PINFER_OPS_CHECK(a.num_tokens == 0 ||
                       (a.x != nullptr && a.router_logits != nullptr && a.gate_up.data != nullptr &&
                        a.down.data != nullptr && a.out != nullptr),
                   "moe: x, router_logits, gate_up_weight, down_weight and out must not be null");
  return PINFER_OPS_OK;
}

// Kept by a thread between calls.
struct Buffers {
  Router router;
  Scratch x, groups, rows, gate_up, gated, down;
};

// One call. All rows but those of x stand in order of (expert, token).
class Experts {
 public:
  // Nothing is computed yet. Throws std::bad_alloc.
  Experts(const Arguments& arguments, Buffers* buffers);

  void run();

 private:
  // Places [begin, end) of the order.
  struct Portion {
    int64_t begin, end;
    int64_t rows() const { return end - begin; }
  };

  int64_t row_bytes(int64_t k) const {
    return is_prepared_ ? kernel_.prepared_row_size(k, a_.gate_up.group_size)
                        : k * static_cast<int64_t>(sizeof(float));
  }
  void gather(const Portion& portion);
  void multiply(const Portion& portion, const LinearTask& first_row, const PackedWeight& weights);
  void gate(const Portion& portion);
  void add_to_tokens(const Portion& portion);

  const Arguments& a_;
  Buffers* const buffers_;
  const LinearKernel& kernel_;
  const MoeKernel& moe_;
  const bool is_prepared_;
  const int64_t x_bytes_, gated_bytes_;  // of a row
  const int64_t gate_up_size_;           // numbers of a row
  int64_t max_rows_ = 0;                 // of a portion
  Routing routing_{};

  char* prepared_x_ = nullptr;
  const char* x_ = nullptr;  // [num_tokens], as the kernel takes it
  char* rows_ = nullptr;     // [max_rows]: rows of x
  float* gate_up_ = nullptr;
  char* gated_ = nullptr;  // activation(gate) * up, as the kernel takes it
  int64_t gated_stride_ = 0;
  float* down_ = nullptr;
  RowGroup* groups_ = nullptr;  // [num_experts]
};

Experts::Experts(const Arguments& arguments, Buffers* buffers)
    : a_(arguments),
      buffers_(buffers),
      kernel_(linear_kernel(a_.gate_up.dtype)),
      moe_(*kernels().moe),
      is_prepared_(kernel_.prepare != nullptr),
      x_bytes_(row_bytes(a_.hidden)),
      gated_bytes_(row_bytes(a_.intermediate)),
      gate_up_size_(2 * a_.intermediate) {
  const int64_t total = a_.num_tokens * a_.experts_per_token;
  const int64_t bytes =
      x_bytes_ + gated_bytes_ + (gate_up_size_ + a_.hidden) * static_cast<int64_t>(sizeof(float));
  const int64_t most = std::clamp(kMaxPortionBytes / bytes, kRowsPerPass, kMaxPortionRows);
  const int64_t num_portions = (total + most - 1) / most;
  max_rows_ = (total + num_portions - 1) / num_portions;

  rows_ = buffers->rows.reserve_array<char>(max_rows_ * x_bytes_);
  gate_up_ = buffers->gate_up.reserve_array<float>(max_rows_ * gate_up_size_);
  down_ = buffers->down.reserve_array<float>(max_rows_ * a_.hidden);
  groups_ = buffers->groups.reserve_array<RowGroup>(a_.num_experts);
  if (is_prepared_) {
    prepared_x_ = buffers->x.reserve_array<char>(a_.num_tokens * x_bytes_);
    x_ = prepared_x_;
    gated_ = buffers->gated.reserve_array<char>(max_rows_ * gated_bytes_);
    gated_stride_ = gated_bytes_;
  } else {
    x_ = reinterpret_cast<const char*>(a_.x);
    gated_ = reinterpret_cast<char*>(gate_up_);  // they stay where gate was
    gated_stride_ = gate_up_size_ * static_cast<int64_t>(sizeof(float));
  }
}

void Experts::run() {
  routing_ = buffers_->router.route(a_.router_logits, a_.num_tokens, a_.num_experts,
                                    a_.experts_per_token, a_.normalize);
  const int64_t group_size = a_.gate_up.group_size;
  const LinearTask gate_up = {rows_,         x_bytes_, a_.hidden,     a_.gate_up.data,
                              gate_up_size_, gate_up_, gate_up_size_, group_size};
  const LinearTask down = {gated_,    gated_stride_, a_.intermediate, a_.down.data,
                           a_.hidden, down_,         a_.hidden,       group_size};
  if (is_prepared_) prepare_rows(kernel_, gate_up, a_.x, a_.num_tokens, prepared_x_);
  const int64_t total = a_.num_tokens * a_.experts_per_token;
  for (int64_t begin = 0; begin < total; begin += max_rows_) {
    const Portion portion = {begin, std::min(begin + max_rows_, total)};
    gather(portion);
    multiply(portion, gate_up, a_.gate_up);
    gate(portion);
    multiply(portion, down, a_.down);
    add_to_tokens(portion);
  }
}

void Experts::gather(const Portion& portion) {
  const int64_t grain = std::max<int64_t>(1, kSerialCopies / a_.hidden);
  parallel_for(portion.rows(), grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      std::memcpy(rows_ + row * x_bytes_, x_ + routing_.tokens[portion.begin + row] * x_bytes_,
                  static_cast<size_t>(x_bytes_));
    }
  });
}

// `first_row` is the task of the portion's first row with the first expert's weight.
void Experts::multiply(const Portion& portion, const LinearTask& first_row,
                       const PackedWeight& weights) {
  const int64_t expert_bytes = packed_bytes(weights, first_row.n, first_row.k);
  int64_t num_groups = 0;
  for (int64_t expert = 0; expert < a_.num_experts; ++expert) {
    const int64_t begin = std::max(routing_.first_places[expert], portion.begin);
    const int64_t end = std::min(routing_.first_places[expert + 1], portion.end);
    if (begin >= end) continue;
    const int64_t row = begin - portion.begin;
    LinearTask task = first_row;
    task.x = static_cast<const char*>(task.x) + row * task.x_stride;
    task.weight = static_cast<const char*>(task.weight) + expert * expert_bytes;
    task.out += row * task.out_stride;
    groups_[num_groups++] = {task, end - begin};
  }
  multiply_groups(kernel_, groups_, num_groups);
}

void Experts::gate(const Portion& portion) {
  const int64_t grain = std::max<int64_t>(1, kSerialGates / a_.intermediate);
  const auto activate = moe_.gate[a_.activation];
  parallel_for(portion.rows(), grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      float* gate = gate_up_ + row * gate_up_size_;
      activate(gate, gate + a_.intermediate, a_.intermediate, gate);
      if (is_prepared_) {
        kernel_.prepare(gate, a_.intermediate, a_.down.group_size, gated_ + row * gated_stride_);
      }
    }
  });
}

// A token's experts in ascending order, whatever the portions are.
void Experts::add_to_tokens(const Portion& portion) {
  const int64_t k = a_.experts_per_token;
  const int64_t grain = std::max<int64_t>(1, kSerialSums / (a_.hidden * k));
  parallel_for(a_.num_tokens, grain, [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token) {
      float* sum = a_.out + token * a_.hidden;
      for (int64_t i = 0; i < k; ++i) {
        const Assignment& assignment = routing_.assignments[token * k + i];
        if (assignment.place < portion.begin || assignment.place >= portion.end) continue;
        if (i == 0) std::fill_n(sum, a_.hidden, 0.0f);
        moe_.accumulate(assignment.weight, down_ + (assignment.place - portion.begin) * a_.hidden,
                        a_.hidden, sum);
      }
    }
  });
}

int32_t moe(const Arguments& a) {
  if (const int32_t error = check(a)) return error;
  if (a.num_tokens == 0) return PINFER_OPS_OK;
  static thread_local Buffers buffers;
  Experts(a, &buffers).run();
  return PINFER_OPS_OK;
}

}  // namespace

}  // namespace pinfer

int32_t pinfer_moe(const float* x, const float* router_logits, const void* gate_up_weight,
                   const void* down_weight, int32_t weight_dtype, int64_t group_size,
                   int64_t num_tokens, int64_t hidden_size, int64_t intermediate_size,
                   int64_t num_experts, int64_t experts_per_token, int32_t normalize,
                   int32_t activation, float* out) {
  const pinfer::Arguments arguments = {x,
                                       router_logits,
                                       {gate_up_weight, weight_dtype, group_size},
                                       {down_weight, weight_dtype, group_size},
                                       num_tokens,
                                       hidden_size,
                                       intermediate_size,
                                       num_experts,
                                       experts_per_token,
                                       normalize != 0,
                                       activation,
                                       out};
  return pinfer::run_op("moe", [&] { return pinfer::moe(arguments); });
}
