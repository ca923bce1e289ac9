"""`--backend tensorrt --plan`: how torch_tensorrt would divide the layers of a model.

Not yet run with the real torch_tensorrt, which needs TensorRT and a GPU: written for its documented
interface, `torch_tensorrt.dynamo.compile(program, arg_inputs=..., dryrun=True)`, which lowers and
partitions the program and prints a report, but builds no engine.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch.export.passes import move_to_device_pass

from pinfer.export import cuda_parts, trace
from pinfer.export.choices import choose_dtype, choose_formats, choose_kv_dtype, choose_task
from pinfer.export.config import ExportConfig
from pinfer.export.errors import ExportError
from pinfer.export.exporter import BLOCK_SIZE, TORCH_DTYPES, read_checkpoint
from pinfer.export.models.registry import read_spec
from pinfer.export.part import FREE_DIMENSIONS, Part, example_sizes, split_dimension
from pinfer.export.targets import TENSORRT_MODULES, missing_for_tensorrt


def print_partition(config: ExportConfig) -> None:
    """Prints torch_tensorrt's report of each kind of layer. ExportError if it is not there, with
    all that is missing, or fails."""
    if config.device != "cuda":
        raise ExportError(f"--backend tensorrt is for --device cuda, found {config.device}")
    if set(TENSORRT_MODULES) & set(missing := missing_for_tensorrt()):
        raise ExportError(f"--backend tensorrt --plan: missing here: {', '.join(missing)}")
    checkpoint = read_checkpoint(config.model)
    spec = read_spec(checkpoint, choose_task(config, checkpoint) == "embed")
    dtype = choose_dtype(config, checkpoint)
    formats = choose_formats(config, dtype, checkpoint)
    cache_dtype = TORCH_DTYPES[choose_kv_dtype(config, dtype)]
    for name, (layer, num_freqs) in spec.layer_kinds().items():
        part = cuda_parts.decoder_layer(
            name, layer, num_freqs, formats.linear, cache_dtype, BLOCK_SIZE
        )
        print(f"{name}: {layer}", flush=True)
        _print_report(part)


def _print_report(part: Part) -> None:
    # Without a GPU torch_tensorrt itself says what it cannot do.
    device = "cuda:0" if torch.cuda.is_available() else "cpu"
    program = move_to_device_pass(trace.trace(part), device)
    try:
        compiler = importlib.import_module("torch_tensorrt")
        compiler.dynamo.compile(program, arg_inputs=_inputs(compiler, part), dryrun=True)
    except Exception as error:
        raise ExportError(f"{part.name}: torch_tensorrt failed: {error}") from error


def _inputs(compiler: Any, part: Part) -> list[Any]:
    """The ranges of the part's free dimensions, as torch_tensorrt takes them."""
    examples = example_sizes(part)

    def shape(entry_shape: tuple[int | str, ...], which: int) -> tuple[int, ...]:
        sizes = []
        for dimension in entry_shape:
            if isinstance(dimension, int):
                sizes.append(dimension)
                continue
            name, offset = split_dimension(dimension)
            low, high, _ = FREE_DIMENSIONS[name]
            sizes.append((low, examples[name], high)[which] + offset)
        return tuple(sizes)

    return [
        compiler.Input(
            min_shape=shape(entry.shape, 0),
            opt_shape=shape(entry.shape, 1),
            max_shape=shape(entry.shape, 2),
            dtype=entry.dtype,
            name=entry.name,
        )
        for entry in part.inputs
    ]
