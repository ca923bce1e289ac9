"""Rotary embedding as GGUF spells it, to the keys of config.json."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from gguf import ReaderTensor, dequantize

from pinfer.export.errors import ExportError
from pinfer.export.gguf_metadata import Metadata

DEFAULT_THETA = 10000.0
DIVISORS = "rope_freqs.weight"  # of each frequency, as Llama 3 has them
SHORT_DIVISORS, LONG_DIVISORS = "rope_factors_short.weight", "rope_factors_long.weight"
ROTARY_TENSORS = frozenset({DIVISORS, SHORT_DIVISORS, LONG_DIVISORS})


def rotary_config(
    metadata: Metadata, tensors: Mapping[str, ReaderTensor], head_dim: int, partial: bool
) -> dict[str, Any]:
    """rope_theta and, where there is scaling, rope_scaling; the part of a head that is rotated, if
    the architecture leaves that open."""
    config: dict[str, Any] = {"rope_theta": metadata.number("rope.freq_base", DEFAULT_THETA)}
    rotary_dim = metadata.integer("rope.dimension_count", head_dim)
    if partial:
        config["partial_rotary_factor"] = _factor(rotary_dim, head_dim)
    elif rotary_dim != head_dim:
        raise metadata.error(
            "rope.dimension_count", f"the head size {head_dim} expected, found {rotary_dim}"
        )
    scaling = _scaling(metadata, tensors)
    if scaling:
        config["rope_scaling"] = scaling
    return config


def _factor(rotary_dim: int, head_dim: int) -> float:
    """What gives rotary_dim when head_dim times it is cut to an integer."""
    factor = rotary_dim / head_dim
    return factor if int(head_dim * factor) == rotary_dim else math.nextafter(factor, 2.0)


def _scaling(metadata: Metadata, tensors: Mapping[str, ReaderTensor]) -> dict[str, Any]:
    kind = metadata.get("rope.scaling.type")
    factor = metadata.number("rope.scaling.factor", metadata.number("rope.scale_linear", 0.0))
    original = metadata.get("rope.scaling.original_context_length")
    if ROTARY_TENSORS & tensors.keys():
        if kind not in (None, "none", "longrope") and factor not in (0.0, 1.0):
            raise metadata.error("rope.scaling.type", f"{kind!r} beside divisors of frequencies")
        return _divisors(metadata, tensors, original)
    if kind == "none" or (kind in (None, "linear") and factor in (0.0, 1.0)):
        return {}
    if kind in (None, "linear"):  # a factor alone means this
        return {"rope_type": "linear", "factor": factor}
    if kind == "yarn":
        return _yarn(metadata, factor, original)
    if kind == "longrope":
        raise ExportError(
            f"{metadata.source}: tensors {SHORT_DIVISORS} and {LONG_DIVISORS} are missing, though"
            " rope.scaling.type is 'longrope'"
        )
    raise metadata.error("rope.scaling.type", f"{kind!r} is not supported")


def _yarn(metadata: Metadata, factor: float, original: int | None) -> dict[str, Any]:
    entries = {
        "factor": factor,
        "original_max_position_embeddings": original,
        "attention_factor": metadata.get("rope.scaling.yarn_attn_factor"),
        "beta_fast": metadata.get("rope.scaling.yarn_beta_fast"),
        "beta_slow": metadata.get("rope.scaling.yarn_beta_slow"),
    }
    return {"rope_type": "yarn", **{k: v for k, v in entries.items() if v is not None}}


def _divisors(
    metadata: Metadata, tensors: Mapping[str, ReaderTensor], original: int | None
) -> dict[str, Any]:
    """Divisors are longrope's, those of Llama 3 the same for short and long contexts."""
    if DIVISORS in tensors:
        if tensors.keys() & {SHORT_DIVISORS, LONG_DIVISORS}:
            raise ExportError(f"{metadata.source}: {DIVISORS} and {SHORT_DIVISORS} in one file")
        short = long = _values(tensors[DIVISORS])
        attention: dict[str, Any] = {"attention_factor": 1.0}
    else:
        missing = {SHORT_DIVISORS, LONG_DIVISORS} - tensors.keys()
        if missing:
            raise ExportError(f"{metadata.source}: missing tensors: {', '.join(missing)}")
        short, long = (_values(tensors[name]) for name in (SHORT_DIVISORS, LONG_DIVISORS))
        factor = metadata.get("rope.scaling.attn_factor")
        attention = {} if factor is None else {"attention_factor": factor}
    length = metadata.integer("context_length") if original is None else original
    return {
        "rope_type": "longrope",
        "short_factor": short,
        "long_factor": long,
        "original_max_position_embeddings": length,
        **attention,
    }


def _values(tensor: ReaderTensor) -> list[float]:
    return dequantize(tensor.data, tensor.tensor_type).flatten().tolist()
