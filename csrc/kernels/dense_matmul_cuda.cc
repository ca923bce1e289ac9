#include "csrc/kernels/dense_matmul_cuda.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>

#include "csrc/kernels/checks_cuda.h"

namespace pinfer::cuda {

namespace {

// cublasLt.h and library_types.h, as far as it is used here.
using Handle = void*;
using Descriptor = void*;
constexpr int kReal32F = 0, kReal16F = 2, kReal16BF = 14;  // cudaDataType_t
constexpr int kCompute32F = 68;                            // cublasComputeType_t
constexpr int32_t kTransposed = 1;                         // cublasOperation_t
constexpr int kDescriptorTransA = 3;                       // cublasLtMatmulDescAttributes_t
constexpr int kPreferenceWorkspace = 1;                    // cublasLtMatmulPreferenceAttributes_t
constexpr int kPreferenceAlignment = 5;                    // of A; B, C and D follow
struct Algorithm {
  uint64_t data[8];
};
struct HeuristicResult {
  Algorithm algorithm;
  size_t workspace_bytes;
  int state;
  float waves;
  int reserved[4];
};

constexpr size_t kMaxAlgorithms = 4096;  // remembered

}  // namespace

struct DenseMatmul::Library {
  // Shape, strides, dtypes, alignment, workspace.
  using Key = std::array<int64_t, 10>;

  void* library = nullptr;
  Handle handle = nullptr;
  std::map<Key, Algorithm> algorithms;

  size_t (*get_version)() = nullptr;
  int (*create)(Handle*) = nullptr;
  int (*destroy)(Handle) = nullptr;
  int (*create_product)(Descriptor*, int, int) = nullptr;
  int (*set_product)(Descriptor, int, const void*, size_t) = nullptr;
  int (*destroy_product)(Descriptor) = nullptr;
  int (*create_layout)(Descriptor*, int, uint64_t, uint64_t, int64_t) = nullptr;
  int (*destroy_layout)(Descriptor) = nullptr;
  int (*create_preference)(Descriptor*) = nullptr;
  int (*set_preference)(Descriptor, int, const void*, size_t) = nullptr;
  int (*destroy_preference)(Descriptor) = nullptr;
  int (*find_algorithms)(Handle, Descriptor, Descriptor, Descriptor, Descriptor, Descriptor,
                         Descriptor, int, HeuristicResult*, int*) = nullptr;
  int (*multiply)(Handle, Descriptor, const void*, const void*, Descriptor, const void*, Descriptor,
                  const void*, const void*, Descriptor, void*, Descriptor, const Algorithm*, void*,
                  size_t, void*) = nullptr;

  ~Library() {
    if (handle != nullptr) destroy(handle);
    if (library != nullptr) dlclose(library);
  }

  // The name of a function that is missing, or null.
  const char* find_functions() {
    const char* missing = nullptr;
    const auto find = [&](const char* name, auto* function) {
      void* symbol = dlsym(library, name);
      if (symbol == nullptr && missing == nullptr) missing = name;
      std::memcpy(function, &symbol, sizeof(symbol));
    };
    find("cublasLtGetVersion", &get_version);
    find("cublasLtCreate", &create);
    find("cublasLtDestroy", &destroy);
    find("cublasLtMatmulDescCreate", &create_product);
    find("cublasLtMatmulDescSetAttribute", &set_product);
    find("cublasLtMatmulDescDestroy", &destroy_product);
    find("cublasLtMatrixLayoutCreate", &create_layout);
    find("cublasLtMatrixLayoutDestroy", &destroy_layout);
    find("cublasLtMatmulPreferenceCreate", &create_preference);
    find("cublasLtMatmulPreferenceSetAttribute", &set_preference);
    find("cublasLtMatmulPreferenceDestroy", &destroy_preference);
    find("cublasLtMatmulAlgoGetHeuristic", &find_algorithms);
    find("cublasLtMatmul", &multiply);
    return missing;
  }
};

namespace {

// The descriptors of one product; destroyed with it.
struct Product {
  const DenseMatmul::Library& lt;
  Descriptor product = nullptr, a = nullptr, b = nullptr, c = nullptr, preference = nullptr;

  explicit Product(const DenseMatmul::Library& library) : lt(library) {}
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;
  ~Product() {
    if (preference != nullptr) lt.destroy_preference(preference);
    for (Descriptor layout : {a, b, c}) {
      if (layout != nullptr) lt.destroy_layout(layout);
    }
    if (product != nullptr) lt.destroy_product(product);
  }

  // Row-major out = x * weight^T is, column by column, out^T = weight * x^T.
  int describe(const DenseMatmul::Task& task) {
    const int type = task.dtype == PINFER_BFLOAT16 ? kReal16BF : kReal16F;
    const int out_type = task.out_dtype == PINFER_FLOAT32 ? kReal32F : type;
    const auto k = static_cast<uint64_t>(task.in_features);
    const auto n = static_cast<uint64_t>(task.out_features);
    const auto rows = static_cast<uint64_t>(task.num_tokens);
    int status = lt.create_product(&product, kCompute32F, kReal32F);
    if (status == 0) {
      status = lt.set_product(product, kDescriptorTransA, &kTransposed, sizeof(kTransposed));
    }
    if (status == 0) status = lt.create_layout(&a, type, k, n, task.weight_stride);
    if (status == 0) status = lt.create_layout(&b, type, k, rows, task.x_stride);
    if (status == 0) status = lt.create_layout(&c, out_type, n, rows, task.out_stride);
    return status;
  }

