"""The component types of tokenizer.json that can be compiled; all others are refused by name.

The wheel's own messages do not name an unknown type, so the names are looked at before it reads
the file.
"""

from __future__ import annotations

import base64
import binascii
import struct
from typing import Any

from tokenizers import Regex

from pinfer.export.errors import ExportError

MODELS = ("BPE", "Unigram", "WordPiece", "WordLevel")
# By field of tokenizer.json: the types, and where a Sequence keeps its parts.
COMPONENTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "normalizer": (
        "normalizers",
        ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Strip", "StripAccents", "Prepend", "Replace",
         "Precompiled", "BertNormalizer", "ByteLevel", "Nmt"),
    ),
    "pre_tokenizer": (
        "pretokenizers",
        ("Split", "ByteLevel", "Metaspace", "Digits", "Whitespace", "WhitespaceSplit",
         "Punctuation", "BertPreTokenizer", "CharDelimiterSplit", "FixedLength"),
    ),
    "post_processor": (
        "processors",
        ("TemplateProcessing", "ByteLevel", "RobertaProcessing", "BertProcessing"),
    ),
    "decoder": (
        "decoders",
        ("ByteLevel", "ByteFallback", "Fuse", "Metaspace", "Strip", "Replace", "WordPiece"),
    ),
}  # fmt: skip


def check_component_names(data: dict[str, Any]) -> None:
    """ExportError naming the first type that cannot be compiled, or a pattern that is wrong."""
    model_type = data["model"].get("type")
    if model_type is not None and model_type not in MODELS:
        raise _unsupported("model", model_type, MODELS)
    for field in COMPONENTS:
        if data.get(field) is not None:
            _check_component(field, data[field])


def _check_component(field: str, component: Any) -> None:
    parts_name, types = COMPONENTS[field]
    kind = component.get("type") if isinstance(component, dict) else None
    if kind == "Sequence":
        parts = component.get(parts_name)
        if not isinstance(parts, list):
            raise ExportError(f"tokenizer.json: {field}.{parts_name}: expected a list")
        for part in parts:
            _check_component(field, part)
        return
    if kind not in types:
        raise _unsupported(field, kind, (*types, "Sequence"))
    if kind == "Precompiled":
        split_charsmap(component)
    pattern = component.get("pattern")
    if isinstance(pattern, dict) and "Regex" in pattern:
        try:
            Regex(pattern["Regex"])
        except Exception as error:
            raise ExportError(
                f"tokenizer.json: {field}: pattern {pattern['Regex']!r}: {error}"
            ) from error


def split_charsmap(component: dict[str, Any]) -> tuple[bytes, bytes]:
    """(trie, texts) of a Precompiled normalizer's map."""
    field = "tokenizer.json: normalizer.precompiled_charsmap"
    try:
        charsmap = base64.b64decode(component["precompiled_charsmap"], validate=True)
        (trie_size,) = struct.unpack_from("<I", charsmap)
    except (binascii.Error, struct.error, TypeError, KeyError) as error:
        raise ExportError(f"{field}: not a character map: {error}") from error
    trie, texts = charsmap[4 : 4 + trie_size], charsmap[4 + trie_size :]
    if trie_size % 4 or len(trie) != trie_size or not texts:
        raise ExportError(
            f"{field}: expected a trie of {trie_size} bytes (a multiple of 4) and texts, "
            f"found {len(trie)} and {len(texts)} bytes"
        )
    return trie, texts


def _unsupported(field: str, kind: Any, supported: tuple[str, ...]) -> ExportError:
    return ExportError(
        f"tokenizer.json: {field}: type {kind!r} is not supported "
        f"(supported: {', '.join(supported)})"
    )
