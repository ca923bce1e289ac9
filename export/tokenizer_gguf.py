"""Rebuilds a tokenizer.json from the metadata of a GGUF file.

GGUF keeps the tokens, scores or merges, and the name of the splitting rule; the rest is restored
here as the model's own tokenizer.json has it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import UnionType
from typing import Any

from pinfer.export.errors import ExportError
from pinfer.export.tokenizer_decoder import bytes_of_token
from pinfer.export.tokenizer_merges import merges_from_vocabulary

_TOKEN_NORMAL = 1
_TOKEN_UNKNOWN = 2
_TOKEN_CONTROL = 3
_TOKEN_USER_DEFINED = 4

_BRACKETED = re.compile(r"<.+>|\[.+\]")

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_LLAMA3 = (
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}"
    rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"
)
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
_QWEN35 = (
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACES}"
)


def _cased_words(contractions: str, digits: str) -> str:
    """The patterns that cut words where lower case turns to upper case."""
    return (
        rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{contractions}"
        rf"|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{contractions}"
        rf"|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
    )


_GPT4O = _cased_words(_CONTRACTIONS + "?", r"\p{N}{1,3}")
_TEKKEN = _cased_words("", r"\p{N}")

# Names of tokenizer.ggml.pre by the way they split.
_GPT2_NAMES = {"default", "gpt-2", "gpt2", "phi-2", "olmo", "mpt", "roberta-bpe", "jina-v2-code"}
_DIGIT_NAMES = {"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"}
_PATTERNS: dict[str, str] = {
    **dict.fromkeys(
        [
            "llama-bpe",
            "llama3",
            "llama-v3",
            "falcon3",
            "falcon-h1",
            "pixtral",
            "dbrx",
            "smaug-bpe",
            "lfm2",
            "midm-2.0",
            "jina-v5-nano",
        ],
        _LLAMA3,
    ),
    **dict.fromkeys(["qwen2", "deepseek-r1-qwen", "megrez", "kormo", "f2llmv2"], _QWEN2),
    "qwen35": _QWEN35,
    **dict.fromkeys(["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"], _GPT4O),
    "tekken": _TEKKEN,
}
_IGNORE_MERGES = {"llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral", "tekken"}
_ADDS_BOS = {"llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral", "tekken"}
_NORMALIZES_NFC = {"qwen2", "deepseek-r1-qwen", "megrez", "kormo", "f2llmv2", "qwen35"}


def tokenizer_from_gguf(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The tokenizer.json object; `fields` maps GGUF keys to their values."""
    kind = fields.get("tokenizer.ggml.model")
    tokens = _list(fields, "tokens", str)
    if not tokens:
        raise ExportError("GGUF: tokenizer.ggml.tokens: expected a list of tokens, found none")
    if kind == "gpt2":
        return _byte_level(fields, tokens)
    if kind == "llama":
        return _sentencepiece(fields, tokens)
    raise ExportError(
        f"GGUF: tokenizer.ggml.model: expected 'gpt2' or 'llama', found {kind!r} (not supported)"
    )


def _list(fields: Mapping[str, Any], key: str, kind: type | UnionType) -> list[Any] | None:
    """A list of the file whose items are of the kind; None if it is not there."""
    values = fields.get(f"tokenizer.ggml.{key}")
    if values is None:
        return None
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise ExportError(f"GGUF: tokenizer.ggml.{key}: expected a list, found {values!r}")
    for index, value in enumerate(values):
        if not isinstance(value, kind) or isinstance(value, bool):
            wanted = _KIND_NAMES[kind]
            raise ExportError(
                f"GGUF: tokenizer.ggml.{key}[{index}]: expected {wanted}, found {value!r}"
            )
    return list(values)


_KIND_NAMES = {str: "text", int: "an integer", int | float: "a number"}


def _merges(fields: Mapping[str, Any]) -> list[list[str]] | None:
    merges = _list(fields, "merges", str)
    if merges is None:
        return None
    for index, merge in enumerate(merges):
        if " " not in merge:
            raise ExportError(
                f"GGUF: tokenizer.ggml.merges[{index}]: expected two parts, found {merge!r}"
            )
    return [merge.split(" ", 1) for merge in merges]


def _byte_level_component(use_regex: bool) -> dict[str, Any]:
    settings = {"add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}
    return {"type": "ByteLevel", **settings}


def _sequence(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "pretokenizers": list(parts)}


def _byte_level_pre_tokenizer(pre: str) -> dict[str, Any]:
    if pre in _GPT2_NAMES:
        return _byte_level_component(use_regex=True)
    if pre in _DIGIT_NAMES:
        digits = {"type": "Digits", "individual_digits": True}
        return _sequence(digits, _byte_level_component(use_regex=True))
    if pre in _PATTERNS:
        pattern = {"Regex": _PATTERNS[pre]}
        split = {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}
        return _sequence(split, _byte_level_component(use_regex=False))
    known = sorted(_GPT2_NAMES | _DIGIT_NAMES | set(_PATTERNS))
    raise ExportError(
        f"GGUF: tokenizer.ggml.pre: {pre!r} is not supported (known: {', '.join(known)})"
    )


def _byte_level(fields: Mapping[str, Any], tokens: list[str]) -> dict[str, Any]:
    pre = fields.get("tokenizer.ggml.pre") or "default"
    merges = _merges(fields)
    if merges is None:
        raise ExportError("GGUF: tokenizer.ggml.merges: expected a list, found none")
    model = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": "",
        "end_of_word_suffix": "",
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": pre in _IGNORE_MERGES,
        "vocab": _vocabulary(tokens),
        "merges": merges,
    }
    # A control token outside the byte alphabet that does not look like one is mislabelled.
    added = [
        entry
        for entry in _added_tokens(fields, tokens)
        if bytes_of_token(entry["content"]) or _BRACKETED.fullmatch(entry["content"])
    ]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": {"type": "NFC"} if pre in _NORMALIZES_NFC else None,
        "pre_tokenizer": _byte_level_pre_tokenizer(pre),
        "post_processor": _post_processor(fields, tokens, adds_bos=pre in _ADDS_BOS),
        "decoder": {**_byte_level_component(use_regex=True), "add_prefix_space": True},
        "model": model,
    }