  int find_algorithm(size_t workspace_bytes, uint32_t alignment, Algorithm* algorithm, int* count) {
    const uint64_t bytes = workspace_bytes;
    int status = lt.create_preference(&preference);
    if (status == 0) {
      status = lt.set_preference(preference, kPreferenceWorkspace, &bytes, sizeof(bytes));
    }
    for (int i = 0; i < 4 && status == 0; ++i) {
      status =
          lt.set_preference(preference, kPreferenceAlignment + i, &alignment, sizeof(alignment));
    }
    HeuristicResult result = {};
    if (status == 0) {
      status = lt.find_algorithms(lt.handle, product, a, b, c, c, preference, 1, &result, count);
    }
    if (status == 0 && *count > 0) status = result.state;
    *algorithm = result.algorithm;
    return status;
  }
};

// The largest power of 2 up to 256 that divides all addresses.
uint32_t alignment_of(const DenseMatmul::Task& task) {
  const auto bits = reinterpret_cast<uintptr_t>(task.x) | reinterpret_cast<uintptr_t>(task.weight) |
                    reinterpret_cast<uintptr_t>(task.out) | 256;
  return static_cast<uint32_t>(bits & (~bits + 1));
}

}  // namespace

std::unique_ptr<DenseMatmul> DenseMatmul::open(const std::vector<std::string>& names) {
  std::string reasons;
  const auto add = [&](const std::string& reason) {
    reasons += (reasons.empty() ? "" : "; ") + reason;
  };
  for (const std::string& name : names) {
    auto library = std::make_unique<Library>();
    library->library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library->library == nullptr) {
      add(dlerror());
      continue;
    }
    if (const char* missing = library->find_functions()) {
      add(name + " has no " + missing);
      continue;
    }
    if (const int status = library->create(&library->handle)) {
      library->handle = nullptr;
      add(name + ": cublasLtCreate returned " + std::to_string(status));
      continue;
    }
    return std::unique_ptr<DenseMatmul>(new DenseMatmul(std::move(library)));
  }
  ops_error(PINFER_OPS_DEVICE_ERROR,
            "cuBLASLt, which products of more than 16 rows need, cannot be used: %s",
            reasons.c_str());
  return nullptr;
}

DenseMatmul::DenseMatmul(std::unique_ptr<Library> library) : library_(std::move(library)) {}
DenseMatmul::~DenseMatmul() = default;

size_t DenseMatmul::version() const { return library_->get_version(); }

int32_t DenseMatmul::multiply(const Task& task, void* workspace, size_t workspace_bytes,
                              Stream stream) {
  const char* op = "dense_matmul";
  PINFER_OPS_CHECK(task.dtype == PINFER_BFLOAT16 || task.dtype == PINFER_FLOAT16,
                   "%s: x and weight must be bfloat16 (15) or float16 (5), got %d", op, task.dtype);
  PINFER_OPS_CHECK(task.out_dtype == task.dtype || task.out_dtype == PINFER_FLOAT32,
                   "%s: out must be float32 (6) or of the dtype of x, got %d", op, task.out_dtype);
  PINFER_OPS_CHECK(task.num_tokens >= 0 && task.out_features >= 1 && task.in_features >= 1,
                   "%s: [%lld, %lld] times [%lld, %lld]^T", op, number(task.num_tokens),
                   number(task.in_features), number(task.out_features), number(task.in_features));
  PINFER_OPS_CHECK(task.x_stride >= task.in_features && task.weight_stride >= task.in_features &&
                       task.out_stride >= task.out_features,
                   "%s: strides %lld, %lld and %lld are less than a row", op, number(task.x_stride),
                   number(task.weight_stride), number(task.out_stride));
  if (task.num_tokens == 0) return PINFER_OPS_OK;
  const auto failed = [&](const char* function, int status) {
    return ops_error(PINFER_OPS_DEVICE_ERROR,
                     "%s: %s returned %d for [%lld, %lld] times [%lld, %lld]^T of dtype %d", op,
                     function, status, number(task.num_tokens), number(task.in_features),
                     number(task.out_features), number(task.in_features), task.dtype);
  };
  Library& lt = *library_;
  Product product(lt);
  if (const int status = product.describe(task)) return failed("a descriptor", status);
  const uint32_t alignment = alignment_of(task);
  const Library::Key key = {task.num_tokens,    task.out_features,
                            task.in_features,   task.x_stride,
                            task.weight_stride, task.out_stride,
                            task.dtype,         task.out_dtype,
                            alignment,          static_cast<int64_t>(workspace_bytes)};
  auto found = lt.algorithms.find(key);
  if (found == lt.algorithms.end()) {
    Algorithm algorithm;
    int count = 0;
    const int status = product.find_algorithm(workspace_bytes, alignment, &algorithm, &count);
    if (status != 0 || count == 0) return failed("cublasLtMatmulAlgoGetHeuristic", status);
    if (lt.algorithms.size() >= kMaxAlgorithms) lt.algorithms.clear();
    found = lt.algorithms.emplace(key, algorithm).first;
  }
  const float one = 1, zero = 0;
  const int status = lt.multiply(lt.handle, product.product, &one, task.weight, product.a, task.x,
                                 product.b, &zero, task.out, product.c, task.out, product.c,
                                 &found->second, workspace, workspace_bytes, stream);
  return status == 0 ? PINFER_OPS_OK : failed("cublasLtMatmul", status);
}

}  // namespace pinfer::cuda
