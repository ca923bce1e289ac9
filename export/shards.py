"""Weights that are cut into several files, with an index that says which tensor stands where."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

from pinfer.export.errors import ExportError
from pinfer.export.json_file import read_json_object


class Entry(Protocol):
    @property
    def path(self) -> Path: ...


EntryT = TypeVar("EntryT", bound=Entry)


def read_shards(index_path: Path, read: Callable[[Path], dict[str, EntryT]]) -> dict[str, EntryT]:
    """The tensors of all files that the index names; `read` gives those of one file. ExportError
    for files and tensors that are missing or stand there twice."""
    weight_map = read_json_object(index_path).get("weight_map")
    if not isinstance(weight_map, dict):
        raise ExportError(f"{index_path}: weight_map is missing or not an object")
    entries: dict[str, EntryT] = {}
    for shard in sorted({str(value) for value in weight_map.values()}):
        path = index_path.parent / shard
        if Path(shard).name != shard:
            raise ExportError(f"{index_path}: shard {shard!r} is not a plain file name")
        if not path.is_file():
            raise ExportError(f"{path}: file not found, though {index_path.name} names it")
        for name, entry in read(path).items():
            if name in entries:
                raise ExportError(
                    f"{path}: tensor {name!r} stands in {entries[name].path.name} too"
                )
            entries[name] = entry
    for name, shard in weight_map.items():
        if name not in entries or entries[name].path.name != shard:
            path = index_path.parent / str(shard)
            raise ExportError(f"{path}: tensor {name!r} of the index is missing")
    return entries
