"""The container of `tokenizer.bin`: sections, hashes and arrays that the engine maps as they are.

Layout (little endian): magic `PINFTOK1`, u32 format version, u32 number of sections, u64 file size,
then one entry per section (u32 id, u32 zero, u64 offset, u64 size), then the sections, each at a
multiple of 64 bytes. engine_cpp/tokenizer/tokenizer_file.h is the reader and names the same ids.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

MAGIC = b"PINFTOK1"
FORMAT_VERSION = 1
ALIGNMENT = 64
HASH_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


class Section(IntEnum):
    """Ids of the sections; numbers are never used for anything else again."""

    CONFIG = 1  # UTF-8 JSON: model parameters, normalizer, pre-tokenizer, decoder, added ids
    TOKEN_OFFSETS = 2  # u32[vocab_size + 1] into TOKEN_BYTES
    TOKEN_BYTES = 3  # the text of every token, by id
    TOKEN_FLAGS = 4  # u8[vocab_size], see TokenFlag
    TOKEN_HASH = 5  # u32[2^k]: id + 1 or 0; keys: the text of the model's tokens
    SURFACE_OFFSETS = 6  # u32[vocab_size + 1] into SURFACE_BYTES
    SURFACE_BYTES = 7  # what a token adds to decoded text, for decoders that only join
    WORD_HASH = 8  # u32[2^k]: id + 1 or 0; keys: WORD_BYTES
    BYTE_IDS = 9  # i32[256]: the token of each single byte, or -1
    MERGES = 10  # {u32 left, u32 right, u32 rank, u32 merged}[2^k], empty: left = 0xFFFFFFFF
    CLASS_INDEX = 11  # u16[0x1100]: page of each block of 256 code points
    CLASS_PAGES = 12  # u64[256] per page: one bit per character class
    ADDED_TRIE_NODES = 13  # byte tries, see tokenizer_trie.py
    ADDED_TRIE_EDGES = 14
    NORMALIZED_TRIE_NODES = 15
    NORMALIZED_TRIE_EDGES = 16
    DECOMPOSITIONS = 17  # {u32 code point, u32 offset, u32 count}[n], sorted by code point
    DECOMPOSITION_DATA = 18  # u32 code points
    COMPOSITIONS = 19  # {u32 first, u32 second, u32 composed}[n], sorted
    COMBINING_CLASSES = 20  # {u32 code point, u32 class}[n], sorted by code point
    CHAR_MAPS = 21  # {u32 code point, u32 offset, u32 size}[n]: ranges named in CONFIG
    CHAR_MAP_DATA = 22  # UTF-8 replacement texts
    SCORES = 23  # f64[vocab_size]: Unigram
    MODEL_TRIE_NODES = 24  # Unigram and WordPiece vocabularies
    MODEL_TRIE_EDGES = 25
    PRECOMPILED_TRIE = 26  # u32 units of a SentencePiece double array
    PRECOMPILED_TEXT = 27  # its zero-terminated replacement texts
    WORD_OFFSETS = 28  # u32[vocab_size + 1] into WORD_BYTES
    WORD_BYTES = 29  # what a word must be to become a token at once, as the BPE model sees it


class TokenFlag(IntEnum):
    """Bits of TOKEN_FLAGS."""

    EXISTS = 1  # some token has this id
    IN_MODEL = 2  # the model's vocabulary has it (not only added)
    SPECIAL = 4  # left out by skip_special_tokens
    LSTRIP = 8  # an added token that takes the spaces before it
    RSTRIP = 16  # ... after it
    SINGLE_WORD = 32  # ... and only stands alone
    BYTE = 64  # stands for one byte in decoded text


def hash_strings(strings: Sequence[bytes]) -> NDArray[np.uint64]:
    """The engine's hash of each string: 8-byte little-endian words, the last padded with zeros."""
    count = len(strings)
    lengths = np.fromiter((len(s) for s in strings), dtype=np.uint64, count=count)
    order = np.argsort(lengths, kind="stable")[::-1]
    num_words = ((lengths + np.uint64(7)) // np.uint64(8)).astype(np.int64)
    hashes = lengths * HASH_MULTIPLIER
    start = 0
    sorted_words = num_words[order]
    # Strings of one word count are hashed together, so that the arrays stay small.
    while start < count:
        words = int(sorted_words[start])
        stop = start + int(np.searchsorted(-sorted_words[start:], -words, side="right"))
        members = order[start:stop]
        if words:
            joined = b"".join(strings[i].ljust(8 * words, b"\0") for i in members)
            matrix = np.frombuffer(joined, dtype="<u8").reshape(len(members), words)
            value = hashes[members]
            for column in range(words):
                value = (value ^ matrix[:, column]) * HASH_MULTIPLIER
                value ^= value >> np.uint64(32)
            hashes[members] = value
        start = stop
    return hashes


def hash_pairs(left: NDArray[np.uint64], right: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The engine's hash of a pair of token ids."""
    value = ((left << np.uint64(32)) | right) * HASH_MULTIPLIER
    return value ^ (value >> np.uint64(32))


def place_in_hash_table(hashes: NDArray[np.uint64]) -> tuple[int, NDArray[np.int64]]:
    """Linear probing for all keys at once: (capacity, slot of each key)."""
    capacity = 16
    while capacity < 2 * len(hashes):
        capacity *= 2
    mask = np.uint64(capacity - 1)
    slots = (hashes & mask).astype(np.int64)
    taken = np.zeros(capacity, dtype=bool)
    pending = np.arange(len(hashes))
    while len(pending):
        wanted = slots[pending]
        free = ~taken[wanted]
        _, first = np.unique(wanted[free], return_index=True)
        winners = pending[free][first]
        taken[slots[winners]] = True
        pending = np.setdiff1d(pending, winners, assume_unique=True)
        # A key moves on only from a slot that is taken, as a lookup will do.
        moved = taken[slots[pending]]
        slots[pending[moved]] = (slots[pending[moved]] + 1) % capacity
    return capacity, slots


def string_hash_table(strings: Sequence[bytes], ids: Sequence[int]) -> bytes:
    """u32 slots holding id + 1, 0 where empty."""
    capacity, slots = place_in_hash_table(hash_strings(strings))
    table = np.zeros(capacity, dtype="<u4")
    table[slots] = np.asarray(ids, dtype=np.uint32) + 1
    return table.tobytes()


def merge_hash_table(merges: NDArray[np.uint32]) -> bytes:
    """Slots {left, right, rank, merged} for an array [n, 4] of unique pairs."""
    wide = merges.astype(np.uint64)
    capacity, slots = place_in_hash_table(hash_pairs(wide[:, 0], wide[:, 1]))
    table = np.zeros((capacity, 4), dtype="<u4")
    table[:, 0] = 0xFFFFFFFF
    table[slots] = merges
    return table.tobytes()


def string_table(strings: Sequence[bytes]) -> tuple[bytes, bytes]:
    """(u32 offsets [n + 1], joined bytes)."""
    offsets = np.zeros(len(strings) + 1, dtype="<u4")
    np.cumsum([len(s) for s in strings], out=offsets[1:])
    return offsets.tobytes(), b"".join(strings)


def write_container(sections: dict[Section, bytes]) -> bytes:
    """The whole file from its sections."""
    header_size = 24 + 24 * len(sections)
    offset = -(-header_size // ALIGNMENT) * ALIGNMENT
    entries: list[bytes] = []
    body: list[bytes] = []
    position = offset
    for section, data in sorted(sections.items()):
        padded = -(-len(data) // ALIGNMENT) * ALIGNMENT
        entries.append(struct.pack("<IIQQ", int(section), 0, position, len(data)))
        body.append(data.ljust(padded, b"\0"))
        position += padded
    header = MAGIC + struct.pack("<IIQ", FORMAT_VERSION, len(sections), position)
    return (header + b"".join(entries)).ljust(offset, b"\0") + b"".join(body)
