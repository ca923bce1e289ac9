"""Tokens that the other files of a model directory add to tokenizer.json, as transformers does it.

`PreTrainedTokenizerFast` hands all of them to the tokenizers library when it loads a directory:
the entries of `added_tokens_decoder` (of added_tokens.json where there is none), then the named
special tokens and the extra ones. The library gives a text that it knows its own id and the flags
that come last, and any other text the next free id, whatever id it is written under.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tokenizers import AddedToken, Tokenizer

from pinfer.export.errors import ExportError

_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


def with_added_tokens(tokenizer: Mapping[str, Any], tokens: list[AddedToken]) -> Mapping[str, Any]:
    """tokenizer.json with the tokens added to it; itself where they change nothing."""
    listed = {entry["content"]: entry for entry in _entries(tokenizer)}
    if all(_is_listed(token, listed.get(token.content)) for token in tokens):
        return tokenizer
    try:
        reference = Tokenizer.from_str(json.dumps(tokenizer))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:  # the wheel's panics are no Exceptions; compiling it says what is wrong
        return tokenizer
    before = reference.get_added_tokens_decoder()
    special = {token.content for token in [*before.values(), *tokens] if token.special}
    reference.add_tokens(tokens)
    entries = []
    for token_id, token in sorted(reference.get_added_tokens_decoder().items()):
        # Once special, a token stays so.
        entries.append({"id": token_id, **_fields(token), "special": token.content in special})
    if entries == [{"id": i, **_fields(token)} for i, token in sorted(before.items())]:
        return tokenizer
    return {**tokenizer, "added_tokens": entries}


def tokens_to_add(
    tokenizer_config: Mapping[str, Any],
    special_tokens_map: Mapping[str, Any],
    added_tokens: Mapping[str, Any],
    tokenizer: Mapping[str, Any],
    named: Mapping[str, Any],
    source: str = "",
) -> list[AddedToken]:
    """What transformers adds, in its order. `added_tokens` is added_tokens.json, `named` the named
    special tokens as the files write them (text or object)."""
    prefix = f"{source}: " if source else ""
    where = f"{prefix}tokenizer_config.json: added_tokens_decoder"
    decoder: dict[int, AddedToken] = {}
    extra = _extra(tokenizer_config)
    written = tokenizer_config.get("added_tokens_decoder")
    if written is not None:
        if not isinstance(written, Mapping):
            raise ExportError(f"{where}: expected an object, found {written!r}")
        for key, entry in written.items():
            decoder[_id(key, where)] = _token(entry, f"{where}: {key}")
    else:
        extra = [*extra, *(one for one in _extra(special_tokens_map) if one not in extra)]
        specials = [_content(value) for value in [*named.values(), *extra]]
        file = f"{prefix}added_tokens.json"
        for content, key in added_tokens.items():
            special = content in specials
            token = AddedToken(content, normalized=not special, special=special)
            decoder[_id(key, file)] = token
        for entry in _entries(tokenizer):
            decoder[entry["id"]] = _token(entry, f"{prefix}tokenizer.json: added_tokens")
    tokens = [decoder[key] for key in sorted(decoder)]
    known = {entry["content"] for entry in _entries(tokenizer)}
    known |= {token.content for token in tokens}
    names = [_content(value) for value in named.values()]
    for value in [*named.values(), *extra]:
        content = _content(value)
        if not isinstance(content, str) or content in known:  # what is no text is named elsewhere
            continue
        known.add(content)
        if isinstance(value, str):
            tokens.append(AddedToken(value, special=True))
        else:
            # In special_tokens_map.json, objects have no type and are always special.
            entry = value if "__type" in value else {"special": True, **value}
            tokens.append(_token(entry, f"{prefix}special token"))
    for token in tokens:
        token.special = token.special or token.content in names
    return tokens


def _entries(tokenizer: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The added tokens of tokenizer.json; compiling it says what is wrong with others."""
    written = tokenizer.get("added_tokens")
    return [
        entry
        for entry in (written if isinstance(written, list) else [])
        if isinstance(entry, Mapping)
        and isinstance(entry.get("content"), str)
        and isinstance(entry.get("id"), int)
    ]


def _is_listed(token: AddedToken, entry: Mapping[str, Any] | None) -> bool:
    return entry is not None and all(entry.get(name) == getattr(token, name) for name in _FLAGS)


def _extra(values: Mapping[str, Any]) -> list[Any]:
    """The special tokens without names."""
    listed = values.get("extra_special_tokens") or values.get("additional_special_tokens")
    return listed if isinstance(listed, list) else []


def _content(value: Any) -> Any:
    return value.get("content") if isinstance(value, Mapping) else value


def _token(entry: Any, where: str) -> AddedToken:
    content = _content(entry)
    if not isinstance(entry, Mapping) or not isinstance(content, str):
        raise ExportError(f"{where}: expected a token's object, found {entry!r}")
    flags = {name: entry[name] for name in _FLAGS if name in entry}
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise ExportError(f"{where}: {name}: expected true or false, found {value!r}")
    return AddedToken(content, **flags)


def _id(key: Any, where: str) -> int:
    try:
        return int(key)
    except (TypeError, ValueError):
        raise ExportError(f"{where}: expected ids, found {key!r}") from None


def _fields(token: AddedToken) -> dict[str, Any]:
    return {"content": token.content, **{name: getattr(token, name) for name in _FLAGS}}
