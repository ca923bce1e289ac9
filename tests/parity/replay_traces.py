"""Replays recorded scheduling traces and compares every field of every step.

Usage: python replay_traces.py DIR [--engine cpp|python]

Reads every trace in DIR: *.json, *.json.xz, and those inside *.tar.xz; other files are ignored.
Both engines run unless one is named. The last line says how many traces match; the exit status is
0 only if all do.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import lzma
import sys
import tarfile
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from pinfer.runtime.library import find_library
from pinfer.runtime.scheduler.replay import replay_trace

Json = dict[str, Any]
Replay = Callable[[Mapping[str, Any]], Json]

FINAL_FIELDS = ("final_free_block_ids", "final_cached_block_ids")


@lru_cache(maxsize=1)
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(str(find_library()))
    library.pinfer_testing_replay.restype = ctypes.c_void_p
    library.pinfer_testing_replay.argtypes = [ctypes.c_char_p]
    return library


def replay_trace_cpp(trace: Mapping[str, Any]) -> Json:
    """The C++ scheduler's decisions, through libpinfer's testing entry."""
    text = _library().pinfer_testing_replay(json.dumps(trace).encode())
    try:
        result: Json = json.loads(ctypes.string_at(text))
    finally:
        free = ctypes.CDLL(None).free
        free.argtypes = [ctypes.c_void_p]
        free(text)
    if "error" in result:
        raise ValueError(result["error"])
    return result


ENGINES: dict[str, Replay] = {"cpp": replay_trace_cpp, "python": replay_trace}


def load_traces(directory: Path) -> Iterator[Json]:
    for path in sorted(directory.iterdir()):
        if path.name.endswith(".tar.xz"):
            with tarfile.open(path, "r:xz") as archive:
                for member in archive:
                    file = archive.extractfile(member)
                    if file is not None and member.name.endswith(".json"):
                        yield from _parse_trace(file.read())
        elif path.name.endswith(".json.xz"):
            yield from _parse_trace(lzma.decompress(path.read_bytes()))
        elif path.name.endswith(".json"):
            yield from _parse_trace(path.read_bytes())


def _parse_trace(content: bytes) -> Iterator[Json]:
    trace = json.loads(content)
    if isinstance(trace, dict) and {"config", "requests", "steps"} <= trace.keys():
        yield trace


def first_difference(trace: Mapping[str, Any], result: Mapping[str, Any]) -> str | None:
    """Where a replay departs from its trace, or None."""
    for expected, got in zip(trace["steps"], result["steps"], strict=True):
        for field in expected.keys() | got.keys():
            if expected.get(field) != got.get(field):
                return (
                    f"step {expected['step']}, {field}: "
                    f"expected {expected.get(field)}, got {got.get(field)}"
                )
    for field in FINAL_FIELDS:
        if trace[field] != result[field]:
            return f"{field}: expected {trace[field]}, got {result[field]}"
    return None


def compare(trace: Mapping[str, Any], engine: str) -> str | None:
    """What is wrong with an engine's replay of the trace, or None."""
    try:
        return first_difference(trace, ENGINES[engine](trace))
    except (ValueError, KeyError, IndexError) as error:
        return f"{type(error).__name__}: {error}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path, metavar="DIR")
    parser.add_argument("--engine", choices=sorted(ENGINES), help="default: both")
    arguments = parser.parse_args()
    engines = [arguments.engine] if arguments.engine else sorted(ENGINES)
    num_traces = num_matching = 0
    for trace in load_traces(arguments.directory):
        differences = [(engine, compare(trace, engine)) for engine in engines]
        for engine, difference in differences:
            if difference is not None:
                print(f"{trace.get('name')} ({engine}): {difference}")
        num_traces += 1
        num_matching += all(difference is None for _, difference in differences)
    print(f"{num_matching} of {num_traces} traces match")
    return 0 if num_traces > 0 and num_matching == num_traces else 1


if __name__ == "__main__":
    sys.exit(main())
