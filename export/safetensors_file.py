"""safetensors files: the header is checked before anything is read.

The format is an 8-byte little-endian header size, a JSON header and the tensors' bytes without
holes, so a shortened or lengthened file shows from its header alone.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from pinfer.export.checkpoint import ALL_ROWS, FloatTensors
from pinfer.export.errors import ExportError

MAX_HEADER_BYTES = 100 * 1000 * 1000
DTYPE_BYTES = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1,
    "BOOL": 1, "F8_E4M3": 1, "F8_E5M2": 1, "U16": 2, "U32": 4, "U64": 8,
}  # fmt: skip
TORCH_NAMES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}


@dataclass(frozen=True)
class TensorEntry:
    path: Path
    dtype: str  # as the header spells it: F32, BF16, ...
    shape: tuple[int, ...]


def read_header(path: Path) -> dict[str, TensorEntry]:
    """The tensors of one file. ExportError if the header and the file's size do not agree."""
    size = path.stat().st_size
    if size < 8:
        raise ExportError(
            f"{path}: expected a safetensors file of at least 8 bytes, found {size}"
            " (incomplete download?)"
        )
    with path.open("rb") as file:
        (header_bytes,) = struct.unpack("<Q", file.read(8))
        if header_bytes > min(MAX_HEADER_BYTES, size - 8):
            raise ExportError(
                f"{path}: the header says {header_bytes} bytes, the file has {size}"
                " (not a safetensors file, or an incomplete download?)"
            )
        try:
            header = json.loads(file.read(header_bytes))
        except (UnicodeDecodeError, json.JSONDecodeError) as error:
            raise ExportError(f"{path}: the safetensors header is not JSON: {error}") from error
    if not isinstance(header, dict):
        raise ExportError(f"{path}: the safetensors header is not a JSON object")
    entries: dict[str, TensorEntry] = {}
    end = 0
    spans: list[tuple[int, int, str]] = []
    for name, value in header.items():
        if name == "__metadata__":
            continue
        entry, begin, stop = _entry(path, name, value)
        entries[name] = entry
        spans.append((begin, stop, name))
    for begin, stop, name in sorted(spans):
        if begin != end:
            raise ExportError(
                f"{path}: tensor {name!r} begins at {begin}, expected {end}: holes or overlaps"
            )
        end = stop
    expected = 8 + header_bytes + end
    if size != expected:
        raise ExportError(f"{path}: expected {expected} bytes, found {size} (incomplete download?)")
    return entries


def _entry(path: Path, name: str, value: Any) -> tuple[TensorEntry, int, int]:
    try:
        dtype, shape = value["dtype"], value["shape"]
        begin, stop = value["data_offsets"]
        numbers = [*shape, begin, stop]
    except (TypeError, KeyError, ValueError) as error:
        raise ExportError(f"{path}: tensor {name!r}: bad header entry: {error}") from error
    if not all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in numbers):
        raise ExportError(f"{path}: tensor {name!r}: sizes and offsets must be integers >= 0")
    if dtype not in DTYPE_BYTES:
        raise ExportError(f"{path}: tensor {name!r}: unknown dtype {dtype!r}")
    count = 1
    for n in shape:
        count *= n
    if stop - begin != count * DTYPE_BYTES[dtype]:
        raise ExportError(
            f"{path}: tensor {name!r}: shape {shape} of {dtype} needs"
            f" {count * DTYPE_BYTES[dtype]} bytes, the header gives {stop - begin}"
        )
    return TensorEntry(path, dtype, tuple(shape)), begin, stop


class SafetensorsSource(FloatTensors):
    """The tensors of one or many safetensors files (a TensorSource)."""

    def __init__(self, entries: dict[str, TensorEntry]) -> None:
        self._entries = entries
        self._open: dict[Path, Any] = {}

    def names(self) -> Iterable[str]:
        return self._entries.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        return self._entries[name].shape

    def stored_dtype(self, name: str) -> str:
        """As the header spells it."""
        return self._entries[name].dtype

    def load(self, name: str, rows: slice = ALL_ROWS) -> torch.Tensor:
        path = self._entries[name].path
        if path not in self._open:
            self._open[path] = safe_open(path, framework="pt")
        if rows == ALL_ROWS:
            return self._open[path].get_tensor(name)
        return self._open[path].get_slice(name)[rows]

    def dtype(self) -> str:
        """The dtype that most of the weights' elements have, as torch names it."""
        count: dict[str, int] = {}
        for entry in self._entries.values():
            elements = 1
            for n in entry.shape:
                elements *= n
            count[entry.dtype] = count.get(entry.dtype, 0) + elements
        best = max(count, key=lambda dtype: count[dtype], default="F32")
        return TORCH_NAMES.get(best, best)
