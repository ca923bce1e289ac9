"""The text part of a bundle: tokenizer tables, chat template, end ids, sampling defaults."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import tokenizers

from pinfer.export.bundle_writer import BundleWriter
from pinfer.export.checkpoint import Checkpoint
from pinfer.export.errors import ExportError
from pinfer.export.result_cache import ResultCache, key_of
from pinfer.export.template_tree import compile_chat_template
from pinfer.export.tokenizer_special_tokens import named_special_tokens, token_id
from pinfer.export.tokenizer_tables import compile_tokenizer
from pinfer.runtime.bundle.manifest import FORMAT_VERSION

# Sampling parameters that are taken over: least and greatest value, type.
GENERATION_KEYS: dict[str, tuple[float, float, Any]] = {
    "temperature": (0.0, 1e6, int | float),
    "top_p": (1e-9, 1.0, int | float),
    "top_k": (-1, 2**31 - 1, int),
    "min_p": (0.0, 1.0, int | float),
    "repetition_penalty": (1e-9, 1e6, int | float),
}


@dataclass(frozen=True)
class TextPart:
    tokenizer_bin: bytes
    tokenizer_json: bytes
    chat_template_json: bytes | None
    eos_token_ids: tuple[int, ...]
    bos_token_id: int | None
    generation_defaults: dict[str, Any]


def build_text(checkpoint: Checkpoint, cache: ResultCache | None = None) -> TextPart:
    """Compiles the text part; tokenizer tables are taken from the cache where it has them.
    ExportError naming whatever is not supported."""
    if checkpoint.tokenizer is None:
        raise ExportError(f"{checkpoint.source}: no tokenizer.json")
    tokenizer_json = json.dumps(checkpoint.tokenizer, ensure_ascii=False).encode()
    tokenizer_bin = _tokenizer_tables(tokenizer_json, cache or ResultCache(None))
    tokens = special_tokens(checkpoint)
    template = None
    if checkpoint.chat_template is not None:
        tree = compile_chat_template(checkpoint.chat_template, special_tokens=tokens)
        template = json.dumps(tree, ensure_ascii=False, separators=(",", ":")).encode()
    return TextPart(
        tokenizer_bin=tokenizer_bin,
        tokenizer_json=tokenizer_json,
        chat_template_json=template,
        eos_token_ids=eos_token_ids(checkpoint, tokens),
        bos_token_id=_bos_token_id(checkpoint, tokens),
        generation_defaults=generation_defaults(checkpoint),
    )


def _tokenizer_tables(tokenizer_json: bytes, cache: ResultCache) -> bytes:
    code = [path.read_bytes() for path in sorted(Path(__file__).parent.glob("tokenizer_*.py"))]
    key = key_of(tokenizer_json, tokenizers.__version__.encode(), *code)
    tables = cache.get(key)
    if tables is None:
        tables = compile_tokenizer(tokenizer_json.decode())
        cache.put(key, tables)
    return tables


def add_text(writer: BundleWriter, text: TextPart) -> None:
    """Writes the files of the text part."""
    writer.add_bytes("tokenizer.bin", text.tokenizer_bin)
    writer.add_bytes("tokenizer.json", text.tokenizer_json)
    if text.chat_template_json is not None:
        writer.add_bytes("chat_template.json", text.chat_template_json)


def text_manifest(text: TextPart, proof: dict[str, Any] | None = None) -> dict[str, Any]:
    """The manifest of a bundle that holds text alone, but for the files."""
    return {
        "format_version": FORMAT_VERSION,
        "exporter_version": version("pinfer"),
        "parts": ["text"],
        "text": text_entry(text, proof),
        "generation_defaults": text.generation_defaults,
    }


def text_entry(text: TextPart, proof: dict[str, Any] | None) -> dict[str, Any]:
    """The manifest's entry; `proof` is what the exporter compared with the references."""
    entry = {"eos_token_ids": list(text.eos_token_ids), "bos_token_id": text.bos_token_id}
    return entry if proof is None else {**entry, "proof": proof}


def special_tokens(checkpoint: Checkpoint) -> dict[str, str]:
    """bos_token, eos_token, ... as text."""
    return named_special_tokens(
        checkpoint.tokenizer_config,
        checkpoint.special_tokens_map,
        checkpoint.config,
        checkpoint.tokenizer or {},
        checkpoint.source,
    )


def eos_token_ids(checkpoint: Checkpoint, tokens: dict[str, str]) -> tuple[int, ...]:
    """The union of generation_config's, config's and the tokenizer's end ids, in that order."""
    ids: list[int] = []
    sources = (
        ("generation_config", checkpoint.generation_config.get("eos_token_id")),
        ("config", checkpoint.config.get("eos_token_id")),
        ("tokenizer", token_id(checkpoint.tokenizer or {}, tokens.get("eos_token"))),
    )
    for where, value in sources:
        for entry in value if isinstance(value, list) else [value]:
            if entry is None:
                continue
            if isinstance(entry, bool) or not isinstance(entry, int) or entry < 0:
                raise ExportError(
                    f"{checkpoint.source}: {where}: eos_token_id: expected an id, found {entry!r}"
                )
            if entry not in ids:
                ids.append(entry)
    return tuple(ids)


def _bos_token_id(checkpoint: Checkpoint, tokens: dict[str, str]) -> int | None:
    value = checkpoint.config.get("bos_token_id")
    return (
        value
        if type(value) is int and value >= 0
        else token_id(checkpoint.tokenizer or {}, tokens.get("bos_token"))
    )


def generation_defaults(checkpoint: Checkpoint) -> dict[str, Any]:
    """Sampling parameters that generation_config.json sets; do_sample false means greedy."""
    config = checkpoint.generation_config
    defaults = {key: config[key] for key in GENERATION_KEYS if config.get(key) is not None}
    for key, value in defaults.items():
        low, high, kind = GENERATION_KEYS[key]
        if isinstance(value, bool) or not isinstance(value, kind) or not low <= value <= high:
            raise ExportError(
                f"{checkpoint.source}: generation_config: {key}: expected a number from {low} to"
                f" {high}, found {value!r}"
            )
    if config.get("do_sample") is False:
        kept = {k: v for k, v in defaults.items() if k == "repetition_penalty"}
        return {**kept, "temperature": 0.0}
    return defaults
