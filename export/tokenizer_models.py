"""The models of tokenizer.json as tables: BPE, Unigram, WordPiece and WordLevel."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pinfer.export.errors import ExportError
from pinfer.export.tokenizer_decoder import byte_alphabet, bytes_of_token
from pinfer.export.tokenizer_format import (
    Section,
    merge_hash_table,
    string_hash_table,
    string_table,
)
from pinfer.export.tokenizer_trie import build_trie

if TYPE_CHECKING:
    from pinfer.export.tokenizer_tables import TokenizerSource

_WORD_START = "▁"


@dataclass
class CompiledModel:
    """A model's entry in the configuration and its sections."""

    config: dict[str, Any]
    sections: dict[Section, bytes] = field(default_factory=dict)
    is_byte_level: bool = False  # takes raw bytes instead of the byte-level alphabet


def compile_model(source: TokenizerSource, steps: list[dict[str, Any]]) -> CompiledModel:
    """The tables of the model; `steps` are those of the pre-tokenizer."""
    kind = type(source.reference.model).__name__
    if kind == "BPE":
        return _compile_bpe(source, steps)
    if kind == "Unigram":
        return _compile_unigram(source)
    if kind in ("WordPiece", "WordLevel"):
        return _compile_words(source, kind)
    raise ExportError(f"tokenizer.json: model type '{kind}' is not supported")


def _unknown(unk_token: str | None, vocab: dict[str, int]) -> dict[str, Any]:
    missing = unk_token is not None and unk_token not in vocab
    return {
        "unk_id": None if unk_token is None or missing else vocab[unk_token],
        "missing_unk_token": unk_token if missing else "",
    }


def _byte_tokens(vocab: dict[str, int]) -> bytes:
    """The ids of <0x00> to <0xFF>, -1 where there is none."""
    ids = [vocab.get(f"<0x{byte:02X}>", -1) for byte in range(256)]
    return np.asarray(ids, dtype="<i4").tobytes()


def _compile_bpe(source: TokenizerSource, steps: list[dict[str, Any]]) -> CompiledModel:
    model = source.data["model"]
    vocab = source.model_vocab
    if model.get("dropout"):
        raise ExportError(
            f"tokenizer.json: model.dropout: expected none, found {model['dropout']} "
            "(ids would be random)"
        )
    prefix = model.get("continuing_subword_prefix") or ""
    suffix = model.get("end_of_word_suffix") or ""
    ignore_merges = bool(model.get("ignore_merges"))
    merges = _merge_rows(model.get("merges") or [], vocab, len(prefix))
    sections = {Section.MERGES: merge_hash_table(merges)}
    maps_bytes = [step["step"] == "byte_map" for step in steps]
    byte_level_ids = [vocab.get(char, -1) for char in byte_alphabet()]
    is_plain = not prefix and not suffix
    is_byte_level = (
        maps_bytes.count(True) == 1 and maps_bytes[-1] and -1 not in byte_level_ids and is_plain
    )
    words = _whole_words(source, ignore_merges)
    if is_byte_level:
        spelled = {i: bytes_of_token(token) for token, i in words.items()}
        sections[Section.BYTE_IDS] = np.asarray(byte_level_ids, dtype="<i4").tobytes()
    else:
        spelled = {i: token.encode() for token, i in words.items()}
        sections[Section.BYTE_IDS] = _byte_tokens(vocab)
    texts = [spelled.get(i) or b"" for i in range(source.vocab_size)]
    ids = [i for i, text in enumerate(texts) if text]
    offsets, data = string_table(texts)
    sections |= {Section.WORD_OFFSETS: offsets, Section.WORD_BYTES: data}
    sections[Section.WORD_HASH] = string_hash_table([texts[i] for i in ids], ids)
    splits = is_plain and not ignore_merges and _starts_words(merges, source.tokens, vocab)
    config = {
        "type": "BPE",
        "byte_level": is_byte_level,
        "fuse_unk": bool(model.get("fuse_unk")),
        "byte_fallback": bool(model.get("byte_fallback")),
        **_unknown(model.get("unk_token"), vocab),
        "continuing_subword_prefix": prefix,
        "end_of_word_suffix": suffix,
        "word_start": _WORD_START if splits and not is_byte_level else "",
    }
    return CompiledModel(config, sections, is_byte_level)


