"""Tables of the Unicode normal forms and of character maps, read off the wheel's normalizers."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import numpy as np
from tokenizers import normalizers

from pinfer.export.errors import ExportError
from pinfer.export.tokenizer_format import Section
from pinfer.export.tokenizer_unicode import (
    FULL_PLANES,
    MAX_CODE_POINT,
    BoolArray,
    CharClasses,
    probed_code_points,
    spread_members,
)

# One old character of each combining class; the class of any other is found by where it sorts.
_CLASS_EXAMPLES = {
    1: 0x0334, 7: 0x093C, 8: 0x3099, 9: 0x094D, 10: 0x05B0, 11: 0x05B1, 12: 0x05B2, 13: 0x05B3,
    14: 0x05B4, 15: 0x05B5, 16: 0x05B6, 17: 0x05B7, 18: 0x05B8, 19: 0x05B9, 20: 0x05BB, 21: 0x05BC,
    22: 0x05BD, 23: 0x05BF, 24: 0x05C1, 25: 0x05C2, 26: 0xFB1E, 27: 0x064B, 28: 0x064C, 29: 0x064D,
    30: 0x064E, 31: 0x064F, 32: 0x0650, 33: 0x0651, 34: 0x0652, 35: 0x0670, 36: 0x0711, 84: 0x0C55,
    91: 0x0C56, 103: 0x0E38, 107: 0x0E48, 118: 0x0EB8, 122: 0x0EC8, 129: 0x0F71, 130: 0x0F72,
    132: 0x0F74, 202: 0x0321, 214: 0x1DCE, 216: 0x031B, 218: 0x302A, 220: 0x0316, 222: 0x059A,
    224: 0x302E, 226: 0x1D16D, 228: 0x05AE, 230: 0x0301, 232: 0x0315, 233: 0x035C, 234: 0x035D,
    240: 0x0345,
}  # fmt: skip
_HANGUL_SYLLABLES = range(0xAC00, 0xAC00 + 11172)
_HANGUL_SECONDS = (*range(0x1161, 0x1176), *range(0x11A8, 0x11C3))


def map_code_points(normalizer: normalizers.Normalizer, separator: str = "\n") -> dict[int, str]:
    """The code points that the normalizer changes when they stand alone, and into what.

    The separator keeps neighbours apart: the normalizer must leave it alone and make none.
    """
    points = [p for p in probed_code_points() if p != ord(separator)]
    parts = normalizer.normalize_str(separator.join(map(chr, points))).split(separator)
    if len(parts) != len(points):
        raise ExportError(f"tokenizer: a normalizer changes the separator {separator!r}")
    return {p: part for p, part in zip(points, parts, strict=True) if part != chr(p)}


@lru_cache(maxsize=1)
def combining_classes() -> dict[int, int]:
    """The combining class of every character that has one."""
    nfd = normalizers.NFD()
    last, second_last = chr(_CLASS_EXAMPLES[240]), chr(_CLASS_EXAMPLES[230])
    points = [p for p in probed_code_points() if p != 0x0A]

    def normalize_each(texts: Iterable[str]) -> list[str]:
        return nfd.normalize_str("\n".join(texts)).split("\n")

    # A mark is what moves over a mark of another class: the last class for all but itself.
    before = normalize_each(last + chr(p) for p in points)
    after = normalize_each(chr(p) + second_last for p in points)
    alone = normalize_each(map(chr, points))
    marks = [
        point
        for point, pair, swapped, single in zip(points, before, after, alone, strict=True)
        # What has a decomposition takes the classes of its parts.
        if single == chr(point) and (pair[0] != last or swapped[-1] != second_last)
    ]
    result: dict[int, int] = {}
    for value, example in _CLASS_EXAMPLES.items():
        pairs = [chr(p) + chr(example) for p in marks]
        swaps = [chr(example) + chr(p) for p in marks]
        for point, pair, swap, new_pair, new_swap in zip(
            marks, pairs, swaps, normalize_each(pairs), normalize_each(swaps), strict=True
        ):
            if pair == new_pair and swap == new_swap:
                result[point] = value
    unknown = [f"U+{p:04X}" for p in marks if p not in result]
    if unknown:
        raise ExportError(f"tokenizer: combining class of {', '.join(unknown)} is unknown")
    return result


@lru_cache(maxsize=1)
def compositions() -> list[tuple[int, int, int]]:
    """(first, second, composed) for every pair that NFC joins, Hangul apart."""
    nfc = normalizers.NFC()
    result: list[tuple[int, int, int]] = []
    for point, parts in map_code_points(normalizers.NFD()).items():
        if point in _HANGUL_SYLLABLES or len(parts) < 2 or nfc.normalize_str(parts) != chr(point):
            continue
        prefix = nfc.normalize_str(parts[:-1])
        if len(prefix) != 1:
            raise ExportError(f"tokenizer: composition of U+{point:04X} is not of two characters")
        result.append((ord(prefix), ord(parts[-1]), point))
    return sorted(result)


class NormalFormTables:
    """Collects the tables that the normalizers of one tokenizer need."""

    def __init__(self, classes: CharClasses) -> None:
        self._classes = classes
        self._decompositions: list[tuple[int, int, int]] = []
        self._decomposition_data: list[int] = []
        self._char_maps: list[tuple[int, int, int]] = []
        self._char_map_data = bytearray()
        self._forms: dict[str, tuple[int, int]] = {}
        self._uses_forms = False
        self._extra: dict[Section, bytes] = {}

    def add_sections(self, sections: dict[Section, bytes]) -> None:
        """Sections of which a tokenizer has one: a second one that differs is refused."""
        for section, data in sections.items():
            if self._extra.setdefault(section, data) != data:
                raise ExportError("tokenizer.json: two different Precompiled normalizers")

    def unicode_step(self, form: str) -> dict[str, object]:
        """The step for NFC, NFD, NFKC or NFKD."""
        self._uses_forms = True
        composes = form in ("NFC", "NFKC")
        begin, count = self._decomposition("NFKD" if "K" in form else "NFD")
        inert = self._classes.add(f"inert {form}", lambda: self._inert(form, composes))
        step = {"step": "unicode", "compose": composes, "begin": begin, "count": count}
        return {**step, "inert_class": inert}

    def _decomposition(self, form: str) -> tuple[int, int]:
        if form not in self._forms:
            begin = len(self._decompositions)
            for point, parts in sorted(map_code_points(getattr(normalizers, form)()).items()):
                if point in _HANGUL_SYLLABLES:
                    continue
                offset = len(self._decomposition_data)
                self._decomposition_data += map(ord, parts)
                self._decompositions.append((point, offset, len(parts)))
            self._forms[form] = (begin, len(self._decompositions) - begin)
        return self._forms[form]

    @staticmethod
    def _inert(form: str, composes: bool) -> BoolArray:
        members = np.ones(MAX_CODE_POINT + 1, dtype=bool)
        members[list(map_code_points(getattr(normalizers, form)()))] = False
        members[list(combining_classes())] = False
        if composes:
            members[[second for _, second, _ in compositions()]] = False
            members[list(_HANGUL_SECONDS)] = False
        return members

    def char_map_step(self, name: str, mapping: dict[int, str]) -> dict[str, object]:
        """The step that replaces each code point of `mapping` by its text.

        What has no entry in the table is removed, so that sparse planes, whose middle is not asked,
        need none.
        """
        begin = len(self._char_maps)
        for point, text in sorted(mapping.items()):
            if not text:
                continue
            if point >> 16 not in FULL_PLANES:
                raise ExportError(
                    f"tokenizer: {name} changes U+{point:04X} of a sparse plane into {text!r}"
                    " (expected it removed or left alone)"
                )
            data = text.encode()
            self._char_maps.append((point, len(self._char_map_data), len(data)))
            self._char_map_data += data

        def evaluate() -> BoolArray:
            members = np.zeros(MAX_CODE_POINT + 1, dtype=bool)
            members[list(mapping)] = True
            return spread_members(members)

        bit = self._classes.add(f"mapped by {name}", evaluate)
        return {
            "step": "char_map",
            "class": bit,
            "begin": begin,
            "count": len(self._char_maps) - begin,
        }

    def sections(self) -> dict[Section, bytes]:
        """The tables as sections of the file."""
        result = dict(self._extra)

        def put(section: Section, rows: object) -> None:
            result[section] = np.asarray(rows, dtype="<u4").tobytes()

        if self._uses_forms:
            put(Section.DECOMPOSITIONS, self._decompositions)
            put(Section.DECOMPOSITION_DATA, self._decomposition_data)
            put(Section.COMPOSITIONS, compositions())
            put(Section.COMBINING_CLASSES, sorted(combining_classes().items()))
        if self._char_maps:
            put(Section.CHAR_MAPS, self._char_maps)
            result[Section.CHAR_MAP_DATA] = bytes(self._char_map_data)
        return result
