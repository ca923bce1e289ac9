// OpenMP entry points on the current ThreadPool, for compiled artifacts: their loops are outlined
// by the compiler into calls of these functions. Semantics are OpenMP's: a region keeps its team
// from start to end, a nested one has a team of 1, without a pool everything is serial.
//
// The functions carry a prefix, so that they never meet a real OpenMP library in the process.
#pragma once

#include <string>
#include <string_view>
#include <vector>

extern "C" {
void pinfer_GOMP_parallel(void (*fn)(void*), void* data, unsigned num_threads, unsigned flags);
void pinfer_GOMP_barrier(void);
bool pinfer_GOMP_single_start(void);
void pinfer_GOMP_critical_start(void);
void pinfer_GOMP_critical_end(void);
void pinfer_GOMP_atomic_start(void);
void pinfer_GOMP_atomic_end(void);
int pinfer_omp_get_num_threads(void);
int pinfer_omp_get_thread_num(void);
int pinfer_omp_get_max_threads(void);
int pinfer_omp_in_parallel(void);
}

namespace pinfer {

// The function for an OpenMP name as generated code asks for it ("GOMP_parallel"), null if there is
// none.
void* find_openmp_function(std::string_view name);

// All names that find_openmp_function knows.
std::vector<std::string> openmp_function_names();

}  // namespace pinfer
