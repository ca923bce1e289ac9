"""Lets Inductor and Triton compile for a GPU that is not there.

Written for torch 2.13 (a CPU build, or another) and Triton 3.9. All that is replaced of their
private functions for CUDA is in this file.

Each patch says what fails without it on a machine without a GPU. tests/export/test_cuda_patches.py
leaves each out in turn and fails if the compilation succeeds nevertheless (the patch is no longer
needed), and compiles with all of them (they are enough).
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
import torch._inductor.graph as inductor_graph
import torch._inductor.utils as inductor_utils
import torch.utils._triton as torch_triton
import triton
from torch._dynamo import device_interface
from torch._inductor.codegen.wrapper import PythonWrapperCodegen
from torch._inductor.fx_passes import fuse_attention, misc_patterns, pad_mm
from torch._inductor.runtime import hints, triton_helpers, triton_heuristics
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from triton.backends.compiler import GPUTarget

Patches = list[Any]  # context managers

# Of no device in particular: what Inductor asks decides between ways to cut loops, the same for
# every architecture, so that one wrapper serves all of them.
NUM_PROCESSORS = 132
THREADS_PER_WARP = 32


def _properties(arch: int) -> types.SimpleNamespace:
    return types.SimpleNamespace(
        name="declared GPU, not present",
        major=arch // 10,
        minor=arch % 10,
        multi_processor_count=NUM_PROCESSORS,
        total_memory=80 << 30,
        regs_per_multiprocessor=65536,
        max_threads_per_multi_processor=2048,
        max_threads_per_block=1024,
        warp_size=THREADS_PER_WARP,
        shared_memory_per_block=49152,
        shared_memory_per_block_optin=101376,  # of the smallest of sm_80 to sm_120
        L2_cache_size=40 << 20,
    )


class _Driver:
    """What Triton asks of its active driver while it compiles."""

    def __init__(self, arch: int) -> None:
        self._arch = arch

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self._arch, THREADS_PER_WARP)

    def get_current_device(self) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cuda", 0)


def _answers(arch: int) -> dict[str, Callable[..., Any]]:
    """Of torch.cuda, for the declared device."""
    properties = _properties(arch)
    return {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "get_device_properties": lambda *_, **__: properties,
        "get_device_capability": lambda *_, **__: (properties.major, properties.minor),
        "_exchange_device": lambda *_: 0,
        "_maybe_exchange_device": lambda *_: 0,
        "synchronize": lambda *_, **__: None,
        "set_device": lambda *_, **__: None,
    }


def device(arch: int) -> Patches:
    """Without: "Torch not compiled with CUDA enabled", or "Invalid device id"."""
    return [mock.patch.object(torch.cuda, name, each) for name, each in _answers(arch).items()]


def interface(arch: int) -> Patches:
    """Without: the same. Dynamo's view of devices keeps torch.cuda's functions from when it was
    imported, and what they have answered."""
    kind = device_interface.CudaInterface
    names = {"_exchange_device": "exchange_device",
             "_maybe_exchange_device": "maybe_exchange_device"}  # fmt: skip
    answers = {names.get(name, name): each for name, each in _answers(arch).items()}
    kept = ("caching_worker_device_properties", "caching_worker_current_devices")
    return [
        *(
            mock.patch.object(kind, name, staticmethod(each))
            for name, each in answers.items()
            if hasattr(kind, name)
        ),
        *(mock.patch.dict(getattr(device_interface, name), clear=True) for name in kept),
    ]


def answers_kept(arch: int) -> Patches:
    """Without: functions that are asked once in a process what the device can do go on answering
    for another one, or for none."""

    @contextlib.contextmanager
    def forgotten() -> Iterator[None]:
        _forget()
        try:
            yield
        finally:
            _forget()

    return [forgotten()]


def _forget() -> None:
    for holder in (torch_triton, inductor_utils, hints.DeviceProperties):
        for name in dir(holder):
            if hasattr(kept := getattr(holder, name), "cache_clear"):
                kept.cache_clear()


def rng_state(arch: int) -> Patches:
    """Without: AOTAutograd keeps CUDA's random state, and initialises CUDA for it."""
    return [
        mock.patch.object(
            torch.cuda, "get_rng_state", lambda *_, **__: torch.zeros(16, dtype=torch.uint8)
        ),
        mock.patch.object(torch.cuda, "set_rng_state", lambda *_, **__: None),
    ]


