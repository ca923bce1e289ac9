"""The exporter's lists of what providers have, against the provider itself."""

import ctypes

from pinfer.runtime.bundle.symbols import (
    CUDA_SYMBOLS,
    NATIVE_SYMBOLS,
    SHARED_SYMBOLS,
    VECTOR_FUNCTIONS,
)
from pinfer.runtime.library import find_library


def test_native_provider_has_what_the_exporter_promises():
    library = ctypes.CDLL(str(find_library()))
    find = library.pinfer_native_symbol
    find.restype = ctypes.c_void_p
    promised = sorted(NATIVE_SYMBOLS | SHARED_SYMBOLS | VECTOR_FUNCTIONS)
    assert len(promised) > 40
    missing = [name for name in promised if find(name.encode()) is None]
    assert not missing
    assert find(b"aoti_torch_cpu_no_such_op") is None


def test_provider_for_cuda_has_what_the_exporter_promises():
    find = ctypes.CDLL(str(find_library())).pinfer_cuda_symbol
    find.restype = ctypes.c_void_p
    missing = [name for name in sorted(CUDA_SYMBOLS) if find(name.encode()) is None]
    assert len(CUDA_SYMBOLS) > 45 and not missing
    assert find(b"aoti_torch_cpu_linear") is None
