"""The weights of a model directory, in whichever files they are: safetensors before
pytorch_model.bin, several files with an index before one."""

from __future__ import annotations

from pathlib import Path

from pinfer.export.errors import ExportError
from pinfer.export.safetensors_file import SafetensorsSource, read_header
from pinfer.export.shards import read_shards
from pinfer.export.torch_file import TorchSource, read_torch_file

SAFETENSORS = "model.safetensors"
TORCH = "pytorch_model.bin"


def open_directory(directory: Path) -> SafetensorsSource | TorchSource:
    for single, read, source in (
        (SAFETENSORS, read_header, SafetensorsSource),
        (TORCH, read_torch_file, TorchSource),
    ):
        index = directory / f"{single}.index.json"
        if index.is_file():
            return source(read_shards(index, read))
        if (directory / single).is_file():
            return source(read(directory / single))
    raise ExportError(
        f"{directory}: no weights: expected {SAFETENSORS} or {TORCH}, or one with .index.json"
    )