def _merge_rows(merges: list[Any], vocab: dict[str, int], prefix_length: int) -> NDArray[np.uint32]:
    """Rows {left, right, rank, merged}; of equal pairs the last one counts, as in the reference."""
    rows: dict[tuple[int, int], tuple[int, int]] = {}
    for rank, merge in enumerate(merges):
        left, right = merge.split(" ") if isinstance(merge, str) else merge
        try:
            pair = (vocab[left], vocab[right])
            rows[pair] = (rank, vocab[left + right[prefix_length:]])
        except KeyError as error:
            raise ExportError(
                f"tokenizer.json: model.merges[{rank}]: token {error} is not in the vocabulary"
            ) from error
    result = np.empty((len(rows), 4), dtype=np.uint32)
    if rows:
        result[:, :2] = list(rows)
        result[:, 2:] = list(rows.values())
    return result


def _starts_words(
    merges: NDArray[np.uint32], tokens: list[str | None], vocab: dict[str, int]
) -> bool:
    """Whether no merge reaches over the place before a word's first space: words stand alone."""
    if _WORD_START not in vocab:
        return False
    reaches_over = re.compile(f"[^{_WORD_START}]{_WORD_START}")
    return not any(reaches_over.search(tokens[i] or "") for i in np.unique(merges[:, 3]))


def _whole_words(source: TokenizerSource, ignore_merges: bool) -> dict[str, int]:
    """Tokens that a word with their very text becomes: found before any merge is tried."""
    tokenize = source.reference.model.tokenize
    words: dict[str, int] = {}
    for token, token_id in source.model_vocab.items():
        if not ignore_merges:
            try:
                pieces = tokenize(token)
            except Exception:  # it needs an unknown token that is not there
                continue
            if len(pieces) != 1 or pieces[0].id != token_id:
                continue
        words[token] = token_id
    return words


def _compile_unigram(source: TokenizerSource) -> CompiledModel:
    model = source.data["model"]
    if model.get("alpha"):
        raise ExportError("tokenizer.json: model.alpha: sampling is not supported")
    scores = np.zeros(source.vocab_size, dtype="<f8")
    listed = np.asarray([score for _, score in model["vocab"]], dtype="<f8")
    scores[: len(listed)] = listed
    vocab = source.model_vocab
    nodes, edges = build_trie({token.encode(): i for token, i in vocab.items() if token})
    config = {
        "type": "Unigram",
        "unk_id": model.get("unk_id"),
        "byte_fallback": bool(model.get("byte_fallback")),
        "min_score": float(listed.min()) if len(listed) else 0.0,
    }
    sections = {
        Section.SCORES: scores.tobytes(),
        Section.MODEL_TRIE_NODES: nodes,
        Section.MODEL_TRIE_EDGES: edges,
        Section.BYTE_IDS: _byte_tokens(vocab),
    }
    return CompiledModel(config, sections)


def _compile_words(source: TokenizerSource, kind: str) -> CompiledModel:
    model = source.data["model"]
    config = {"type": kind, **_unknown(model.get("unk_token", "[UNK]"), source.model_vocab)}
    if kind == "WordLevel":
        return CompiledModel(config)
    config["continuing_subword_prefix"] = model.get("continuing_subword_prefix", "##")
    config["max_input_chars_per_word"] = model.get("max_input_chars_per_word", 100)
    vocab = source.model_vocab
    nodes, edges = build_trie({token.encode(): i for token, i in vocab.items() if token})
    sections = {Section.MODEL_TRIE_NODES: nodes, Section.MODEL_TRIE_EDGES: edges}
    return CompiledModel(config, sections)
