"""Rotary embedding as config.json spells it, in the ways of transformers 4 and 5, to frequencies.

transformers 4: rope_theta and rope_scaling {type or rope_type, ...}; 5: rope_parameters, which
may have an entry for each type of layer.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from pinfer.export.errors import ExportError
from pinfer.export.models.spec import ConfigReader, RotarySpec

Settings = dict[str, Any]

# The settings of each rope_type: those that must be there, and those that may.
ROTARY_KEYS: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    "default": (frozenset(), frozenset()),
    "linear": (frozenset({"factor"}), frozenset()),
    "llama3": (
        frozenset({"factor", "low_freq_factor", "high_freq_factor"}),
        frozenset({"original_max_position_embeddings"}),
    ),
    "yarn": (
        frozenset({"factor"}),
        frozenset(
            """original_max_position_embeddings attention_factor beta_fast beta_slow mscale
            mscale_all_dim truncate finetuned""".split()
        ),
    ),
    "longrope": (
        frozenset({"short_factor", "long_factor"}),
        frozenset({"factor", "attention_factor", "original_max_position_embeddings"}),
    ),
}
NO_ROTARY = RotarySpec(torch.zeros(1))  # of models whose layers use none: the engine has a table


def read_rotary(
    reader: ConfigReader, head_dim: int, theta: float = 10000.0, partial: float | None = None
) -> RotarySpec:
    """The one table of a model. `theta` and `partial`: what the family uses if config.json does
    not say; None: its heads are rotated whole."""
    return make_rotary(reader, rotary_settings(reader, theta, partial), head_dim)


def rotary_settings(reader: ConfigReader, theta: float, partial: float | None = None) -> Settings:
    """rope_type, rope_theta, partial_rotary_factor and what the type takes, from either spelling;
    the two must not disagree."""
    new, old = _object(reader, "rope_parameters"), _object(reader, "rope_scaling")
    for key, value in (("rope_parameters", new), ("rope_scaling", old)):
        if any(isinstance(entry, dict) for entry in value.values()):
            raise ExportError(
                f"{reader.source}: config key {key!r}: one entry per layer type is not supported"
            )
    new, old = one_spelling(reader, new), one_spelling(reader, old)
    common = {
        "rope_theta": _agreed(reader, "rope_theta", new, old, theta),
        "partial_rotary_factor": _agreed(reader, "partial_rotary_factor", new, old, partial or 1.0),
    }
    if partial is None and common["partial_rotary_factor"] != 1.0:
        raise ExportError(
            f"{reader.source}: config key 'partial_rotary_factor' is"
            f" {common['partial_rotary_factor']}; this family rotates whole heads"
        )
    if new and old and new != old:
        raise ExportError(
            f"{reader.source}: rope_parameters and rope_scaling disagree: {new!r}, {old!r}"
        )
    return {"rope_type": "default", **(new or old), **common}


def rotary_settings_by_type(reader: ConfigReader, thetas: dict[str, float]) -> dict[str, Settings]:
    """The settings of each type of layer, from rope_parameters that have an entry for each;
    `thetas` are the family's own."""
    written = _object(reader, "rope_parameters")
    unknown = sorted(set(written) - set(thetas))
    if unknown:
        raise ExportError(
            f"{reader.source}: config key 'rope_parameters': expected entries"
            f" {', '.join(thetas)}, found {', '.join(unknown)}"
        )
    settings = {}
    for kind, theta in thetas.items():
        entry = written.get(kind) or {}
        if not isinstance(entry, dict):
            raise ExportError(
                f"{reader.source}: config key 'rope_parameters.{kind}': expected an object,"
                f" found {entry!r}"
            )
        entry = one_spelling(reader, entry)
        settings[kind] = {"rope_type": "default", "rope_theta": theta, **entry}
    return settings


def make_rotary(reader: ConfigReader, settings: Settings, head_dim: int) -> RotarySpec:
    settings = dict(settings)
    kind = settings.pop("rope_type", "default")
    if not isinstance(kind, str) or kind not in ROTARY_KEYS:
        raise ExportError(
            f"{reader.source}: rope_type {kind!r} is not supported (supported:"
            f" {', '.join(ROTARY_KEYS)})"
        )
    theta = _number(reader, settings, "rope_theta")
    partial = _number(reader, {"partial_rotary_factor": 1.0, **settings}, "partial_rotary_factor")
    settings = {
        k: v for k, v in settings.items() if k not in ("rope_theta", "partial_rotary_factor")
    }
    needed, allowed = ROTARY_KEYS[kind]
    if not needed <= set(settings) or not set(settings) <= needed | allowed:
        more = f" and may take {sorted(allowed)}" if allowed else ""
        raise ExportError(
            f"{reader.source}: rope_type {kind!r} takes {sorted(needed)}{more},"
            f" found {sorted(settings)}"
        )
    rotary_dim = int(head_dim * partial)
    if rotary_dim % 2 or not 2 <= rotary_dim <= head_dim:
        raise ExportError(
            f"{reader.source}: partial_rotary_factor {partial} of head size {head_dim} rotates"
            f" {rotary_dim} numbers; expected an even number from 2 to the head size"
        )
    exponents = torch.arange(0, rotary_dim, 2, dtype=torch.int64).to(torch.float32) / rotary_dim
    frequencies = theta**exponents
    if kind == "linear":
        return RotarySpec(1.0 / frequencies / _number(reader, settings, "factor"))
    if kind == "llama3":
        return RotarySpec(_llama3(reader, 1.0 / frequencies, settings))
    if kind == "yarn":
        return _yarn(reader, frequencies, settings, theta, rotary_dim)
    if kind == "longrope":
        return _longrope(reader, frequencies, settings)
    return RotarySpec(1.0 / frequencies)


