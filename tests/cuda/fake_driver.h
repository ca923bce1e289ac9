// How tests steer the fake CUDA driver (fake_driver.cc) and learn what it has seen.
//
// It is a libcuda.so.1 over host memory. What is put on a stream is done as late as can be: when
// somebody waits for it (or copies pageable memory, or frees memory, which waits too). So whoever
// reads a copy too early, or overwrites what is still to be copied, gets wrong numbers. Kernels of
// artifacts are checked and recorded, and computed where a test says how (set_launcher); our own
// kernels, which tests take from fake_kernels.cc, are checked here and computed by the emulation.
//
// A fault is what a real driver would refuse, or would not notice until memory is overwritten:
// pointers outside of live allocations, freed or foreign handles, grids and blocks beyond limits,
// calls that are illegal while a stream is captured, use without a context, pinned memory freed
// with a copy of it to come.
#pragma once

#include <cstddef>
#include <cstdint>

#define FAKE_CUDA_API extern "C" __attribute__((visibility("default")))

struct FakeCudaLaunch {
  const char* kernel;
  uint32_t grid[3], block[3], shared_bytes;
  bool is_captured;  // into a graph; not run then
};

// Computes a kernel of an artifact: its parameters as cuLaunchKernel takes them.
using FakeCudaLauncher = void (*)(const char* kernel, const uint32_t* grid, void** parameters,
                                  int32_t num_parameters);

// A device of compute capability arch / 10 with so much memory; forgets everything recorded.
// REQUIRES: nothing is alive.
FAKE_CUDA_API void fake_cuda_reset(int32_t num_devices, int32_t arch, uint64_t memory_bytes,
                                   int32_t driver_version);
// The `call`th call from now on (0: the next) fails with this error; -1: none. Functions that only
// describe errors or give something back are not counted.
FAKE_CUDA_API void fake_cuda_fail_at(int64_t call, int32_t error);
FAKE_CUDA_API int64_t fake_cuda_num_calls();
// The name of the function that failed by the last fake_cuda_fail_at() of a call; "" if none has.
FAKE_CUDA_API const char* fake_cuda_failed_function();
// One a line; "" if there are none.
FAKE_CUDA_API const char* fake_cuda_faults();
// What is alive: "2 allocations of 512 bytes, 1 stream"; "" if nothing is.
FAKE_CUDA_API const char* fake_cuda_alive();
FAKE_CUDA_API int64_t fake_cuda_num_launches();
FAKE_CUDA_API FakeCudaLaunch fake_cuda_launch(int64_t index);
FAKE_CUDA_API void fake_cuda_forget_launches();
// How often a stream was waited for while it had something to do.
FAKE_CUDA_API int64_t fake_cuda_num_waits();
// Bytes from an address to the end of the allocation that it lies in; 0 if it lies in none.
FAKE_CUDA_API uint64_t fake_cuda_extent(const void* memory);
FAKE_CUDA_API void fake_cuda_set_launcher(FakeCudaLauncher launcher);
// Byte that new device memory is filled with; 0 by default.
FAKE_CUDA_API void fake_cuda_set_fill(uint8_t fill);

// For fake_kernels.cc.
// A fault unless [memory, memory + bytes) lies in one live allocation.
FAKE_CUDA_API void fake_cuda_check_range(const char* kernel, const char* argument,
                                         const void* memory, size_t bytes);
// Records a launch of our own on the stream; `run` is called when the stream comes to it and, if
// the stream is captured, in every launch of the graph. An error that it returns is a fault. `copy`
// gets `closure` and returns one that lives as long as the launch or the graph, which free ends;
// `run` gets that one.
struct FakeCudaClosure {
  int32_t (*run)(void* closure);
  void* (*copy)(const void* closure);
  void (*free)(void* closure);
};
FAKE_CUDA_API int32_t fake_cuda_run(const char* kernel, void* stream,
                                    const FakeCudaClosure* functions, void* closure);
