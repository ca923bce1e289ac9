"""A checkpoint as every reader (model_dir, gguf_file) hands it on: settings, tensors and text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch

from pinfer.runtime.weight_format import QuantizedWeight

ALL_ROWS = slice(None)


class TensorSource(Protocol):
    """Named tensors that are read one at a time, so that memory holds one of them. Of those that
    reads_rows names, some rows can be read without the others."""

    def names(self) -> Iterable[str]: ...

    def shape(self, name: str) -> tuple[int, ...]: ...

    def load(self, name: str, rows: slice = ALL_ROWS) -> torch.Tensor:
        """In floats, whatever it is stored as."""
        ...

    def load_quantized(self, name: str, rows: slice = ALL_ROWS) -> QuantizedWeight | None:
        """The numbers of a tensor that is stored as integers of 8 or 4 bits with a scale for each
        group; None for others."""
        ...

    def reads_rows(self, name: str) -> bool: ...

    def is_quantized(self, name: str) -> bool:
        """Whether a tensor is stored as integers of any kind."""
        ...

    def group_size(self) -> int | None:
        """How many numbers share a scale in weights of integers; None if there are none, or if
        whole rows share one."""
        ...


class FloatTensors:
    """What sources have in common whose tensors are plain; QuantizedSource knows how integers with
    scales are spelt in them."""

    def load_quantized(self, name: str, rows: slice = ALL_ROWS) -> QuantizedWeight | None:
        return None

    def reads_rows(self, name: str) -> bool:
        return True

    def is_quantized(self, name: str) -> bool:
        return False

    def group_size(self) -> int | None:
        return None


class NoTensors:
    """The tensors of a checkpoint that was read for its text alone."""

    def names(self) -> Iterable[str]:
        return ()

    def shape(self, name: str) -> tuple[int, ...]:
        raise KeyError(name)

    def load(self, name: str, rows: slice = ALL_ROWS) -> torch.Tensor:
        raise KeyError(name)

    def load_quantized(self, name: str, rows: slice = ALL_ROWS) -> QuantizedWeight | None:
        raise KeyError(name)

    def reads_rows(self, name: str) -> bool:
        raise KeyError(name)

    def is_quantized(self, name: str) -> bool:
        raise KeyError(name)

    def group_size(self) -> int | None:
        return None


@dataclass(frozen=True)
class Checkpoint:
    name: str  # base name of the directory, stem of a GGUF file
    source: str  # what was read, for messages
    config: dict[str, Any]  # config.json, in the checkpoint's own spelling
    tensors: TensorSource
    dtype: str  # dtype of the weights as stored: float32, bfloat16, float16, quantized
    tokenizer: dict[str, Any] | None  # tokenizer.json
    tokenizer_config: dict[str, Any] = field(default_factory=dict)
    special_tokens_map: dict[str, Any] = field(default_factory=dict)  # special_tokens_map.json
    generation_config: dict[str, Any] = field(default_factory=dict)
    chat_template: str | list[dict[str, str]] | None = None
    licence_files: tuple[Path, ...] = ()
    pooling_mode: str | None = None  # of a GGUF file that embeds: last or mean
    warnings: tuple[str, ...] = ()  # about what is not read
