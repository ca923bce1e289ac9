"""C++ source and GPU kernels of a traced part from AOTInductor, on a machine without a GPU.

The part is traced on the CPU like any other, then moved: parameters, constants and example inputs
become fake tensors of the graph's own mode, so that nothing is ever allocated on a device. What is
patched in torch and Triton for that is in cuda_patches.py and inductor_sources.py.
"""

from __future__ import annotations

import contextlib
import os
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch._inductor
import torch._inductor.codecache as codecache
import triton
from torch.export.passes import move_to_device_pass
from triton.backends.nvidia.compiler import sm_arch_from_capability

from pinfer.export import cuda_patches, inductor_sources
from pinfer.export.errors import ExportError
from pinfer.export.part import Part
from pinfer.runtime import cuda_ops


@dataclass(frozen=True)
class CudaSources:
    """What an artifact is compiled from."""

    wrapper: str  # the model class, container functions included
    constants: tuple[str, ...]  # in the order in which the container numbers them
    # Kernel -> architecture (as the GPU compiler names it, "80" or "90a") -> compiled code.
    kernels: dict[str, dict[str, bytes]]
    # Kernel -> what it was compiled from, and with which sizes of its blocks. For tests, which
    # compute kernels on the CPU.
    triton: dict[str, tuple[str, dict[str, int]]]


def target_name(arch: int) -> str:
    """As the GPU compiler names it: "80", or "90a", whose code is for it alone."""
    return sm_arch_from_capability(arch).removeprefix("sm_")


def generate(
    part: Part, program: torch.export.ExportedProgram, archs: tuple[int, ...], left_out: str = ""
) -> CudaSources:
    """Lowers `program`, which is moved to CUDA by it, for each architecture. ExportError naming the
    part if that fails. left_out: a patch, for tests."""
    found = []
    moved = _moved(program)
    for arch in archs:
        found.append(_generate(part, moved, arch, left_out))
    first = found[0]
    for arch, other in zip(archs, found, strict=True):
        # What the host code knows of a kernel: threads, shared memory, cuts of its loops.
        if other.wrapper != first.wrapper or list(other.kernels) != list(first.kernels):
            raise ExportError(
                f"{part.name}: kernels for sm_{archs[0]} and sm_{arch} are started differently;"
                " export a bundle for each"
            )
    kernels = {
        name: {arch: code for each in found for arch, code in each.kernels[name].items()}
        for name in first.kernels
    }
    return CudaSources(first.wrapper, first.constants, kernels, first.triton)


def _generate(
    part: Part, program: torch.export.ExportedProgram, arch: int, left_out: str
) -> CudaSources:
    captured: dict[str, Any] = {}

    def capture(
        cls: type, graph: Any, wrapper: str, kernel_code: str, *args: Any, **kwargs: Any
    ) -> str:
        # Each kernel's source stands there as a comment, with what this machine compiles it for.
        comment = re.compile(r"^ */\*\n *async_compile\.triton\('(\w+)', (.*?)^ *\*/$", re.M | re.S)
        sources = dict(comment.findall(wrapper))
        wrapper = comment.sub("", wrapper)
        kernels = _kernels(arch, wrapper)
        triton = {
            name: (sources[name], dict(codecache.CudaKernelParamCache.cache[name]["config"]))
            for name in kernels
        }
        captured.update(graph=graph, wrapper=wrapper, kernels=kernels, triton=triton)
        return "captured.so"

    patch = mock.patch.object(codecache.AotCodeCompiler, "compile", classmethod(capture))
    with (
        inductor_sources.quiet(),
        _kernel_compiler(),
        torch.no_grad(),
        patch,
        cuda_patches.declared_gpu(arch, left_out),
    ):
        try:
            torch._inductor.aot_compile(
                program.module(check_guards=False),
                program.example_inputs[0],
                options=_options(part.name),
            )
        except Exception as error:
            raise ExportError(f"{part.name}: AOTInductor failed: {error}") from error
    constants = inductor_sources.checked_constants(part, captured["graph"])
    return CudaSources(captured["wrapper"], constants, captured["kernels"], captured["triton"])


def _moved(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """The program on device cuda:0; `program` is used up."""
    values = {node.name: node.meta["val"] for node in program.graph.find_nodes(op="placeholder")}
    mode = next(value.fake_mode for value in values.values() if hasattr(value, "fake_mode"))
    inputs = []
    for spec in program.graph_signature.input_specs:
        value = values[spec.arg.name]
        if spec.target is None:
            inputs.append(value)
        elif spec.target in program._state_dict:
            with mode:
                program._state_dict[spec.target] = torch.nn.Parameter(value, requires_grad=False)
        elif spec.target in program._constants:
            program._constants[spec.target] = value
    program._example_inputs = (tuple(inputs), {})
    with mode:
        moved = move_to_device_pass(program, "cuda:0")
    for node in list(moved.graph.nodes):  # these still say cpu
        if node.target is torch.ops.aten._assert_tensor_metadata.default:
            moved.graph.erase_node(node)
    moved.graph_module.recompile()
    return moved


def _options(name: str) -> dict[str, Any]:
    return {
        **inductor_sources.options(name, cuda_ops.SHIMS),
        "aot_inductor.embed_kernel_binary": True,
        "triton.autotune_at_compile_time": True,  # kernels are compiled while the code is generated
        "max_autotune": False,
        "compile_threads": 1,  # where the patches are
    }


@contextlib.contextmanager
def _kernel_compiler() -> Iterator[None]:
    """Kernels that depend on their source alone: no path of this machine in them, none from a
    cache."""
    with (
        inductor_sources.scratch(),
        mock.patch.dict(os.environ, TRITON_DISABLE_LINE_INFO="1"),
        triton.knobs.compilation.scope(),
        triton.knobs.cache.scope(),
    ):
        triton.knobs.compilation.disable_line_info = True
        triton.knobs.cache.dir = os.environ["TORCHINDUCTOR_CACHE_DIR"] + "/triton"
        yield


def _kernels(arch: int, wrapper: str) -> dict[str, dict[str, bytes]]:
    """Those that the wrapper starts, in its order; the cache has those of earlier parts too."""
    target = target_name(arch)
    entries = codecache.CudaKernelParamCache.cache
    places = {name: wrapper.find(f"__{name}_start") for name in entries}
    kernels = {}
    for name in sorted(entries, key=lambda name: places[name]):
        if places[name] < 0:
            continue
        code = Path(entries[name]["cubin_path"]).read_bytes()
        if (found := arch_of(code)) != arch:
            raise ExportError(f"{name}: expected code for sm_{arch}, found some for sm_{found}")
        kernels[name] = {target: code}
    return kernels


def arch_of(code: bytes) -> int:
    """The architecture that the header of a compiled kernel, an ELF file, names."""
    (flags,) = struct.unpack_from("<I", code, 48)
    return flags & 255 if code[8] < 8 else flags >> 8 & 255  # by the version of its ABI
