"""Checked settings that several families share: numbers, switches, sizes of heads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from pinfer.export.errors import ExportError
from pinfer.export.models.spec import ConfigReader


def positive_int(reader: ConfigReader, key: str, default: int | None = None) -> int:
    value = reader.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ExportError(
            f"{reader.source}: config key {key!r}: expected an integer >= 1, found {value!r}"
        )
    return value


def positive_number(reader: ConfigReader, key: str, default: float | None = None) -> float:
    value = reader.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ExportError(
            f"{reader.source}: config key {key!r}: expected a number > 0, found {value!r}"
        )
    return float(value)


def boolean(reader: ConfigReader, key: str, default: bool) -> bool:
    value = reader.get(key, default)
    if not isinstance(value, bool):
        raise ExportError(
            f"{reader.source}: config key {key!r}: expected true or false, found {value!r}"
        )
    return value


def require(reader: ConfigReader, key: str, expected: Any, default: Any) -> None:
    value = reader.get(key, default)
    if value != expected:
        raise ExportError(
            f"{reader.source}: config key {key!r} is {value!r}; only {expected!r} is supported"
        )


def window(reader: ConfigReader, default: int | None) -> int:
    """sliding_window in tokens; 0 for null, which switches it off. `default`: if it is absent."""
    value = reader.get_or_null("sliding_window", default)
    if value is None or value == 0:
        return 0
    return positive_int(reader, "sliding_window", default)


def cap(reader: ConfigReader, key: str, default: float | None) -> float:
    """A soft cap; 0 for null. `default`: where it is absent."""
    if reader.get_or_null(key, default) is None:
        return 0.0
    return positive_number(reader, key, default)


def experts_per_token(reader: ConfigReader, default: int, num_experts: int) -> int:
    count = positive_int(reader, "num_experts_per_tok", default)
    if count > num_experts:
        raise ExportError(
            f"{reader.source}: num_experts_per_tok {count} is more than the {num_experts} experts"
        )
    return count


def switches(reader: ConfigReader, key: str, count: int, default: Sequence[bool]) -> list[bool]:
    """A list of so many 0 or 1."""
    value = reader.get(key, list(default))
    if not isinstance(value, list) or len(value) != count or any(v not in (0, 1) for v in value):
        raise ExportError(
            f"{reader.source}: config key {key!r}: expected {count} of 0 and 1,"
            f" found {value!r:.200}"
        )
    return [bool(v) for v in value]


# transformers' names of the activations that compiled layers have.
ACTIVATIONS = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}


def activation(reader: ConfigReader, key: str, default: str) -> str:
    value = reader.get(key, default)
    if value not in ACTIVATIONS:
        raise ExportError(
            f"{reader.source}: config key {key!r} is {value!r}; supported: {', '.join(ACTIVATIONS)}"
        )
    return ACTIVATIONS[value]


def layer_types(reader: ConfigReader, num_layers: int, default: Sequence[str]) -> list[str]:
    """ "full_attention" or "sliding_attention" for each layer."""
    value = reader.get("layer_types", list(default))
    known = ("full_attention", "sliding_attention")
    if not isinstance(value, list) or len(value) < num_layers or any(v not in known for v in value):
        raise ExportError(
            f"{reader.source}: config key 'layer_types': expected {num_layers} of"
            f" {' and '.join(known)}, found {value!r:.200}"
        )
    return value[:num_layers]


def head_sizes(
    reader: ConfigReader,
    hidden_size: int,
    num_kv_heads: int | None = None,
    head_dim: int | None = None,
) -> tuple[int, int, int]:
    """(heads, key/value heads, head size); an explicit head_dim wins over hidden_size / heads.
    num_kv_heads, head_dim: the family's own, if it is not the number of heads, or the quotient."""
    num_heads = positive_int(reader, "num_attention_heads")
    num_kv_heads = positive_int(reader, "num_key_value_heads", num_kv_heads or num_heads)
    if num_heads % num_kv_heads:
        raise ExportError(
            f"{reader.source}: num_attention_heads {num_heads} is not a multiple of"
            f" num_key_value_heads {num_kv_heads}"
        )
    if reader.get("head_dim", head_dim) is None and hidden_size % num_heads:
        raise ExportError(
            f"{reader.source}: hidden_size {hidden_size} is not a multiple of"
            f" num_attention_heads {num_heads}, and head_dim is not given"
        )
    head_dim = positive_int(reader, "head_dim", head_dim or hidden_size // num_heads)
    if head_dim % 2 or head_dim > 256:
        raise ExportError(
            f"{reader.source}: head_dim {head_dim}: expected an even number up to 256"
        )
    return num_heads, num_kv_heads, head_dim
