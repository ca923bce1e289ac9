"""Compiles tokenizer.json into tokenizer.bin, the tables that the engine maps at start."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tokenizers import AddedToken, Tokenizer

from pinfer.export.errors import ExportError
from pinfer.export.tokenizer_components import check_component_names
from pinfer.export.tokenizer_decoder import compile_decoder
from pinfer.export.tokenizer_format import (
    Section,
    TokenFlag,
    string_hash_table,
    string_table,
    write_container,
)
from pinfer.export.tokenizer_models import compile_model
from pinfer.export.tokenizer_steps import StepCompiler, post_processor_ids
from pinfer.export.tokenizer_trie import build_trie

_MAX_ID = 1 << 24


@dataclass
class TokenizerSource:
    """A tokenizer.json, the wheel's reading of it, and its tokens by id."""

    data: dict[str, Any]
    reference: Tokenizer
    model_vocab: dict[str, int]
    added: dict[int, AddedToken]
    tokens: list[str | None]  # None: no token has the id
    special_contents: set[str] = field(default_factory=set)

    @property
    def vocab_size(self) -> int:
        return len(self.tokens)


def read_tokenizer(tokenizer_json: Mapping[str, Any] | str) -> TokenizerSource:
    """Reads tokenizer.json (its object, or its text) with the wheel."""
    if isinstance(tokenizer_json, str):
        text = tokenizer_json
        try:
            data = json.loads(text)
        except json.JSONDecodeError as error:
            raise ExportError(f"tokenizer.json: not valid JSON: {error}") from error
    else:
        data = tokenizer_json
        text = json.dumps(data)
    if not isinstance(data, Mapping) or not isinstance(data.get("model"), dict):
        raise ExportError("tokenizer.json: expected an object with a 'model'")
    check_component_names(data)
    try:
        reference = Tokenizer.from_str(text)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the wheel's panics are no Exceptions
        raise ExportError(f"tokenizer.json: {error}") from error
    reference.no_truncation()
    reference.no_padding()
    model_vocab = _model_vocab(data["model"], reference)
    added = reference.get_added_tokens_decoder()
    entries = data.get("added_tokens") or []
    special = {entry["content"] for entry in entries if entry.get("special")}
    tokens = _tokens_by_id(data["model"], model_vocab, added)
    return TokenizerSource(dict(data), reference, model_vocab, added, tokens, special)


def _model_vocab(model: dict[str, Any], reference: Tokenizer) -> dict[str, int]:
    vocab = model.get("vocab")
    if isinstance(vocab, dict):
        return vocab
    if isinstance(vocab, list):  # Unigram: [[token, score], ...]
        return {token: index for index, (token, _) in enumerate(vocab)}
    raise ExportError("tokenizer.json: model.vocab: expected an object or a list")


def _tokens_by_id(
    model: dict[str, Any], vocab: dict[str, int], added: dict[int, AddedToken]
) -> list[str | None]:
    # A list may hold a token twice; both places have its text, the later one is its id.
    listed = [token for token, _ in model["vocab"]] if isinstance(model["vocab"], list) else []
    highest = max([-1, len(listed) - 1, *vocab.values(), *added])
    if highest < 0:
        raise ExportError("tokenizer.json: the vocabulary is empty")
    if highest >= _MAX_ID:
        raise ExportError(f"tokenizer.json: id {highest} is too large (limit {_MAX_ID - 1})")
    tokens: list[str | None] = [*listed, *[None] * (highest + 1 - len(listed))]
    for token, token_id in vocab.items() if not listed else ():
        if tokens[token_id] is not None:
            raise ExportError(
                f"tokenizer.json: model.vocab: id {token_id} belongs to both "
                f"{tokens[token_id]!r} and {token!r}"
            )
        tokens[token_id] = token
    for token_id, token in added.items():
        tokens[token_id] = token.content
    return tokens


def _component(part: Any) -> dict[str, Any] | None:
    """A component in the canonical form, in which the wheel has filled in all defaults."""
    return None if part is None else json.loads(part.__getstate__())


