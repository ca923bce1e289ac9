"""What tokenizer_config.json says about the tokens around a text.

`add_bos_token` and `add_eos_token` there, where they are written, rule over the post-processor of
tokenizer.json, as they did in transformers 4 (5 passes over them where there is a tokenizer.json).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pinfer.export.errors import ExportError


def with_bos_eos_settings(
    tokenizer_json: dict[str, Any], tokenizer_config: Mapping[str, Any]
) -> dict[str, Any]:
    """tokenizer.json with the post-processor that the settings ask for; as it is without them."""
    if "add_bos_token" not in tokenizer_config and "add_eos_token" not in tokenizer_config:
        return tokenizer_json
    single: list[dict[str, Any]] = [{"Sequence": {"id": "A", "type_id": 0}}]
    special: dict[str, Any] = {}

    def put(position: int, setting: str, key: str) -> None:
        token = _content(tokenizer_config.get(key))
        if not tokenizer_config.get(setting) or token is None:
            return
        single.insert(position, {"SpecialToken": {"id": token, "type_id": 0}})
        special[token] = {
            "id": token,
            "ids": [_id_of(tokenizer_json, token, key)],
            "tokens": [token],
        }

    put(0, "add_bos_token", "bos_token")
    put(len(single), "add_eos_token", "eos_token")
    template = {"type": "TemplateProcessing", "single": single, "pair": single}
    return {**tokenizer_json, "post_processor": {**template, "special_tokens": special}}


def _content(token: Any) -> str | None:
    """A token is written as its text or as an object."""
    content = token.get("content") if isinstance(token, Mapping) else token
    return content if isinstance(content, str) else None


def _id_of(tokenizer_json: dict[str, Any], token: str, key: str) -> int:
    for entry in tokenizer_json.get("added_tokens") or []:
        if entry["content"] == token:
            return int(entry["id"])
    vocab = tokenizer_json["model"]["vocab"]
    if isinstance(vocab, dict) and token in vocab:
        return int(vocab[token])
    listed = [text for text, _ in vocab] if isinstance(vocab, list) else []
    if token in listed:
        return listed.index(token)
    raise ExportError(f"tokenizer_config.json: {key}: {token!r} is not in tokenizer.json")