# ---- spellings ----


def _object(reader: ConfigReader, key: str) -> Settings:
    value = reader.get(key, {})
    if not isinstance(value, dict):
        raise ExportError(
            f"{reader.source}: config key {key!r}: expected an object, found {value!r}"
        )
    return value


def one_spelling(reader: ConfigReader, settings: Settings) -> Settings:
    """Without nulls, and with rope_type where the old spelling has type."""
    entry = {k: v for k, v in settings.items() if v is not None}
    kind = entry.pop("type", None)
    if kind is not None and entry.setdefault("rope_type", kind) != kind:
        raise ExportError(f"{reader.source}: rope type and rope_type disagree: {settings!r}")
    return entry


def _agreed(reader: ConfigReader, key: str, new: Settings, old: Settings, default: float) -> float:
    """The value of a setting that may stand beside the others or among them; it is taken out."""
    found = {}
    for value in (reader.get(key), new.pop(key, None), old.pop(key, None)):
        if value is not None:
            found[_number(reader, {key: value}, key)] = value
    if len(found) > 1:
        raise ExportError(f"{reader.source}: {key} is given twice and differs: {sorted(found)}")
    return next(iter(found), default)


def _number(reader: ConfigReader, settings: Settings, key: str) -> float:
    value = settings[key]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ExportError(
            f"{reader.source}: rope setting {key!r}: expected a number > 0, found {value!r}"
        )
    return float(value)


def _original_length(reader: ConfigReader, settings: Settings) -> float:
    """What the model was trained on at first. A key of its own wins, as transformers has it."""
    key = "original_max_position_embeddings"
    for value in (reader.get(key), settings.get(key), reader.get("max_position_embeddings")):
        if value is not None:
            return _number(reader, {key: value}, key)
    raise ExportError(f"{reader.source}: rope setting {key!r} is missing")


# ---- types ----


def _llama3(reader: ConfigReader, inv_freq: torch.Tensor, settings: Settings) -> torch.Tensor:
    """Long wavelengths are divided by the factor, short ones kept, those between blended."""
    factor, low, high = (
        _number(reader, settings, key) for key in ("factor", "low_freq_factor", "high_freq_factor")
    )
    length = _original_length(reader, settings)
    wavelength = 2 * math.pi / inv_freq
    smooth = (length / wavelength - low) / (high - low)
    blended = (1 - smooth) * inv_freq / factor + smooth * inv_freq
    scaled = torch.where(wavelength > length / low, inv_freq / factor, inv_freq)
    between = (wavelength <= length / low) & (wavelength >= length / high)
    return torch.where(between, blended, scaled)


def _yarn(
    reader: ConfigReader, frequencies: torch.Tensor, settings: Settings, theta: float, dim: int
) -> RotarySpec:
    """Fast frequencies are kept, slow ones divided by the factor, with a ramp between; cosines and
    sines grow with the factor."""
    factor, length = _number(reader, settings, "factor"), _original_length(reader, settings)

    def index_of(rotations: float) -> float:
        """Where a frequency turns so often within the original length."""
        return dim * math.log(length / (rotations * 2 * math.pi)) / (2 * math.log(theta))

    low = index_of(_number(reader, {"beta_fast": 32, **settings}, "beta_fast"))
    high = index_of(_number(reader, {"beta_slow": 1, **settings}, "beta_slow"))
    if settings.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    if low == high:
        high += 0.001
    ramp = ((torch.arange(dim // 2, dtype=torch.float32) - low) / (high - low)).clamp(0, 1)
    kept = 1 - ramp
    inv_freq = 1.0 / (factor * frequencies) * (1 - kept) + 1.0 / frequencies * kept
    return RotarySpec(inv_freq, _yarn_scaling(reader, settings, factor))


def _yarn_scaling(reader: ConfigReader, settings: Settings, factor: float) -> float:
    if "attention_factor" in settings:
        return _number(reader, settings, "attention_factor")

    def grown(by: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * by * math.log(factor) + 1.0

    if settings.get("mscale") and settings.get("mscale_all_dim"):
        return grown(_number(reader, settings, "mscale")) / grown(
            _number(reader, settings, "mscale_all_dim")
        )
    return grown(1.0)


def _longrope(reader: ConfigReader, frequencies: torch.Tensor, settings: Settings) -> RotarySpec:
    """Every frequency has a divisor of its own: one list for short contexts, one for long ones."""
    length = _original_length(reader, settings)
    if "factor" in settings:
        factor = _number(reader, settings, "factor")
    else:
        factor = reader.get("max_position_embeddings", length) / length
    if "attention_factor" in settings:
        scaling = _number(reader, settings, "attention_factor")
    else:
        scaling = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(length))
    short, long = (
        _divisors(reader, settings, key, len(frequencies))
        for key in ("short_factor", "long_factor")
    )
    return RotarySpec(
        inv_freq=1.0 / (short * frequencies),
        attention_scaling=scaling,
        long_inv_freq=1.0 / (long * frequencies),
        long_from=int(length),
    )


def _divisors(reader: ConfigReader, settings: Settings, key: str, count: int) -> torch.Tensor:
    values = settings[key]
    if not isinstance(values, list) or len(values) != count:
        found = len(values) if isinstance(values, list) else repr(values)
        raise ExportError(
            f"{reader.source}: rope setting {key!r}: expected {count} numbers, found {found}"
        )
    return torch.tensor([_number(reader, {key: value}, key) for value in values])
