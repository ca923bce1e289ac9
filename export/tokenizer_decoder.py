"""Decoders of tokenizer.json, as tables of what each token adds to the text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tokenizers import Regex, decoders

from pinfer.export.errors import ExportError

if TYPE_CHECKING:
    from pinfer.export.tokenizer_steps import StepCompiler
    from pinfer.export.tokenizer_tables import TokenizerSource

Component = dict[str, Any]
# As the reference reads it: its number parser also takes a plus sign.
_BYTE_TOKEN = re.compile(r"<0x(?:[0-9A-Fa-f]{2}|\+[0-9A-Fa-f])>")


def byte_alphabet() -> list[str]:
    """The character that stands for each byte in byte-level tokenizers."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet: list[str] = []
    following = 256
    for byte in range(256):
        if byte in printable:
            alphabet.append(chr(byte))
        else:
            alphabet.append(chr(following))
            following += 1
    return alphabet


_BYTE_OF = {char: byte for byte, char in enumerate(byte_alphabet())}


def bytes_of_token(token: str) -> bytes | None:
    """The bytes that a token of the byte-level alphabet stands for; None for other tokens."""
    try:
        return bytes([_BYTE_OF[char] for char in token])
    except KeyError:
        return None


def _byte_level_surfaces(texts: list[str]) -> list[bytes]:
    """What each token adds to text under the ByteLevel decoder."""
    spelled = [bytes_of_token(text) for text in texts]
    return [
        text.encode() if surface is None else surface
        for text, surface in zip(texts, spelled, strict=True)
    ]


def compile_decoder(
    component: Component | None, source: TokenizerSource, compiler: StepCompiler
) -> tuple[dict[str, Any], list[bytes], set[int]]:
    """(the entry in the configuration, what each token is to the decoder, tokens of one byte)."""
    parts = [{"type": "Separate"}] if component is None else _simplified(_flatten(component))
    # As decoded: of some added tokens the normalized form.
    known = [source.reference.id_to_token(i) for i in range(source.vocab_size)]
    # Steps that treat every token alike are carried out here, once per token.
    while parts and parts[0]["type"] in ("Replace", "Strip"):
        known = _apply(parts.pop(0), known)
    texts = [text or "" for text in known]
    if [part["type"] for part in parts] == ["ByteLevel"]:
        return {"type": "bytes"}, _byte_level_surfaces(texts), set()
    surfaces = [text.encode() for text in texts]
    config: dict[str, Any] = {"type": "chain", "byte_fallback": False, "byte_level": False}
    byte_ids: set[int] = set()
    if parts and parts[0]["type"] == "ByteFallback":
        parts.pop(0)
        config["byte_fallback"] = True
        for token_id, text in enumerate(texts):
            if _BYTE_TOKEN.fullmatch(text):
                surfaces[token_id] = bytes([int(text[3:5], 16)])
                byte_ids.add(token_id)
    token_steps: list[Component] = []
    text_steps: list[Component] = []
    steps = token_steps
    for part in parts:
        kind = part["type"]
        if kind in ("Fuse", "ByteLevel"):
            if kind == "ByteLevel":
                if steps is text_steps:
                    raise ExportError(
                        "tokenizer.json: decoder ByteLevel: expected before steps that join tokens"
                        " (Fuse, ByteLevel), found after one (not supported)"
                    )
                config["byte_level"] = True
            steps = text_steps
        else:
            steps.append(_step(part, compiler))
    return {**config, "token_steps": token_steps, "text_steps": text_steps}, surfaces, byte_ids


def _simplified(parts: list[Component]) -> list[Component]:
    """The same decoder with as few steps on the whole text as it takes: a stream waits for most."""
    joined = [i for i, part in enumerate(parts) if part["type"] in _JOINING]
    if not joined:
        return parts
    first = joined[0]
    tokens, join, texts = parts[:first], parts[first], parts[first + 1 :]
    texts = [part for part in texts if part["type"] != "Fuse"]
    if join["type"] == "Fuse":
        # One character is replaced in single tokens as well as in the text.
        while texts and texts[0]["type"] == "Replace" and len(_literal(texts[0])) == 1:
            tokens.append(texts.pop(0))
    return [*tokens, join, *texts]


_JOINING = ("Fuse", "ByteLevel")


def _literal(component: Component) -> str:
    return component["pattern"].get("String", "")


def _flatten(component: Component) -> list[Component]:
    if component["type"] != "Sequence":
        return [component]
    return [part for inner in component["decoders"] for part in _flatten(inner)]


def _apply(component: Component, texts: list[str | None]) -> list[str | None]:
    decoder = _decoder_from(component)

    def decode(text: str | None) -> str | None:
        if text is None:  # no token has the id
            return None
        try:
            return decoder.decode([text])
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # the wheel's panics are no Exceptions
            described = {key: value for key, value in component.items() if key != "type"}
            raise ExportError(
                f"tokenizer.json: decoder {component['type']} {described}: the reference fails on"
                f" token {text!r}: {error}"
            ) from error

    return [decode(text) for text in texts]


def _decoder_from(component: Component) -> decoders.Decoder:
    if component["type"] == "Strip":
        left, right = component["start"], component["stop"]
        return decoders.Strip(content=component["content"], left=left, right=right)
    pattern = component["pattern"]
    wanted = pattern["String"] if "String" in pattern else Regex(pattern["Regex"])
    return decoders.Replace(wanted, component["content"])


def _step(component: Component, compiler: StepCompiler) -> Component:
    kind = component["type"]
    if kind == "Replace":
        return compiler.replace(component)
    if kind == "Strip":
        start, stop = component["start"], component["stop"]
        if stop:
            raise ExportError(
                f"tokenizer.json: decoder Strip: stop {stop}: expected 0 behind a step that looks"
                " at a token's place or joins tokens: the reference fails on every empty text"
            )
        return {"step": "strip", "content": component["content"], "start": start, "stop": stop}
    if kind == "Metaspace":
        strips = component["prepend_scheme"] != "never"
        replacement = component["replacement"]
        return {"step": "metaspace", "replacement": replacement, "strips_first": strips}
    if kind == "WordPiece":
        prefix, cleanup = component["prefix"], component["cleanup"]
        return {"step": "word_piece", "prefix": prefix, "cleanup": cleanup}
    if kind == "Separate":
        return {"step": "separate"}
    if kind == "ByteFallback":
        raise ExportError(
            "tokenizer.json: decoder ByteFallback: expected before steps that look at a token's"
            " place (Metaspace, WordPiece) or join tokens (Fuse, ByteLevel), found after one"
            " (not supported)"
        )
    raise ExportError(f"tokenizer.json: decoder type '{kind}' is not supported")