def _flags(source: TokenizerSource) -> np.ndarray[Any, np.dtype[np.uint8]]:
    flags = np.zeros(source.vocab_size, dtype=np.uint8)

    def mark(ids: Iterable[int], flag: TokenFlag) -> None:
        flags[list(ids)] |= np.uint8(flag)

    added = source.added
    mark((i for i, token in enumerate(source.tokens) if token is not None), TokenFlag.EXISTS)
    mark(source.model_vocab.values(), TokenFlag.IN_MODEL)
    mark((i for i, token in added.items() if token.lstrip), TokenFlag.LSTRIP)
    mark((i for i, token in added.items() if token.rstrip), TokenFlag.RSTRIP)
    mark((i for i, token in added.items() if token.single_word), TokenFlag.SINGLE_WORD)
    # The reference compares the text it decodes with, which for some added tokens is normalized.
    decoded = [source.reference.id_to_token(i) for i in range(source.vocab_size)]
    special = source.special_contents
    mark((i for i, text in enumerate(decoded) if text in special), TokenFlag.SPECIAL)
    return flags


def _added_tries(source: TokenizerSource) -> dict[Section, bytes]:
    as_written: dict[bytes, int] = {}
    normalized: dict[bytes, int] = {}
    normalizer = source.reference.normalizer
    for token_id, token in source.added.items():
        if not token.normalized:
            as_written[token.content.encode()] = token_id
            continue
        content = token.content
        if normalizer is not None:
            content = normalizer.normalize_str(content)
        other = normalized.setdefault(content.encode(), token_id)
        if other != token_id:
            raise ExportError(
                f"tokenizer.json: added_tokens: {source.added[other].content!r} and"
                f" {token.content!r} are both {content!r} once normalized (not supported: the"
                " reference takes one of them by chance)"
            )
    nodes, edges = build_trie(as_written)
    sections = {Section.ADDED_TRIE_NODES: nodes, Section.ADDED_TRIE_EDGES: edges}
    nodes, edges = build_trie(normalized)
    sections |= {Section.NORMALIZED_TRIE_NODES: nodes, Section.NORMALIZED_TRIE_EDGES: edges}
    return sections


def compile_tokenizer(tokenizer_json: Mapping[str, Any] | str) -> bytes:
    """The bytes of tokenizer.bin. Raises ExportError naming what is not supported."""
    source = read_tokenizer(tokenizer_json)
    reference = source.reference
    compiler = StepCompiler()
    components = _component(reference.normalizer), _component(reference.pre_tokenizer)
    compiler.check_insertions(*components)
    normalizer = compiler.normalizer(components[0])
    pre_tokenizer = compiler.pre_tokenizer(components[1])
    prefix, suffix = post_processor_ids(_component(reference.post_processor))
    flags = _flags(source)
    model = compile_model(source, pre_tokenizer)
    if model.is_byte_level:
        # The model reads bytes: the step that writes them as letters falls away.
        pre_tokenizer.pop()
    decoder, surfaces, byte_ids = compile_decoder(_component(reference.decoder), source, compiler)
    flags[list(byte_ids)] |= np.uint8(TokenFlag.BYTE)
    added = source.added.values()
    strips = any(token.lstrip or token.rstrip for token in added)
    stands_alone = any(token.single_word for token in added)
    config = {
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "model": model.config,
        "decoder": decoder,
        "post_processor": {"prefix": prefix, "suffix": suffix},
        "space_class": compiler.space_class() if strips else None,
        "word_class": compiler.word_class() if stands_alone else None,
    }
    texts = [(token or "").encode() for token in source.tokens]
    ids = {**source.model_vocab, **{token.content: i for i, token in source.added.items()}}
    offsets, data = string_table(texts)
    surface_offsets, surface_data = string_table(surfaces)
    class_index, class_pages = compiler.classes.tables()
    sections = {
        Section.CONFIG: json.dumps(config, ensure_ascii=False).encode(),
        Section.TOKEN_OFFSETS: offsets,
        Section.TOKEN_BYTES: data,
        Section.TOKEN_FLAGS: flags.tobytes(),
        Section.TOKEN_HASH: string_hash_table([t.encode() for t in ids], list(ids.values())),
        Section.CLASS_INDEX: class_index,
        Section.CLASS_PAGES: class_pages,
        **_added_tries(source),
        **compiler.tables.sections(),
        **model.sections,
        Section.SURFACE_OFFSETS: surface_offsets,
        Section.SURFACE_BYTES: surface_data,
    }
    return write_container(sections)
