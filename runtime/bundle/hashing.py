"""Files that are hashed while they are written, and hashes of files that exist."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from types import TracebackType

CHUNK_BYTES = 1 << 20


class HashingFile:
    """A new file; counts and hashes (SHA-256) what is written, and reaches the disk in finish()."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("xb")
        self._hash = hashlib.sha256()
        self._size = 0

    def __enter__(self) -> HashingFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def write(self, data: bytes | memoryview) -> None:
        self._file.write(data)
        self._hash.update(data)
        self._size += memoryview(data).nbytes

    def finish(self) -> tuple[int, str]:
        """(size in bytes, SHA-256 in hex) once all is on the disk."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return self._size, self._hash.hexdigest()


def hash_file(path: Path) -> tuple[int, str]:
    """(size in bytes, SHA-256 in hex) of an existing file."""
    digest = hashlib.sha256()
    size = 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
    return size, digest.hexdigest()
