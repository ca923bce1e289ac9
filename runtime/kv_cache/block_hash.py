"""Keys of the prefix cache: SHA-256 chained over everything before a block's end.

root  = SHA-256("pinfer block hash 1" NUL, block size, salt length, salt)
key_j = SHA-256(key_{j-1}, the block's token ids),  key_{-1} = root
with numbers as little-endian 32 bits. The encoding is injective, so two blocks have equal keys
exactly if block size, salt and all tokens up to the block's end are equal.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence

from pinfer.runtime.core.request import Request


def root_block_hash(block_size: int, cache_salt: str) -> bytes:
    salt = cache_salt.encode()
    header = b"pinfer block hash 1\0" + struct.pack("<II", block_size, len(salt))
    return hashlib.sha256(header + salt).digest()


def hash_block(parent: bytes, token_ids: Sequence[int]) -> bytes:
    return hashlib.sha256(parent + struct.pack(f"<{len(token_ids)}i", *token_ids)).digest()


def extend_block_hashes(request: Request, block_size: int, num_blocks: int) -> None:
    """Extends request.block_hashes to its first num_blocks blocks, which must be full."""
    hashes = request.block_hashes
    while len(hashes) < num_blocks:
        parent = hashes[-1] if hashes else root_block_hash(block_size, request.cache_salt)
        start = len(hashes) * block_size
        hashes.append(hash_block(parent, request.all_token_ids[start : start + block_size]))