def triton_driver(arch: int) -> Patches:
    """Without: Triton looks for libcuda.so to find out for what it compiles."""

    @contextlib.contextmanager
    def active() -> Iterator[None]:
        config = triton.runtime.driver
        before = config._active
        config.set_active(_Driver(arch))
        try:
            yield
        finally:
            config._active = before

    return [active()]


def triton_target(arch: int) -> Patches:
    """Without: every generated kernel module asks Triton for a driver of its own, and that for
    libcuda.so."""
    return [mock.patch.object(triton_helpers, "set_driver_to_gpu", lambda: None)]


def no_tuning(arch: int) -> Patches:
    """Without: each kernel is loaded and timed to choose between its configurations. Instead the
    first one is compiled, and recorded as the chosen one."""

    def run(self: Any, *_: Any, **__: Any) -> None:
        config = self.configs[0]
        compiled = self._precompile_config(config)
        kernel = compiled.kernel
        _, arguments, absent = compiled._get_arg_lists(
            self.fn.arg_names, triton_heuristics.get_constexprs(self.fn)
        )
        chosen = triton_heuristics.config_to_dict(config)
        signature = compiled.compile_meta["signature"]
        launcher = types.SimpleNamespace(
            bin=kernel,
            config=config,
            def_args=[name for name in arguments if name not in chosen],
            call_args=[
                name
                for name in arguments
                if signature.get(name, "constexpr") != "constexpr" and name not in absent
            ],
            # Triton's kernels take a pointer for each that it knows, also where 0 bytes are needed:
            # None would leave the parameter out, and the driver read one too many.
            global_scratch=getattr(kernel.metadata, "global_scratch_size", None),
            profile_scratch=getattr(kernel.metadata, "profile_scratch_size", None),
        )
        self.save_gpu_kernel(0, launcher)

    kind = triton_heuristics.CachingAutotuner
    return [
        mock.patch.object(kind, "run", run),
        mock.patch.object(kind, "precompile", lambda *_, **__: None),
    ]


def fake_tuning_inputs(arch: int) -> Patches:
    """Without: the generated tuning code allocates its example tensors on the device."""
    original = PythonWrapperCodegen.generate_and_run_autotune_block

    def run(self: Any) -> Any:
        with FakeTensorMode(allow_non_fake_inputs=True):
            return original(self)

    return [mock.patch.object(PythonWrapperCodegen, "generate_and_run_autotune_block", run)]


def raw_stream(arch: int) -> Patches:
    """Without: the generated tuning code asks the driver for its stream."""
    return [mock.patch.object(torch._C, "_cuda_getCurrentRawStream", lambda *_: 0, create=True)]


def pattern_tables(arch: int) -> Patches:
    """Without: tables of patterns that our layers do not have are traced with tensors on the
    device."""
    return [
        mock.patch.object(fuse_attention, "_sfdp_init", lambda *_, **__: None),
        mock.patch.object(pad_mm, "_pad_mm_init", lambda *_, **__: None),
        mock.patch.object(misc_patterns, "_misc_patterns_init", lambda *_, **__: None),
    ]


def same_tensor(arch: int) -> Patches:
    """Without: weights, which are fake, are compared by their addresses, and have none."""
    original = inductor_utils.is_same_tensor

    def is_same_tensor(a: torch.Tensor, b: torch.Tensor) -> bool:
        if isinstance(a, FakeTensor) or isinstance(b, FakeTensor):
            return a is b
        return original(a, b)

    return [
        mock.patch.object(module, "is_same_tensor", is_same_tensor)
        for module in (inductor_graph, inductor_utils)
    ]


PATCHES: tuple[Callable[[int], Patches], ...] = (
    device,
    interface,
    answers_kept,
    rng_state,
    triton_driver,
    triton_target,
    no_tuning,
    fake_tuning_inputs,
    raw_stream,
    pattern_tables,
    same_tensor,
)


@contextlib.contextmanager
def declared_gpu(arch: int, left_out: str = "") -> Iterator[None]:
    """While it lives, torch and Triton compile for one GPU of compute capability arch / 10."""
    with contextlib.ExitStack() as stack:
        for patch in PATCHES:
            if patch.__name__ != left_out:
                for manager in patch(arch):
                    stack.enter_context(manager)
        yield
