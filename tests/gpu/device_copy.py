"""How fast a device copies its own memory, which memory-bound kernels are held against."""

from __future__ import annotations

import ctypes
import time
from typing import Any


class _Driver:
    """Functions of the CUDA driver; RuntimeError naming the one that fails."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._library, name)

        def call(*arguments: Any) -> None:
            if error := function(*arguments):
                raise RuntimeError(f"{name}: error {error}")

        return call


def copy_rate(size: int, repeats: int) -> float:
    """Bytes read and written a second, of `repeats` copies of `size` bytes."""
    driver = _Driver()
    device, context, stream = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
    source, target = ctypes.c_uint64(), ctypes.c_uint64()
    driver.cuInit(0)
    driver.cuDeviceGet(ctypes.byref(device), 0)
    driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
    try:
        driver.cuCtxSetCurrent(context)
        driver.cuStreamCreate(ctypes.byref(stream), 0)
        for memory in (source, target):
            driver.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(size))
            driver.cuMemsetD8Async(memory, ctypes.c_ubyte(1), ctypes.c_size_t(size), stream)

        def copy(times: int) -> float:
            driver.cuStreamSynchronize(stream)
            begin = time.monotonic()
            for _ in range(times):
                driver.cuMemcpyDtoDAsync_v2(target, source, ctypes.c_size_t(size), stream)
            driver.cuStreamSynchronize(stream)
            return time.monotonic() - begin

        copy(2)  # clocks go up
        return 2 * size * repeats / copy(repeats)
    finally:
        for memory in (source, target):
            if memory.value:
                driver.cuMemFree_v2(memory)
        if stream.value:
            driver.cuStreamDestroy_v2(stream)
        driver.cuDevicePrimaryCtxRelease_v2(device)
