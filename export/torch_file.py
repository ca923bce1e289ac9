"""pytorch_model.bin: tensors that torch.save has pickled.

They are read by torch's restricted unpickler alone, which builds tensors and runs nothing of the
file: a file that asks for anything else is refused. Storages are mapped, not read.
"""

from __future__ import annotations

import os
import pickle
import zipfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch

from pinfer.export.checkpoint import ALL_ROWS, FloatTensors
from pinfer.export.errors import ExportError

# As safetensors spells them, for those who read stored_dtype().
DTYPE_NAMES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8",
    torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip
# Of a zip archive without a comment, which torch writes none of.
END_RECORD, END_RECORD_BYTES = b"PK\x05\x06", 22


@dataclass(frozen=True)
class TorchEntry:
    path: Path
    tensor: torch.Tensor  # mapped


def read_torch_file(path: Path) -> dict[str, TorchEntry]:
    """The tensors of one file. ExportError if it is damaged, or holds anything but tensors."""
    records = _record_sizes(path)
    try:
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except pickle.UnpicklingError as error:
        raise ExportError(
            f"{path}: refused, nothing of it was run: it asks for more than tensors:"
            f" {_reason(error)}"
        ) from error
    except Exception as error:  # torch raises many kinds for a damaged file
        raise ExportError(f"{path}: cannot be read: {_reason(error)}") from error
    if not isinstance(content, dict):
        raise ExportError(f"{path}: expected tensors by name, found {type(content).__name__}")
    entries = {}
    for name, tensor in content.items():
        if not isinstance(name, str) or not isinstance(tensor, torch.Tensor):
            raise ExportError(f"{path}: {name!r}: expected a tensor, found {type(tensor).__name__}")
        if tensor.layout != torch.strided or tensor.dtype not in DTYPE_NAMES:
            raise ExportError(
                f"{path}: tensor {name!r}: {tensor.layout}, {tensor.dtype} is not supported"
            )
        entries[name] = TorchEntry(path, tensor.detach())
    _check_storages(path, entries, records)
    return entries


def _record_sizes(path: Path) -> Counter[int]:
    """How many records of data of each size the file has."""
    try:
        with path.open("rb") as file:
            file.seek(-min(END_RECORD_BYTES, path.stat().st_size), os.SEEK_END)
            if not file.read().startswith(END_RECORD):
                raise zipfile.BadZipFile("it does not end as a zip archive does")
        with zipfile.ZipFile(path) as archive:
            infos = archive.infolist()
    except (zipfile.BadZipFile, OSError, NotImplementedError) as error:
        raise ExportError(
            f"{path}: not a file of torch.save since version 1.6, or an incomplete download?"
            f" ({error})"
        ) from error
    if any(info.compress_type != zipfile.ZIP_STORED for info in infos):
        raise ExportError(f"{path}: compressed records cannot be mapped")
    sizes = ((Path(info.filename).parts, info.file_size) for info in infos)
    return Counter(size for parts, size in sizes if parts[-2:-1] == ("data",))


def _check_storages(path: Path, entries: dict[str, TorchEntry], records: Counter[int]) -> None:
    """A storage that is larger than its record would reach into others."""
    storages = {
        entry.tensor.untyped_storage().data_ptr(): entry.tensor.untyped_storage().nbytes()
        for entry in entries.values()
    }
    beyond = Counter(size for size in storages.values() if size) - records
    if beyond:
        raise ExportError(f"{path}: a tensor of {max(beyond)} bytes has no record of that size")


def _reason(error: Exception) -> str:
    """The first sentence: torch goes on to explain how to run the file's code."""
    text = str(error).strip()
    for line in text.splitlines():
        if "WeightsUnpickler error" in line:
            return line.split("WeightsUnpickler error:")[-1].strip().split(". ")[0]
    return text.splitlines()[0] if text else type(error).__name__


class TorchSource(FloatTensors):
    """The tensors of one or many such files (a TensorSource)."""

    def __init__(self, entries: dict[str, TorchEntry]) -> None:
        self._entries = entries

    def names(self) -> Iterable[str]:
        return self._entries.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._entries[name].tensor.shape)

    def stored_dtype(self, name: str) -> str:
        return DTYPE_NAMES[self._entries[name].tensor.dtype]

    def load(self, name: str, rows: slice = ALL_ROWS) -> torch.Tensor:
        tensor = self._entries[name].tensor
        return (tensor if rows == ALL_ROWS else tensor[rows]).contiguous()

    def dtype(self) -> str:
        """The dtype that most of the weights' elements have, as torch names it."""
        count: Counter[torch.dtype] = Counter()
        for entry in self._entries.values():
            count[entry.tensor.dtype] += entry.tensor.numel()
        best = max(count, key=lambda dtype: count[dtype], default=torch.float32)
        return str(best).removeprefix("torch.")
