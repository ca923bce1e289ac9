"""What the numbers of a KV cache of fp8 are multiplied by, as compressed-tensors stores it: one
k_scale and one v_scale for each layer, beside the projections of its attention."""

from __future__ import annotations

from typing import Any

import torch

from pinfer.export.checkpoint import Checkpoint
from pinfer.export.errors import ExportError
from pinfer.export.models.spec import ModelSpec

KVScales = tuple[float, float]  # of K and V


def kv_scale_names(spec: ModelSpec, base: str) -> list[tuple[str, str]]:
    """The tensors of each layer's scales; base: what the checkpoint's names begin with."""
    attention = spec.names.output.rpartition(".")[0]
    layers = [f"{base}{spec.names.layer.format(i)}{attention}." for i in range(len(spec.layers))]
    return [(f"{layer}k_scale", f"{layer}v_scale") for layer in layers]


def read_kv_scales(spec: ModelSpec, checkpoint: Checkpoint) -> list[KVScales] | None:
    """By layer; None if the checkpoint has none. ExportError naming the tensor if one is missing or
    is not one positive number."""
    found = set(checkpoint.tensors.names())
    names = kv_scale_names(spec, spec.names.base_in(found))
    if not any(name in found for pair in names for name in pair):
        return None
    return [(_read(checkpoint, found, k), _read(checkpoint, found, v)) for k, v in names]


def _read(checkpoint: Checkpoint, found: set[str], name: str) -> float:
    where = f"{checkpoint.source}: tensor {name!r}"
    if name not in found:
        raise ExportError(f"{where} is missing; other layers have scales of the KV cache")
    value = checkpoint.tensors.load(name)
    if value.numel() != 1:
        raise ExportError(f"{where}: expected one scale for all heads, found {list(value.shape)}")
    scale = float(value.item())
    if not torch.finfo(torch.float32).tiny <= scale <= torch.finfo(torch.float32).max:
        raise ExportError(f"{where}: expected a positive number, found {scale}")
    return scale


def scale_entries(kv_dtype: str, scales: list[KVScales] | None, layer: int) -> dict[str, Any]:
    """What the manifest says of a layer."""
    if kv_dtype != "fp8":
        return {}
    k_scale, v_scale = (1.0, 1.0) if scales is None else scales[layer]
    return {"k_scale": k_scale, "v_scale": v_scale}


def scale_warning(kv_dtype: str, scales: list[KVScales] | None) -> str | None:
    if kv_dtype == "fp8" and scales is None:
        return "--kv-dtype fp8: the checkpoint has no k_scale and v_scale; they are 1.0"
    if kv_dtype != "fp8" and scales is not None:
        return f"k_scale and v_scale are for --kv-dtype fp8, and not used for {kv_dtype}"
    return None
