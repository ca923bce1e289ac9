"""Proves a compiled text part: the engine's tokenizer and templates against the references.

What has been proved once is not proved again: fine-tunes share their tokenizer.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import tokenizers
from tokenizers import Tokenizer

from pinfer.export.bundle_writer import BundleWriter
from pinfer.export.result_cache import ResultCache, key_of
from pinfer.export.template_verify import verify_chat_template
from pinfer.export.text import TextPart, add_text, text_manifest
from pinfer.export.tokenizer_verify import CONTEXTS, verify_tokenizer
from pinfer.runtime.binding.engine import Engine, Error
from pinfer.runtime.library import find_library

# The whole list is for the tests; these find what a code point does alone, in a word, among spaces.
EXPORT_CONTEXTS = CONTEXTS[:3]


def prove_text(text: TextPart, cache: ResultCache) -> dict[str, Any]:
    """What was compared, for the manifest. ExportError naming the first differences."""
    versions = f"{tokenizers.__version__} {jinja2.__version__}".encode()
    template = text.chat_template_json or b""
    engine = find_library().read_bytes()
    key = key_of(text.tokenizer_bin, text.tokenizer_json, template, versions, engine)
    known = cache.get(key)
    if known is not None:
        return json.loads(known)
    proof = _prove(text)
    cache.put(key, json.dumps(proof).encode())
    return proof


def _prove(text: TextPart) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="pinfer-text-") as scratch:
        bundle = Path(scratch) / "bundle"
        with BundleWriter(bundle, force=False) as writer:
            add_text(writer, text)
            writer.commit(text_manifest(text))
        with Engine(bundle, text_only=True) as engine:
            proof = {"tokenizer": _prove_tokenizer(engine, text)}
            if text.chat_template_json is not None:
                proof["chat_template"] = _prove_template(engine, text.chat_template_json)
            return proof


def _prove_tokenizer(engine: Engine, text: TextPart) -> dict[str, Any]:
    def encode(text: str) -> list[int] | None:
        try:
            return engine.tokenize(text)
        except Error:  # no token stands for it; the reference has to fail as well
            return None

    def decode(batch: list[list[int]], skip_special_tokens: bool) -> list[str]:
        return [engine.detokenize(ids, skip_special_tokens) for ids in batch]

    reference = Tokenizer.from_str(text.tokenizer_json.decode())
    return verify_tokenizer(
        reference,
        lambda texts: [encode(entry) for entry in texts],
        decode,
        contexts=EXPORT_CONTEXTS,
    )


def _prove_template(engine: Engine, chat_template_json: bytes) -> dict[str, Any]:
    def render_all(requests: Sequence[dict[str, Any]]) -> list[Mapping[str, str]]:
        answers: list[Mapping[str, str]] = []
        for request in requests:
            try:
                answers.append({"text": engine.render(**request)})
            except Error as error:
                answers.append({"error": str(error)})
        return answers

    return verify_chat_template(json.loads(chat_template_json), render_all)
