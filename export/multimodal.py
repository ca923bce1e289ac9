"""Checkpoints of models that also see: the text model inside them, under the names and with the
config.json of a checkpoint that holds it alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from pinfer.export.checkpoint import ALL_ROWS, TensorSource
from pinfer.export.errors import ExportError
from pinfer.export.models.spec import ConfigReader
from pinfer.runtime.weight_format import QuantizedWeight


@dataclass(frozen=True)
class Multimodal:
    text_architecture: str
    defaults: Mapping[str, Any]  # of text_config, which holds what differs from them
    other_keys: frozenset[str]  # of config.json, about what is left out


ARCHITECTURES: Mapping[str, Multimodal] = {
    "Gemma3ForConditionalGeneration": Multimodal(
        "Gemma3ForCausalLM",
        {
            "vocab_size": 262208,
            "hidden_size": 2304,
            "intermediate_size": 9216,
            "num_hidden_layers": 26,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "head_dim": 256,
        },
        frozenset(
            """vision_config mm_tokens_per_image boi_token_index eoi_token_index image_token_index
            boi_token_id eoi_token_id image_token_id""".split()
        ),
    ),
}
# Beginnings of names: what stands in their place, and those that are left out.
TEXT_PREFIXES = {
    "language_model.model.": "model.",
    "language_model.lm_head.": "lm_head.",
    "model.language_model.": "model.",
}
OTHER_MODULES = ("vision_tower", "multi_modal_projector")
# Of the whole model; they win over the text model's.
SHARED_KEYS = ("bos_token_id", "eos_token_id", "pad_token_id", "tie_word_embeddings", "model_type")


class RenamedSource:
    """Some of the tensors of another source, under other names (a TensorSource)."""

    def __init__(self, source: TensorSource, names: Mapping[str, str], dtype: str) -> None:
        self._source = source
        self._names = names  # here: there
        self._dtype = dtype

    def names(self) -> Iterable[str]:
        return self._names.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        return self._source.shape(self._names[name])

    def load(self, name: str, rows: slice = ALL_ROWS) -> torch.Tensor:
        return self._source.load(self._names[name], rows)

    def load_quantized(self, name: str, rows: slice = ALL_ROWS) -> QuantizedWeight | None:
        return self._source.load_quantized(self._names[name], rows)

    def reads_rows(self, name: str) -> bool:
        return self._source.reads_rows(self._names[name])

    def is_quantized(self, name: str) -> bool:
        return self._source.is_quantized(self._names[name])

    def group_size(self) -> int | None:
        return self._source.group_size()

    def dtype(self) -> str:
        return self._dtype


def is_multimodal(config: Mapping[str, Any]) -> bool:
    names = config.get("architectures")
    return isinstance(names, list) and len(names) == 1 and names[0] in ARCHITECTURES


def text_config(source: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """config.json of the text model. ExportError for keys that nobody knows."""
    kind = ARCHITECTURES[config["architectures"][0]]
    inner = config.get("text_config")
    if not isinstance(inner, dict):
        raise ExportError(
            f"{source}: config key 'text_config': expected an object, found {inner!r}"
        )
    reader = ConfigReader(source, config)
    reader.ignore("text_config", *SHARED_KEYS, *kind.other_keys)
    unread = reader.unread_keys()
    if unread:
        shown = ", ".join(f"{key}={config[key]!r}"[:80] for key in unread)
        raise ExportError(f"{source}: config keys that are not supported: {shown}")
    shared = {key: config[key] for key in SHARED_KEYS if config.get(key) is not None}
    given = {key: value for key, value in inner.items() if value is not None}
    return {**kind.defaults, **given, **shared, "architectures": [kind.text_architecture]}


def text_tensors(source: TensorSource, dtype: str) -> tuple[RenamedSource, tuple[str, ...]]:
    """The text model's tensors, and a warning that says what is left out."""
    names: dict[str, str] = {}
    left_out: list[str] = []
    for stored in source.names():
        bare = stored.removeprefix("model.")
        if bare.split(".")[0] in OTHER_MODULES:
            left_out.append(stored)
            continue
        begin = next((prefix for prefix in TEXT_PREFIXES if stored.startswith(prefix)), "")
        name = TEXT_PREFIXES.get(begin, "") + stored.removeprefix(begin)
        if name in names:
            raise ExportError(f"tensors {stored!r} and {names[name]!r} are both {name!r}")
        names[name] = stored
    modules = sorted({name.removeprefix("model.").split(".")[0] for name in left_out})
    warnings: tuple[str, ...] = ()
    if left_out:
        warnings = (
            f"the bundle holds the text model alone; left out: {len(left_out)} tensors of"
            f" {', '.join(modules)}",
        )
    return RenamedSource(source, names, dtype), warnings
