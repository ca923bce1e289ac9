"""Unicode as the `tokenizers` wheel sees it: classes and mappings found by asking the wheel itself.

Unicode tables differ between versions and libraries, so none of our own are used: each class is
evaluated by the wheel over all code points, once per export. Planes that hold no characters
(4 to 13) and the private ones are asked at both ends only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from tokenizers import NormalizedString, PreTokenizedString, Regex, pre_tokenizers

from pinfer.export.errors import ExportError

MAX_CODE_POINT = 0x10FFFF
NUM_BLOCKS = (MAX_CODE_POINT + 1) // 256
MAX_CLASSES = 64
_SURROGATES = range(0xD800, 0xE000)
FULL_PLANES = (0, 1, 2, 3, 14)
_EDGE = 512

BoolArray = NDArray[np.bool_]


@lru_cache(maxsize=1)
def probed_code_points() -> tuple[int, ...]:
    """The code points that are asked one by one."""
    points: list[int] = []
    for plane in range(17):
        first = plane << 16
        if plane in FULL_PLANES:
            points += [p for p in range(first, first + 0x10000) if p not in _SURROGATES]
        else:
            points += range(first, first + _EDGE)
            points += range(first + 0x10000 - _EDGE, first + 0x10000)
    return tuple(points)


@lru_cache(maxsize=1)
def _probe_text() -> str:
    return "".join(map(chr, probed_code_points()))


@lru_cache(maxsize=1)
def _probe_string() -> NormalizedString:
    return NormalizedString(_probe_text())


def _spread(probed: BoolArray) -> BoolArray:
    """From the probed code points to all."""
    members = np.zeros(MAX_CODE_POINT + 1, dtype=bool)
    members[np.asarray(probed_code_points())] = probed
    return spread_members(members)


def spread_members(members: BoolArray) -> BoolArray:
    """Fills what was not probed, in place: the middle of a sparse plane is like its start."""
    for plane in range(17):
        if plane not in FULL_PLANES:
            first = plane << 16
            members[first + _EDGE : first + 0x10000 - _EDGE] = members[first + _EDGE - 1]
    return members


@lru_cache(maxsize=256)
def regex_members(pattern: str) -> BoolArray:
    """Which code points the one-character pattern matches."""
    try:
        regex = Regex(f"(?:{pattern})+")
    except Exception as error:
        raise ExportError(f"pattern '{pattern}': {error}") from error
    probed = np.zeros(len(probed_code_points()), dtype=bool)
    # Runs of members and of others alternate; what the first run is, its first character tells.
    is_member = not NormalizedString("\0").split(regex, "removed")
    position = 0
    for piece in _probe_string().split(regex, "isolated"):
        length = len(piece.normalized)
        probed[position : position + length] = is_member
        position += length
        is_member = not is_member
    return _spread(probed)


def _removed_members(pre_tokenizer: pre_tokenizers.PreTokenizer) -> BoolArray:
    probed = np.ones(len(probed_code_points()), dtype=bool)
    for _, (start, stop) in pre_tokenizer.pre_tokenize_str(_probe_text()):
        probed[start:stop] = False
    return _spread(probed)


@lru_cache(maxsize=1)
def space_members() -> BoolArray:
    """White space, as WhitespaceSplit, Strip and added tokens see it."""
    return _removed_members(pre_tokenizers.WhitespaceSplit())


@lru_cache(maxsize=1)
def punctuation_members() -> BoolArray:
    """Punctuation, as Punctuation and BertPreTokenizer see it."""
    return _removed_members(pre_tokenizers.Punctuation(behavior="removed"))


@lru_cache(maxsize=1)
def digit_members() -> BoolArray:
    """Digits, as Digits sees them."""
    probed = np.zeros(len(probed_code_points()) + 2, dtype=bool)
    # The letter and the digit in front say what the first two runs are; then they alternate.
    is_member = False
    for _, (start, stop) in pre_tokenizers.Digits().pre_tokenize_str("a0" + _probe_text()):
        probed[start:stop] = is_member
        is_member = not is_member
    return _spread(probed[2:])


@lru_cache(maxsize=1)
def word_members() -> BoolArray:
    """The letters of words, as the pre-tokenizer Whitespace sees them."""
    letters = np.zeros(len(probed_code_points()), dtype=bool)
    # Between two letters, a letter makes one piece of three; anything else leaves them apart.
    text = " ".join(f"a{char}a" for char in _probe_text())
    pieces = PreTokenizedString(text)
    pre_tokenizers.Whitespace().pre_tokenize(pieces)
    starts = np.cumsum([0] + [3 + len(char.encode()) for char in _probe_text()])[:-1]
    position_of = {int(start): index for index, start in enumerate(starts)}
    for piece, (start, _), _ in pieces.get_splits(offset_type="byte"):
        index = position_of.get(start)
        if index is not None and len(piece) == 3:
            letters[index] = True
    return _spread(letters)


class CharClasses:
    """The classes of one tokenizer: a bit each, and the table from code point to bits."""

    def __init__(self) -> None:
        self._bits: dict[str, int] = {}
        self._members: list[BoolArray] = []

    def add(self, key: str, evaluate: Callable[[], BoolArray]) -> int:
        """The bit of the class called `key`; classes with the same members share one."""
        if key not in self._bits:
            members = evaluate()
            for bit, other in enumerate(self._members):
                if np.array_equal(members, other):
                    self._bits[key] = bit
                    return bit
            if len(self._members) == MAX_CLASSES:
                raise ExportError(f"tokenizer: more than {MAX_CLASSES} character classes")
            self._members.append(members)
            self._bits[key] = len(self._members) - 1
        return self._bits[key]

    def regex(self, pattern: str) -> int:
        return self.add(f"regex {pattern}", lambda: regex_members(pattern))

    def characters(self, characters: Iterable[str]) -> int:
        points = sorted(ord(char) for char in characters)

        def evaluate() -> BoolArray:
            members = np.zeros(MAX_CODE_POINT + 1, dtype=bool)
            members[points] = True
            return members

        return self.add(f"characters {points}", evaluate)

    def members(self, bit: int) -> BoolArray:
        return self._members[bit]

    @staticmethod
    def matches_any(pattern: str) -> bool:
        """Whether some single code point matches the whole pattern."""
        return bool(regex_members(pattern).any())

    def tables(self) -> tuple[bytes, bytes]:
        """(u16 page of each block of 256 code points, u64[256] per page)."""
        masks = np.zeros(MAX_CODE_POINT + 1, dtype="<u8")
        for bit, members in enumerate(self._members):
            masks[members] |= np.uint64(1 << bit)
        pages: dict[bytes, int] = {}
        index = [pages.setdefault(b.tobytes(), len(pages)) for b in masks.reshape(NUM_BLOCKS, 256)]
        return np.asarray(index, dtype="<u2").tobytes(), b"".join(pages)
