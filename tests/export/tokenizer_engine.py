"""The engine's tokenizer for tests, reached through the C++ test tool `tokenize_tool`."""

import os
import subprocess
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

REPOSITORY = Path(__file__).parents[2]
ENCODE, DECODE, STREAM = range(3)


def find_tool() -> Path:
    """The newest build of the tool; PINFER_TOKENIZE_TOOL names another one."""
    named = os.environ.get("PINFER_TOKENIZE_TOOL")
    if named:
        return Path(named)
    pattern = "build/*/tests/engine_cpp/tokenizer/tokenize_tool"
    found = sorted(REPOSITORY.glob(pattern), key=lambda path: path.stat().st_mtime)
    assert found, f"tokenize_tool is missing: none at {pattern}; run `make build-tests`"
    return found[-1]


@dataclass
class Batch:
    """Texts as UTF-8, or lists of ids, as arrays: one entry after the other."""

    lengths: np.ndarray[Any, np.dtype[np.int32]]  # -1: the entry is an error
    data: np.ndarray[Any, Any]  # uint8 or int32

    @classmethod
    def of_ids(cls, ids: Sequence[Sequence[int] | None]) -> "Batch":
        lengths = [-1 if one is None else len(one) for one in ids]
        flat = chain.from_iterable(one for one in ids if one is not None)
        return cls(np.array(lengths, np.int32), np.fromiter(flat, np.int32))

    @classmethod
    def of_texts(cls, texts: Sequence[str]) -> "Batch":
        encoded = [text.encode() for text in texts]
        lengths = np.fromiter(map(len, encoded), np.int32, len(encoded))
        return cls(lengths, np.frombuffer(b"".join(encoded), np.uint8))

    def entries(self) -> list[Any]:
        """The entries as arrays; None for errors."""
        ends = np.maximum(self.lengths, 0).cumsum()
        pairs = zip(ends.tolist(), self.lengths.tolist(), strict=True)
        return [None if n < 0 else self.data[end - n : end] for end, n in pairs]

    def ids(self) -> list[list[int] | None]:
        return [None if one is None else one.tolist() for one in self.entries()]

    def texts(self) -> list[str | None]:
        return [None if one is None else one.tobytes().decode() for one in self.entries()]

    def is_same(self, other: "Batch") -> bool:
        same = np.array_equal(self.lengths, other.lengths)
        return same and np.array_equal(self.data, other.data)


class EngineTokenizer:
    """A compiled tokenizer. One process answers all calls, each of which is one batch."""

    def __init__(self, tables: bytes, folder: Path) -> None:
        path = folder / "tokenizer.bin"
        path.write_bytes(tables)
        pipe = subprocess.PIPE
        self._process = subprocess.Popen([str(find_tool()), str(path)], stdin=pipe, stdout=pipe)
        weakref.finalize(self, _end, self._process)

    def encode(self, texts: list[str], add_special_tokens: bool = True) -> list:
        """The ids of each text; None where the engine refuses it."""
        return self.encode_batch(Batch.of_texts(texts), add_special_tokens).ids()

    def decode(self, ids: list[list[int]], skip_special_tokens: bool) -> list:
        return self.decode_batch(Batch.of_ids(ids), skip_special_tokens).texts()

    def stream(self, ids: list[list[int]], skip_special_tokens: bool, prompts=None) -> list:
        """The pieces of text of each stream; `prompts` are the ids before each."""
        batch = Batch.of_ids(ids)
        pieces = self._stream(batch, Batch.of_ids(prompts or [[]] * len(ids)), skip_special_tokens)
        texts = iter(pieces.texts())
        return [[next(texts) for _ in range(n + 1)] for n in batch.lengths.tolist()]

    def encode_batch(self, texts: Batch, add_special_tokens: bool) -> Batch:
        self._ask(ENCODE, add_special_tokens, texts.lengths, texts.data)
        return self._answer(len(texts.lengths), np.int32)

    def decode_batch(self, ids: Batch, skip_special_tokens: bool) -> Batch:
        self._ask(DECODE, skip_special_tokens, ids.lengths, ids.data)
        return self._answer(len(ids.lengths), np.uint8)

    def stream_batch(self, ids: Batch, skip_special_tokens: bool, prompts: Batch | None = None):
        """The pieces of each stream put together."""
        none = Batch(np.zeros(len(ids.lengths), np.int32), np.zeros(0, np.int32))
        pieces = self._stream(ids, prompts or none, skip_special_tokens)
        begins = np.concatenate(([0], (ids.lengths.astype(np.int64) + 1).cumsum()[:-1]))
        if len(ids.lengths) == 0:
            return pieces
        return Batch(np.add.reduceat(pieces.lengths, begins).astype(np.int32), pieces.data)

    def _stream(self, ids: Batch, prompts: Batch, skip_special_tokens: bool) -> Batch:
        parts = (ids.lengths, prompts.lengths, ids.data, prompts.data)
        self._ask(STREAM, skip_special_tokens, *parts)
        return self._answer(int(ids.lengths.sum()) + len(ids.lengths), np.uint8)

    def _ask(self, operation: int, flag: bool, lengths: Any, *parts: Any) -> None:
        assert self._process.stdin is not None
        head = np.array([operation, flag, len(lengths)], np.uint32)
        for part in (head, lengths, *parts):
            self._process.stdin.write(part.tobytes())
        self._process.stdin.flush()

    def _answer(self, count: int, dtype: Any) -> Batch:
        lengths = self._read(count, np.int32)
        return Batch(lengths, self._read(int(np.maximum(lengths, 0).sum()), dtype))

    def _read(self, count: int, dtype: Any) -> Any:
        assert self._process.stdout is not None
        size = count * np.dtype(dtype).itemsize
        data = self._process.stdout.read(size)
        assert len(data) == size, f"tokenize_tool ended: status {self._process.wait()}"
        return np.frombuffer(data, dtype)


def _end(process: subprocess.Popen) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    process.wait()
