"""Checked settings that several families share: sizes, rotary embedding, tied embeddings."""

from __future__ import annotations

import math
from typing import Any

import torch

from pinfer.export.errors import ExportError
from pinfer.export.models.spec import ConfigReader, RotarySpec

ROTARY_KEYS = {
    "default": frozenset[str](),
    "linear": frozenset({"factor"}),
    "llama3": frozenset(
        {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}
    ),
}


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


def head_sizes(reader: ConfigReader, hidden_size: int) -> tuple[int, int, int]:
    """(heads, key/value heads, head size); an explicit head_dim wins over hidden_size / heads."""
    num_heads = positive_int(reader, "num_attention_heads")
    num_kv_heads = positive_int(reader, "num_key_value_heads", num_heads)
    if num_heads % num_kv_heads:
        raise ExportError(
            f"{reader.source}: num_attention_heads {num_heads} is not a multiple of"
            f" num_key_value_heads {num_kv_heads}"
        )
    if reader.get("head_dim") is None and hidden_size % num_heads:
        raise ExportError(
            f"{reader.source}: hidden_size {hidden_size} is not a multiple of"
            f" num_attention_heads {num_heads}, and head_dim is not given"
        )
    head_dim = positive_int(reader, "head_dim", hidden_size // num_heads)
    if head_dim % 2 or head_dim > 256:
        raise ExportError(
            f"{reader.source}: head_dim {head_dim}: expected an even number up to 256"
        )
    return num_heads, num_kv_heads, head_dim


def rotary_settings(reader: ConfigReader) -> tuple[float, dict[str, Any]]:
    """(theta, scaling settings with rope_type) from either spelling; they must not disagree.

    transformers 4: rope_theta and rope_scaling {type or rope_type, ...}; 5: rope_parameters.
    """
    where = reader.source
    new = reader.get("rope_parameters", {})
    old = reader.get("rope_scaling", {})
    for key, value in (("rope_parameters", new), ("rope_scaling", old)):
        if not isinstance(value, dict):
            raise ExportError(f"{where}: config key {key!r}: expected an object, found {value!r}")
        if any(isinstance(entry, dict) for entry in value.values()):
            raise ExportError(
                f"{where}: config key {key!r}: one entry per layer type is not supported"
            )
    spelled = []
    for settings in (new, old):
        entry = {k: v for k, v in settings.items() if v is not None}
        kind = entry.pop("type", None)
        if kind is not None and entry.setdefault("rope_type", kind) != kind:
            raise ExportError(f"{where}: rope type and rope_type disagree: {settings!r}")
        spelled.append(entry)
    thetas = {
        float(value)
        for value in (reader.get("rope_theta"), spelled[0].pop("rope_theta", None),
                      spelled[1].pop("rope_theta", None))
        if value is not None
    }  # fmt: skip
    if len(thetas) > 1:
        raise ExportError(f"{where}: rope_theta is given twice and differs: {sorted(thetas)}")
    if spelled[0] and spelled[1] and spelled[0] != spelled[1]:
        raise ExportError(f"{where}: rope_parameters and rope_scaling disagree: {new!r}, {old!r}")
    settings = spelled[0] or spelled[1] or {"rope_type": "default"}
    kind = settings.setdefault("rope_type", "default")
    if kind not in ROTARY_KEYS:
        raise ExportError(
            f"{where}: rope_type {kind!r} is not supported (supported: {', '.join(ROTARY_KEYS)})"
        )
    partial = settings.pop("partial_rotary_factor", 1.0)
    if partial != 1.0:
        raise ExportError(f"{where}: partial_rotary_factor {partial!r} is not supported")
    found = set(settings) - {"rope_type"}
    if found != ROTARY_KEYS[kind]:
        names = sorted(ROTARY_KEYS[kind])
        raise ExportError(f"{where}: rope_type {kind!r} takes {names}, found {sorted(found)}")
    return (thetas.pop() if thetas else 10000.0), settings


def rotary(reader: ConfigReader, head_dim: int) -> RotarySpec:
    require(reader, "partial_rotary_factor", 1.0, 1.0)
    theta, settings = rotary_settings(reader)
    exponents = torch.arange(0, head_dim, 2, dtype=torch.int64).to(torch.float32) / head_dim
    inv_freq = 1.0 / (theta**exponents)
    if settings["rope_type"] == "linear":
        inv_freq = inv_freq / _factor(reader, settings, "factor")
    elif settings["rope_type"] == "llama3":
        inv_freq = _llama3(reader, inv_freq, settings)
    return RotarySpec(inv_freq=inv_freq)


def _factor(reader: ConfigReader, settings: dict[str, Any], key: str) -> float:
    value = settings[key]
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise ExportError(f"{reader.source}: rope setting {key!r}: expected > 0, found {value!r}")
    return float(value)


def _llama3(reader: ConfigReader, inv_freq: torch.Tensor, settings: dict[str, Any]) -> torch.Tensor:
    """Long wavelengths are divided by the factor, short ones kept, those between blended."""
    factor, low, high, length = (
        _factor(reader, settings, key)
        for key in (
            "factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings",
        )
    )  # fmt: skip
    wavelength = 2 * math.pi / inv_freq
    smooth = (length / wavelength - low) / (high - low)
    blended = (1 - smooth) * inv_freq / factor + smooth * inv_freq
    scaled = torch.where(wavelength > length / low, inv_freq / factor, inv_freq)
    between = (wavelength <= length / low) & (wavelength >= length / high)
    return torch.where(between, blended, scaled)
