"""Steps of a bundle's model through logits_tool, for exact comparisons."""

import json
import subprocess
from pathlib import Path

import numpy as np

BLOCK = 16


class LogitsTool:
    """One process; its cache starts full of NaN. Blocks are handed out by the caller; layers of one
    window share a block table (the windows mean nothing else here)."""

    def __init__(
        self,
        build_dir: Path,
        bundle: Path,
        threads: int,
        num_blocks: int = 64,
        layer_windows: tuple[int, ...] = (),
    ):
        tool = build_dir / "tests" / "engine_cpp" / "executor" / "logits_tool"
        assert tool.is_file(), f"{tool} is missing: run `make build-tests`"
        self._process = subprocess.Popen(
            [tool, bundle, *map(str, (threads, num_blocks, *layer_windows))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.stdin.close()
        assert self._process.wait(timeout=60) == 0

    def step(self, scheduled, preempted=(), finished=(), rows=None):
        """float32 [rows, vocab] of one step; the sampled rows unless others are named."""
        line = {"scheduled": scheduled, "preempted": list(preempted), "finished": list(finished)}
        if rows is not None:
            line["rows"] = list(rows)
        self._process.stdin.write(json.dumps(line).encode() + b"\n")
        self._process.stdin.flush()
        num_rows, width = map(int, self._process.stdout.readline().split())
        data = self._process.stdout.read(4 * num_rows * width)
        return np.frombuffer(data, dtype=np.float32).reshape(num_rows, width)


def chunk(request_id, tokens, start, stop, blocks, kind=None):
    """A step's entry that computes tokens[start:stop]; `blocks` is the request's whole table,
    or a list of its tables."""
    if kind is None:
        kind = "new" if start == 0 else "running"
    held = -(-start // BLOCK)
    needed = -(-stop // BLOCK)
    tables = blocks if isinstance(blocks[0], list) else [blocks]
    start_block = held if kind == "running" else 0
    return {
        "id": request_id,
        "kind": kind,
        "num_computed_tokens": start,
        "token_ids": tokens[start:stop],
        "new_block_ids": [list(table[start_block:needed]) for table in tables],
        "samples": True,
    }
