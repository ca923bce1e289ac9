"""Results of an earlier export by content: tables of a tokenizer, proofs. Fine-tunes share them."""

from __future__ import annotations

import hashlib
import os
import secrets
from pathlib import Path

HASH_BYTES = hashlib.sha256().digest_size


class ResultCache:
    """A directory of results. Safe for several exporters at once: entries appear by rename. A key
    covers all that its result depends on. Nothing is kept where `folder` is None."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def get(self, key: str) -> bytes | None:
        """The result, or None if there is none or it is damaged."""
        if self._folder is None:
            return None
        try:
            entry = (self._folder / key).read_bytes()
        except OSError:
            return None
        data = entry[HASH_BYTES:]
        return data if hashlib.sha256(data).digest() == entry[:HASH_BYTES] else None

    def put(self, key: str, data: bytes) -> None:
        """A cache that cannot be written is not an error."""
        if self._folder is None:
            return
        staging = self._folder / f".{key[:16]}-{secrets.token_hex(4)}"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            staging.write_bytes(hashlib.sha256(data).digest() + data)
            os.replace(staging, self._folder / key)
        except OSError:
            staging.unlink(missing_ok=True)


def key_of(*parts: bytes) -> str:
    """A key that differs where any of the parts does."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(hashlib.sha256(part).digest())
    return digest.hexdigest()
