"""The settings of a GGUF file's architecture: each is used, known to change nothing, or refused."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from gguf import GGUFReader, GGUFValueType

from pinfer.export.errors import ExportError

# What a file may say about any model without changing what it computes.
IRRELEVANT_KEYS = frozenset({"tensor_data_layout", "rope.scaling.finetuned", "vocab_size"})
# Of models that embed; the others are not computed.
POOLING_TYPES = {1: "mean", 3: "last"}
# Keys that only these values leave without an effect on the layers.
NEUTRAL_VALUES: Mapping[str, tuple[Any, ...]] = {
    "attention.causal": (True,),
    "attention.clamp_kqv": (0.0,),
    "attention.max_alibi_bias": (0.0,),
    "attention.sliding_window": (0,),
    "attn_logit_softcapping": (0.0,),
    "expert_count": (0,),
    "expert_used_count": (0,),
    "final_logit_softcapping": (0.0,),
    "pooling_type": (0, *POOLING_TYPES),
    "rope.scaling.attn_factor": (1.0,),
    "rope.scaling.yarn_ext_factor": (1.0,),
}


def read_values(source: str, reader: GGUFReader) -> dict[str, Any]:
    """The whole metadata. Numbers of 32 bits become those that their shortest decimal spelling
    names: 1e-05, which a converter has read in config.json, and not 9.999999747378752e-06."""
    values = {}
    for name, field in reader.fields.items():
        try:
            value = field.contents()
        except UnicodeDecodeError as error:
            raise ExportError(f"{source}: metadata {name}: not valid UTF-8: {error}") from error
        if field.types and field.types[0] == GGUFValueType.FLOAT32 and math.isfinite(value):
            value = float(str(np.float32(value)))
        values[name] = value
    return values


class Metadata:
    """The namespace of one architecture; remembers what was read."""

    def __init__(self, source: str, architecture: str, values: Mapping[str, Any]) -> None:
        self.source = source
        self._prefix = f"{architecture}."
        self._values = {
            key.removeprefix(self._prefix): value
            for key, value in values.items()
            if key.startswith(self._prefix)
        }
        self._read: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        """The one value of all layers; the default where there is none."""
        value = self.listed(key)
        if not isinstance(value, list):
            return default if value is None else value
        if not value or any(entry != value[0] for entry in value):
            raise self.error(key, f"one value for all layers expected, found {value!r:.200}")
        return value[0]

    def listed(self, key: str) -> Any:
        """The value as it stands in the file, which may be a list."""
        self._read.add(key)
        return self._values.get(key)

    def integer(self, key: str, default: int | None = None) -> int:
        value = self.get(key, default)
        if value is None:
            raise ExportError(f"{self.source}: metadata {self._prefix}{key} is missing")
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise self.error(key, f"an integer >= 1 expected, found {value!r}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self.get(key, default)
        if value is None:
            raise ExportError(f"{self.source}: metadata {self._prefix}{key} is missing")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(key, f"a number expected, found {value!r}")
        return float(value)

    def error(self, key: str, what: str) -> ExportError:
        return ExportError(f"{self.source}: metadata {self._prefix}{key}: {what}")

    def refuse_unread(self) -> None:
        unread = [
            f"{self._prefix}{key}={value!r:.80}"
            for key, value in sorted(self._values.items())
            if key not in self._read
            and key not in IRRELEVANT_KEYS
            and value not in NEUTRAL_VALUES.get(key, ())
        ]
        if unread:
            raise ExportError(f"{self.source}: metadata not supported: {', '.join(unread)}")