def _sentencepiece(fields: Mapping[str, Any], tokens: list[str]) -> dict[str, Any]:
    kinds = _list(fields, "token_type", int) or []
    is_gemma = str(fields.get("general.architecture", "")).startswith("gemma")
    if is_gemma:
        # Runs of spaces are stored as spaces.
        tokens = ["▁" * len(t) if " " in t and not t.strip() else t for t in tokens]
    pairs = _merges(fields)
    if pairs is None:
        scores = _gemma_scores(kinds, len(tokens)) if is_gemma else _scores(fields, len(tokens))
        pairs = merges_from_vocabulary(tokens, scores, longest_first=is_gemma)
    unknown_id = _token_id(fields, "unknown_token_id", len(tokens), default=0)
    adds_space = bool(fields.get("tokenizer.ggml.add_space_prefix", not is_gemma))
    model = {
        "type": "BPE",
        "dropout": None,
        "unk_token": tokens[unknown_id],
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": True,
        "byte_fallback": True,
        "ignore_merges": False,
        "vocab": _vocabulary(tokens),
        "merges": pairs,
    }
    spaces = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    prepend = {"type": "Prepend", "prepend": "▁"}
    decoders: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if adds_space:
        decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added_tokens(fields, tokens, (_TOKEN_CONTROL, _TOKEN_UNKNOWN)),
        "normalizer": {"type": "Sequence", "normalizers": [prepend, spaces]}
        if adds_space
        else spaces,
        "pre_tokenizer": None,
        "post_processor": _post_processor(fields, tokens, adds_bos=True),
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": model,
    }


def _scores(fields: Mapping[str, Any], num_tokens: int) -> list[float]:
    scores = _list(fields, "scores", int | float)
    if scores is None or len(scores) != num_tokens:
        found = "none" if scores is None else f"{len(scores)} for {num_tokens} tokens"
        raise ExportError(
            f"GGUF: tokenizer.ggml.scores: expected one score per token, found {found}"
        )
    return scores


def _gemma_scores(kinds: Sequence[int], num_tokens: int) -> list[float]:
    """As in Gemma's own model file: its converter overwrites those of user-defined tokens, which
    are 0. The others fall by one from token to token, from the first that is a word or a letter."""
    kinds = [*kinds, *[_TOKEN_NORMAL] * (num_tokens - len(kinds))]
    first = kinds.index(_TOKEN_NORMAL) if _TOKEN_NORMAL in kinds else 0
    return [
        0.0 if kind == _TOKEN_USER_DEFINED else float(first - index)
        for index, kind in enumerate(kinds[:num_tokens])
    ]


def _token_id(
    fields: Mapping[str, Any], key: str, num_tokens: int, default: int | None = None
) -> int:
    token_id = fields.get(f"tokenizer.ggml.{key}", default)
    is_id = isinstance(token_id, int) and not isinstance(token_id, bool)
    if not is_id or not 0 <= token_id < num_tokens:
        raise ExportError(f"GGUF: tokenizer.ggml.{key}: expected a token id, found {token_id}")
    return token_id


def _vocabulary(tokens: list[str]) -> dict[str, int]:
    vocabulary: dict[str, int] = {}
    for token_id, token in enumerate(tokens):
        if token in vocabulary:
            raise ExportError(
                f"GGUF: tokenizer.ggml.tokens: {token!r} stands at {vocabulary[token]} "
                f"and {token_id}"
            )
        vocabulary[token] = token_id
    return vocabulary


def _added_tokens(
    fields: Mapping[str, Any], tokens: list[str], special: tuple[int, ...] = (_TOKEN_CONTROL,)
) -> list[dict[str, Any]]:
    kinds = _list(fields, "token_type", int) or []
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return [
        {"id": token_id, "content": token, **flags, "special": kind in special}
        for token_id, (token, kind) in enumerate(zip(tokens, kinds, strict=False))
        if token and (kind in special or kind == _TOKEN_USER_DEFINED)
    ]


def _post_processor(
    fields: Mapping[str, Any], tokens: list[str], adds_bos: bool
) -> dict[str, Any] | None:
    parts: list[dict[str, Any]] = [{"Sequence": {"id": "A", "type_id": 0}}]
    special: dict[str, Any] = {}

    def put(position: int, key: str) -> None:
        token_id = _token_id(fields, key, len(tokens))
        token = tokens[token_id]
        parts.insert(position, {"SpecialToken": {"id": token, "type_id": 0}})
        special[token] = {"id": token, "ids": [token_id], "tokens": [token]}

    if fields.get("tokenizer.ggml.add_bos_token", adds_bos):
        put(0, "bos_token_id")
    if fields.get("tokenizer.ggml.add_eos_token", False):
        put(len(parts), "eos_token_id")
    if not special:
        return None
    return {"type": "TemplateProcessing", "single": parts, "pair": parts, "special_tokens": special}
