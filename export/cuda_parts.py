"""The compiled parts of a model for CUDA: inputs and outputs are those of parts.py, weights and
cache as the CUDA kernels take them."""

from __future__ import annotations

from dataclasses import replace

import torch

from pinfer.export import parts
from pinfer.export.errors import ExportError
from pinfer.export.part import Part
from pinfer.runtime import cuda_ops
from pinfer.runtime.cuda_weight_format import CudaWeightFormat
from pinfer.runtime.layers.cuda_modules import CudaDecoderLayer, CudaHead
from pinfer.runtime.layers.layer_spec import HeadSpec, LayerSpec


def decoder_layer(
    name: str,
    spec: LayerSpec,
    num_freqs: int,
    weights: CudaWeightFormat,
    cache_dtype: torch.dtype,
    block_size: int,
) -> Part:
    """ExportError if there is no kernel for such a layer."""
    if spec.num_experts:
        raise ExportError("--device cuda: there is no kernel for mixtures of experts yet")
    if spec.head_dim > cuda_ops.MAX_HEAD_DIM:
        raise ExportError(
            f"--device cuda: heads have {spec.head_dim} numbers, at most"
            f" {cuda_ops.MAX_HEAD_DIM} are supported"
        )
    like = parts.decoder_layer(name, spec, num_freqs, weights, cache_dtype, block_size)
    shape = cuda_ops.kv_cache_shape(0, block_size, spec.num_kv_heads, spec.head_dim)[1:]
    inputs = tuple(
        replace(entry, shape=("num_blocks", *shape)) if entry.name.endswith("_cache") else entry
        for entry in like.inputs
    )
    return replace(like, module=CudaDecoderLayer(spec, weights).eval(), inputs=inputs)


def head(spec: HeadSpec, weights: CudaWeightFormat) -> Part:
    return replace(parts.head(spec, weights), module=CudaHead(spec, weights).eval())
