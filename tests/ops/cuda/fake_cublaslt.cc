// A cuBLASLt for tests: as much of its interface as csrc/kernels/dense_matmul_cuda.cc uses,
// computed on the CPU in host memory.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

namespace {

constexpr int kInvalidValue = 7, kNotSupported = 15;

struct Object {
  enum Kind { HANDLE, PRODUCT, LAYOUT, PREFERENCE } kind;
  int32_t transposed = 0;
  int type = 0;
  uint64_t rows = 0, columns = 0;
  int64_t stride = 0;
  uint64_t workspace_bytes = 0;
  uint32_t alignment = 256;
};

std::string failing;  // function
int failing_status = 0;
int num_objects = 0;
int num_searches = 0;

bool fails(const char* function) { return failing == function; }

int create(void** object, Object::Kind kind) {
  *object = new Object{kind};
  ++num_objects;
  return 0;
}

int destroy(void* object, Object::Kind kind) {
  auto* typed = static_cast<Object*>(object);
  if (typed->kind != kind) return kInvalidValue;
  delete typed;
  --num_objects;
  return 0;
}

float load(const void* p, uint64_t i, int type) {
  if (type == 0) return static_cast<const float*>(p)[i];
  if (type == 2) return __half2float(static_cast<const __half*>(p)[i]);
  return __bfloat162float(static_cast<const __nv_bfloat16*>(p)[i]);
}

void store(void* p, uint64_t i, int type, float x) {
  if (type == 0) static_cast<float*>(p)[i] = x;
  if (type == 2) static_cast<__half*>(p)[i] = __half(x);
  if (type == 14) static_cast<__nv_bfloat16*>(p)[i] = __nv_bfloat16(x);
}

}  // namespace

#define FAKE extern "C" __attribute__((visibility("default")))

// For the test: what fails from now on ("" for nothing), what is alive, how often it was asked.
FAKE void fake_cublaslt_fail(const char* function, int status) {
  failing = function;
  failing_status = status;
}
FAKE int fake_cublaslt_objects() { return num_objects; }
FAKE int fake_cublaslt_searches() { return num_searches; }

FAKE size_t cublasLtGetVersion() { return 130000; }
FAKE int cublasLtCreate(void** handle) {
  if (fails("cublasLtCreate")) return failing_status;
  return create(handle, Object::HANDLE);
}
FAKE int cublasLtDestroy(void* handle) { return destroy(handle, Object::HANDLE); }
FAKE int cublasLtMatmulDescCreate(void** product, int compute, int scale) {
  if (compute != 68 || scale != 0) return kNotSupported;
  return create(product, Object::PRODUCT);
}
FAKE int cublasLtMatmulDescSetAttribute(void* product, int attribute, const void* p, size_t size) {
  if (attribute != 3 || size != 4) return kInvalidValue;
  std::memcpy(&static_cast<Object*>(product)->transposed, p, size);
  return 0;
}
FAKE int cublasLtMatmulDescDestroy(void* product) { return destroy(product, Object::PRODUCT); }
FAKE int cublasLtMatrixLayoutCreate(void** layout, int type, uint64_t rows, uint64_t columns,
                                    int64_t stride) {
  if (fails("cublasLtMatrixLayoutCreate")) return failing_status;
  if (stride < static_cast<int64_t>(rows)) return kInvalidValue;
  create(layout, Object::LAYOUT);
  auto* typed = static_cast<Object*>(*layout);
  typed->type = type;
  typed->rows = rows;
  typed->columns = columns;
  typed->stride = stride;
  return 0;
}
FAKE int cublasLtMatrixLayoutDestroy(void* layout) { return destroy(layout, Object::LAYOUT); }
FAKE int cublasLtMatmulPreferenceCreate(void** preference) {
  return create(preference, Object::PREFERENCE);
}
FAKE int cublasLtMatmulPreferenceSetAttribute(void* preference, int attribute, const void* p,
                                              size_t size) {
  auto* typed = static_cast<Object*>(preference);
  if (attribute == 1 && size == 8) {
    std::memcpy(&typed->workspace_bytes, p, size);
    return 0;
  }
  if (attribute < 5 || attribute > 8 || size != 4) return kInvalidValue;
  std::memcpy(&typed->alignment, p, size);
  return 0;
}
FAKE int cublasLtMatmulPreferenceDestroy(void* preference) {
  return destroy(preference, Object::PREFERENCE);
}

struct FakeAlgorithm {
  uint64_t workspace_bytes, alignment, rest[6];
};
struct FakeResult {
  FakeAlgorithm algorithm;
  size_t workspace_bytes;
  int state;
  float waves;
  int reserved[4];
};

FAKE int cublasLtMatmulAlgoGetHeuristic(void* handle, void*, void*, void*, void*, void*,
                                        void* preference, int wanted, FakeResult* result,
                                        int* count) {
  ++num_searches;
  if (fails("cublasLtMatmulAlgoGetHeuristic")) return failing_status;
  if (handle == nullptr || wanted != 1) return kInvalidValue;
  const auto* typed = static_cast<Object*>(preference);
  *result = {};
  result->algorithm.workspace_bytes = typed->workspace_bytes;
  result->algorithm.alignment = typed->alignment;
  *count = fails("no algorithm") ? 0 : 1;
  return 0;
}

// D = alpha * A^T * B + beta * C; matrices column by column.
FAKE int cublasLtMatmul(void* handle, void* product, const float* alpha, const void* a,
                        void* a_layout, const void* b, void* b_layout, const float* beta,
                        const void* c, void* c_layout, void* d, void* d_layout,
                        const FakeAlgorithm* algorithm, void* workspace, size_t workspace_bytes,
                        void*) {
  if (fails("cublasLtMatmul")) return failing_status;
  const auto &la = *static_cast<Object*>(a_layout), &lb = *static_cast<Object*>(b_layout);
  const auto& ld = *static_cast<Object*>(d_layout);
  const uintptr_t addresses = reinterpret_cast<uintptr_t>(a) | reinterpret_cast<uintptr_t>(b) |
                              reinterpret_cast<uintptr_t>(d);
  const bool is_good =
      handle != nullptr && static_cast<Object*>(product)->transposed == 1 && *alpha == 1 &&
      *beta == 0 && c == d && c_layout == d_layout && la.rows == lb.rows && la.columns == ld.rows &&
      lb.columns == ld.columns && la.type == lb.type && (ld.type == 0 || ld.type == la.type) &&
      workspace_bytes >= algorithm->workspace_bytes && addresses % algorithm->alignment == 0;
  if (!is_good) return kInvalidValue;
  if (workspace_bytes > 0) std::memset(workspace, 0xff, workspace_bytes);  // it may be used
  for (uint64_t column = 0; column < ld.columns; ++column) {
    for (uint64_t row = 0; row < ld.rows; ++row) {
      float sum = 0;
      for (uint64_t k = 0; k < la.rows; ++k) {
        sum += load(a, row * static_cast<uint64_t>(la.stride) + k, la.type) *
               load(b, column * static_cast<uint64_t>(lb.stride) + k, lb.type);
      }
      store(d, column * static_cast<uint64_t>(ld.stride) + row, ld.type, sum);
    }
  }
  return 0;
}
