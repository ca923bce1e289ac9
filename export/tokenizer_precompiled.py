"""The Precompiled normalizer: SentencePiece's character map, cut at grapheme clusters."""

from __future__ import annotations

import struct
from functools import lru_cache, partial
from typing import Any

import numpy as np
from tokenizers import normalizers

from pinfer.export.tokenizer_components import split_charsmap
from pinfer.export.tokenizer_format import Section
from pinfer.export.tokenizer_normal_forms import NormalFormTables
from pinfer.export.tokenizer_patterns import compile_pattern
from pinfer.export.tokenizer_unicode import (
    MAX_CODE_POINT,
    BoolArray,
    CharClasses,
    probed_code_points,
)

# The names that the pattern below gives to classes that are found by asking the wheel.
_NAMES = ("control", "prepend", "tail", "picture", "other", "lv", "lvt")
_CONTROL, _PREPEND, _TAIL, _PICTURE, _OTHER, _LV, _LVT = (
    rf"\p{{grapheme_{name}}}" for name in _NAMES
)
_LEAD, _VOWEL, _TRAIL = (
    r"[\x{1100}-\x{115F}\x{A960}-\x{A97C}]",
    r"[\x{1160}-\x{11A7}\x{D7B0}-\x{D7C6}]",
    r"[\x{11A8}-\x{11FF}\x{D7CB}-\x{D7FB}]",
)
# Clusters of more than 5 bytes are mapped character by character, so they need not be found whole:
# the pattern leaves out flags and cares about joined pictures only as far as short ones go.
GRAPHEME_PATTERN = (
    rf"\r\n|{_CONTROL}|{_PREPEND}*"
    rf"(?:{_LEAD}*(?:{_VOWEL}+|{_LV}{_VOWEL}*|{_LVT}){_TRAIL}*|{_LEAD}+|{_TRAIL}+"
    rf"|{_PICTURE}{_TAIL}*\x{{200d}}{_PICTURE}|{_OTHER}){_TAIL}*"
    rf"|{_PREPEND}+{_TAIL}*"
)
_ACUTE, _JOINER, _COPYRIGHT = "\u0301", "\u200d", "\u00a9"
_FIRST_SYLLABLE, _LAST_SYLLABLE = 0xAC00, 0xD7A3
_LINE_CODES = (0x00, 0x0A, 0x0D)  # known to stand alone; zero ends a key


def _everything_to_x() -> bytes:
    """A character map that replaces each probed code point (line ends apart) by 'X'.

    All entries share one value; a node of the trie owns a block of 256 units.
    """
    units = [0] * 512
    value_index = 256
    units[value_index] = 1 << 31
    bases: dict[bytes, int] = {b"": 0}
    for point in probed_code_points():
        if point in _LINE_CODES:
            continue
        key = chr(point).encode()
        for end in range(1, len(key)):
            if key[:end] not in bases:
                index = bases[key[: end - 1]] ^ key[end - 1]
                bases[key[:end]] = len(units)
                units[index] = (index ^ len(units)) << 10 | key[end - 1]
                units += [0] * 256
        index = bases[key[:-1]] ^ key[-1]
        units[index] = (index ^ value_index) << 10 | 1 << 8 | key[-1]
    return struct.pack(f"<I{len(units)}I", 4 * len(units), *units) + b"X\0"


@lru_cache(maxsize=1)
def _grapheme_members() -> dict[str, BoolArray]:
    """Classes of grapheme cluster breaking. A short cluster is replaced whole: that shows it."""
    normalizer = normalizers.Precompiled(_everything_to_x())
    points = [p for p in probed_code_points() if p not in _LINE_CODES]

    def where(before: str, after: str, expected: str) -> BoolArray:
        text = "\n".join(before + chr(p) + after for p in points)
        members = np.zeros(MAX_CODE_POINT + 1, dtype=bool)
        answers = normalizer.normalize_str(text).split("\n")
        members[[p for p, a in zip(points, answers, strict=True) if a == expected]] = True
        return members

    tail = where("a", "", "X")
    prepend = where("", "a", "X")
    # Joined to (c) by a joiner, a picture makes a cluster too long to be replaced whole.
    picture = where(_COPYRIGHT + _JOINER, "", "XXX") & ~tail
    control = where("", _ACUTE, "XX")
    # Behind 4 bytes a mark makes any cluster too long: whether it would join makes no difference.
    control[0x10000:] = False
    control[list(_LINE_CODES)] = True
    control &= ~tail & ~prepend
    syllables = np.zeros(MAX_CODE_POINT + 1, dtype=bool)
    syllables[_FIRST_SYLLABLE : _LAST_SYLLABLE + 1] = True
    open_syllables = np.zeros_like(syllables)
    open_syllables[_FIRST_SYLLABLE : _LAST_SYLLABLE + 1 : 28] = True
    return {
        "lv": open_syllables,
        "lvt": syllables & ~open_syllables,
        "tail": tail,
        "prepend": prepend,
        "picture": picture,
        "control": control,
        "other": ~control & ~prepend,
    }


def precompiled_step(
    component: dict[str, Any], classes: CharClasses, tables: NormalFormTables
) -> dict[str, Any]:
    """The step, its map stored in `tables`."""
    trie, text = split_charsmap(component)
    for name in _NAMES:
        classes.add(rf"regex \p{{grapheme_{name}}}", partial(_grapheme_members().__getitem__, name))
    program = compile_pattern(GRAPHEME_PATTERN, classes)
    step = {"step": "precompiled", "graphemes": {"program": program}}
    tables.add_sections({Section.PRECOMPILED_TRIE: trie, Section.PRECOMPILED_TEXT: text})
    return step
