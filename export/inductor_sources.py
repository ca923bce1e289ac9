"""C++ sources of a traced part from AOTInductor, without letting it compile them.

All that depends on torch's private functions is in this file, written for torch 2.13:
- AotCodeCompiler.compile gets the two generated sources as strings; it is replaced for the call,
  since the exporter compiles and links them itself (artifact.py);
- pick_vec_isa returns the instruction set that the target names, not what the export host has
  (Inductor would compile and load test programs to find out).
tests/export/test_inductor_sources.py fails when one of them no longer does what is needed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
import warnings
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
import torch._inductor
import torch._inductor.codecache as codecache
import torch._inductor.cpu_vec_isa as cpu_vec_isa

from pinfer.export.artifact import Sources
from pinfer.export.errors import ExportError
from pinfer.export.part import Part, example_inputs
from pinfer.runtime import ops

VECTOR_ISAS = {"x86-64-v3": cpu_vec_isa.VecAVX2, "x86-64-v4": cpu_vec_isa.VecAVX512}


def generate(part: Part, program: torch.export.ExportedProgram, cpu_isa: str) -> Sources:
    """Lowers `program` for the instruction set. ExportError naming the part if Inductor fails."""
    captured: dict[str, Any] = {}

    def capture(
        cls: type, graph: Any, wrapper: str, kernels: str, *args: Any, **kwargs: Any
    ) -> str:
        captured.update(graph=graph, wrapper=wrapper, kernels=kernels)
        return "captured.so"

    patch = mock.patch.object(codecache.AotCodeCompiler, "compile", classmethod(capture))
    with quiet(), scratch(), torch.no_grad(), patch, _vector_isa(cpu_isa):
        try:
            torch._inductor.aot_compile(
                program.module(), example_inputs(part), options=_cpu_options(part.name)
            )
        except Exception as error:
            raise ExportError(f"{part.name}: AOTInductor failed: {error}") from error
    constants = checked_constants(part, captured["graph"])
    return Sources(captured["wrapper"], captured["kernels"], constants)


def checked_constants(part: Part, graph: Any) -> tuple[str, ...]:
    """The names of a compiled graph's constants. ExportError if they are not the part's."""
    constants = tuple(graph.constants)
    expected = list(part.constants())
    if sorted(constants) != sorted(expected):
        raise ExportError(
            f"{part.name}: compiled constants are {sorted(constants)}, expected {sorted(expected)}"
        )
    return constants


def options(name: str, shims: dict[Any, list[str]]) -> dict[str, Any]:
    """What every part is lowered with; shims: how compiled code calls our ops."""
    return {
        "aot_inductor.package_constants_in_so": False,
        "aot_inductor.link_libtorch": False,
        "aot_inductor.custom_ops_to_c_shims": shims,
        "aot_inductor.precompile_headers": False,
        "aot_inductor.model_name_for_generated_files": name,
        "always_keep_tensor_constants": True,  # else small constants would be shared by all layers
        "force_disable_caches": True,
    }


def _cpu_options(name: str) -> dict[str, Any]:
    return {
        **options(name, ops.SHIMS),
        "cpp.dynamic_threads": True,  # the number of threads is the engine's, not this host's
        "cpp.threads": 2,
    }


@contextlib.contextmanager
def _vector_isa(cpu_isa: str) -> Iterator[None]:
    picked = VECTOR_ISAS[cpu_isa]()
    true = lambda self: True  # noqa: E731  (the check would run a program on this host)
    with (
        mock.patch.object(type(picked), "__bool__", true),
        mock.patch.object(cpu_vec_isa, "pick_vec_isa", lambda: picked),
        mock.patch.object(codecache, "pick_vec_isa", lambda: picked),
        mock.patch.object(cpu_vec_isa, "valid_vec_isa_list", lambda: [picked]),
    ):
        yield


@contextlib.contextmanager
def scratch() -> Iterator[None]:
    """What Inductor writes beside the sources goes with this call."""
    with tempfile.TemporaryDirectory(prefix="pinfer-inductor-") as folder:
        with mock.patch.dict(os.environ, TORCHINDUCTOR_CACHE_DIR=folder):
            yield


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    logger = logging.getLogger("torch._inductor")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
