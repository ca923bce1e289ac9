"""Rebuilds a tokenizer.json from the metadata of a GGUF file.

GGUF keeps the tokens, scores or merges, and the name of the splitting rule; the rest is restored
here as the model's own tokenizer.json has it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pinfer.export.errors import ExportError
from pinfer.export.tokenizer_decoder import bytes_of_token
from pinfer.export.tokenizer_merges import merges_from_vocabulary

_TOKEN_CONTROL = 3
_TOKEN_USER_DEFINED = 4

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
        ["llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral", "dbrx", "smaug-bpe", "lfm2"],
        _LLAMA3,
    ),
    **dict.fromkeys(["qwen2", "deepseek-r1-qwen", "megrez"], _QWEN2),
    "qwen35": _QWEN35,
    **dict.fromkeys(["gpt-4o", "llama4"], _GPT4O),
    "tekken": _TEKKEN,
}
_IGNORE_MERGES = {"llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral", "tekken"}
_ADDS_BOS = {"llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral", "tekken"}
_NORMALIZES_NFC = {"qwen2", "deepseek-r1-qwen", "megrez", "qwen35"}


def tokenizer_from_gguf(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The tokenizer.json object; `fields` maps GGUF keys to their values."""
    kind = fields.get("tokenizer.ggml.model")
    tokens = fields.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, Sequence) or not tokens:
        raise ExportError("GGUF: tokenizer.ggml.tokens: expected a list of tokens, found none")
    if kind == "gpt2":
        return _byte_level(fields, list(tokens))
    if kind == "llama":
        return _sentencepiece(fields, list(tokens))
    raise ExportError(
        f"GGUF: tokenizer.ggml.model: expected 'gpt2' or 'llama', found {kind!r} (not supported)"
    )


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
    merges = fields.get("tokenizer.ggml.merges")
    if not isinstance(merges, Sequence):
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
        "merges": [merge.split(" ", 1) for merge in merges],
    }
    # A control token outside the byte alphabet is a mislabelled ordinary token.
    added = [entry for entry in _added_tokens(fields, tokens) if bytes_of_token(entry["content"])]
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
    scores = fields.get("tokenizer.ggml.scores")
    merges = fields.get("tokenizer.ggml.merges")
    is_gemma = str(fields.get("general.architecture", "")).startswith("gemma")
    if is_gemma:
        # Runs of spaces are stored as spaces, and only the order of the tokens is that of merges.
        tokens = ["▁" * len(t) if " " in t and not t.strip() else t for t in tokens]
        scores = [-float(index) for index in range(len(tokens))]
    if isinstance(merges, Sequence):
        pairs = [merge.split(" ", 1) for merge in merges]
    elif isinstance(scores, Sequence) and len(scores) == len(tokens):
        pairs = merges_from_vocabulary(tokens, scores)
    else:
        raise ExportError("GGUF: tokenizer.ggml.scores: expected one score per token, found none")
    unknown_id = fields.get("tokenizer.ggml.unknown_token_id", 0)
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
        "added_tokens": _added_tokens(fields, tokens),
        "normalizer": {"type": "Sequence", "normalizers": [prepend, spaces]}
        if adds_space
        else spaces,
        "pre_tokenizer": None,
        "post_processor": _post_processor(fields, tokens, adds_bos=True),
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": model,
    }


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


def _added_tokens(fields: Mapping[str, Any], tokens: list[str]) -> list[dict[str, Any]]:
    kinds = fields.get("tokenizer.ggml.token_type") or []
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return [
        {"id": token_id, "content": token, **flags, "special": kind == _TOKEN_CONTROL}
        for token_id, (token, kind) in enumerate(zip(tokens, kinds, strict=False))
        if kind in (_TOKEN_CONTROL, _TOKEN_USER_DEFINED)
    ]


def _post_processor(
    fields: Mapping[str, Any], tokens: list[str], adds_bos: bool
) -> dict[str, Any] | None:
    parts: list[dict[str, Any]] = [{"Sequence": {"id": "A", "type_id": 0}}]
    special: dict[str, Any] = {}

    def put(position: int, key: str) -> None:
        token_id = fields.get(f"tokenizer.ggml.{key}")
        if token_id is None or not 0 <= token_id < len(tokens):
            raise ExportError(f"GGUF: tokenizer.ggml.{key}: expected a token id, found {token_id}")
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
