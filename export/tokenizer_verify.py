"""Proves that the engine's tokenizer equals the reference: both sides over one corpus.

How the engine is reached is the caller's affair: it hands in two functions.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import tokenizers
from tokenizers import Tokenizer

from pinfer.export.errors import ExportError
from pinfer.export.tokenizer_unicode import probed_code_points

# Texts in, ids out; what is no list is the engine's error.
EncodeTexts = Callable[[list[str]], Sequence[Any]]
DecodeIds = Callable[[list[list[int]], bool], list[str]]  # ids, skip_special_tokens

# What a code point can stand between; each joins the code point's text with fixed neighbours.
CONTEXTS = ("{c}", "a{c}b", " {c} ", "1{c}{c}2", "\n{c}\n", "'{c}s", "é{c}中")
_POINTS_PER_TEXT = 64
# Some of the middle of sparse planes, which is taken to be like their ends.
_UNPROBED = (0x40200, 0x88888, 0xF0200, 0xF8000, 0x10FDFF)
_MAX_REPORTED = 5

_WORDS = (
    "the", " of", "Hello", " world", "I'll", "DON'T", "we've", "naïve", "straße", "été", "Ελλάδα",
    "Привет", " мир", "שלום", "مرحبا", "नमस्ते", "สวัสดี", "한국어", "삼겹살", "日本語",
    "こんにちは", "天气",
    "12345", "3.14", "0x1F", "2024-07-26", "ǅ", "ﬁne", "①②", "½", "e\u0301", "\u1112\u1161\u11ab",
    "snake_case", "CamelCaseWords", "HTTPServer", "ſ's", "K's", "Ġ", "▁",
    "##ing", "<0x0A>", "'s", "'LL",
)  # fmt: skip
_SPACES = (" ", "  ", "    ", "\n", "\n\n", "\r\n", "\t", " \n ", "\u00a0", "\u3000", "\u2028")
_CONTROLS = ("\0", "\x01", "\x7f", "\u200b", "\u200d", "\ufeff", "\ufffd", "\u202e", "\U000e0001")
_EMOJI = ("😀", "🦙", "👩🏽‍🚀", "🇩🇪🇫🇷", "❤️", "👨‍👩‍👧‍👦", "1️⃣", "🏴󠁧󠁢󠁥󠁮󠁧󠁿")
_CODE = (
    "def f(x: int) -> str:\n    return f'{x!r}'  # ok\n",
    'int main() { printf("%d\\n", 1 << 20); return 0; }\r\n',
    "SELECT * FROM t WHERE a >= 10 AND b != 'x''y';",
    '{"a": [1, 2.5e-3, null], "b": {"c": "\\u00e9"}}',
    '<div class="x">&nbsp;</div><!-- <|im_end|> -->',
    "$$\\sum_{i=0}^{n} x_i^2$$ https://example.org/a?b=c#d\n\n\n",
)


@dataclass(frozen=True)
class Difference:
    """One place where the sides differ."""

    what: str  # encode, decode
    given: Any
    expected: Any
    found: Any

    def __str__(self) -> str:
        given, expected, found = (ascii(v)[:300] for v in (self.given, self.expected, self.found))
        return f"{self.what} of {given}: expected {expected}, found {found}"


def random_text(rng: random.Random, added_tokens: Sequence[str]) -> str:
    """A mix of scripts, spaces, controls, emoji, code, added tokens and pieces of them."""
    points = probed_code_points()
    parts: list[str] = []
    for _ in range(rng.randrange(1, 24)):
        kind = rng.random()
        if kind < 0.30:
            parts.append(rng.choice(_WORDS))
        elif kind < 0.45:
            parts.append(rng.choice(_SPACES))
        elif kind < 0.55:
            parts.append("".join(chr(rng.randrange(33, 127)) for _ in range(rng.randrange(1, 6))))
        elif kind < 0.65 and added_tokens:
            token = rng.choice(added_tokens)
            cut = rng.random() < 0.3
            parts.append(token[: rng.randrange(len(token) + 1)] if cut else token)
        elif kind < 0.72:
            parts.append(rng.choice(_EMOJI))
        elif kind < 0.76:
            parts.append(rng.choice(_CONTROLS))
        elif kind < 0.80:
            parts.append(rng.choice(_CODE))
        elif kind < 0.90:
            parts.append(chr(rng.randrange(0x80, 0x3000)))
        elif kind < 0.95:
            parts.append(rng.choice("aA1 .-_ \n") * rng.randrange(1, 40))
        else:
            parts.append(chr(rng.choice(points)))
    return "".join(parts)


def code_point_texts(points: Iterable[int], contexts: Sequence[str] = CONTEXTS) -> list[str]:
    """All code points in all contexts, many to a text."""
    listed = list(points)
    texts: list[str] = []
    for context in contexts:
        for start in range(0, len(listed), _POINTS_PER_TEXT):
            chunk = listed[start : start + _POINTS_PER_TEXT]
            texts.append("".join(context.replace("{c}", chr(point)) for point in chunk))
    return texts


def corpus(
    seed: int,
    added_tokens: Sequence[str] = (),
    num_mixes: int = 2000,
    contexts: Sequence[str] = CONTEXTS,
) -> list[str]:
    """The texts of the check: code points in contexts, samples, random mixes."""
    rng = random.Random(seed)
    texts = ["", *_WORDS, *_SPACES, *_CONTROLS, *_EMOJI, *_CODE, "".join(_CODE) * 3]
    for token in added_tokens:
        texts += [token, f" {token} ", f"x{token}y", token * 2, token[:-1], token[1:]]
    texts += ["a" * 300, " " * 300, "\n" * 100, "ab" * 500, "中" * 300, "👩🏽‍🚀" * 40]
    texts += code_point_texts([*probed_code_points(), *_UNPROBED], contexts)
    texts += [random_text(rng, added_tokens) for _ in range(num_mixes)]
    return texts


def compare_encoding(
    reference: Tokenizer, encode: EncodeTexts, texts: list[str], add_special_tokens: bool = True
) -> list[Difference]:
    """Where the ids of the texts differ. `encode` has to follow add_special_tokens, too. Where the
    reference fails (there is no unknown token), so must the engine."""

    def reference_ids(batch: list[str]) -> list[list[int]]:
        encodings = reference.encode_batch_fast(batch, add_special_tokens=add_special_tokens)
        return [encoding.ids for encoding in encodings]

    expected = results_of(reference_ids, texts)
    found = [ids if isinstance(ids, list) else None for ids in encode(texts)]
    pairs = zip(texts, expected, found, strict=True)
    return [Difference("encode", text, ids, ours) for text, ids, ours in pairs if ids != ours]


def compare_decoding(
    reference: Tokenizer, decode: DecodeIds, ids: list[list[int]], skip_special_tokens: bool
) -> list[Difference]:
    """Where the texts of the ids differ."""
    expected = reference.decode_batch(ids, skip_special_tokens=skip_special_tokens)
    found = decode(ids, skip_special_tokens)
    pairs = zip(ids, expected, found, strict=True)
    return [Difference("decode", given, text, ours) for given, text, ours in pairs if text != ours]


def results_of(function: Callable[[list[Any]], list[Any]], batch: list[Any]) -> list[Any]:
    """One result for each of the batch, None where the function fails on it alone."""
    try:
        return function(batch)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:  # the wheel's panics are no Exceptions
        if len(batch) == 1:
            return [None]
        middle = len(batch) // 2
        return results_of(function, batch[:middle]) + results_of(function, batch[middle:])


def random_ids(reference: Tokenizer, rng: random.Random, count: int) -> list[list[int]]:
    """Lists of ids that no text need have: bytes in disorder, special tokens anywhere."""
    known = sorted(reference.get_vocab(with_added_tokens=True).values())
    return [[rng.choice(known) for _ in range(rng.randrange(1, 24))] for _ in range(count)]


def verify_tokenizer(
    reference: Tokenizer,
    encode: EncodeTexts,
    decode: DecodeIds,
    seed: int = 0,
    texts: list[str] | None = None,
    contexts: Sequence[str] = CONTEXTS,
) -> dict[str, Any]:
    """Compares both sides; the record for the manifest. ExportError if they differ.

    `texts` stands in for the corpus of the seed and the contexts.
    """
    reference.no_truncation()
    reference.no_padding()
    added = [token.content for token in reference.get_added_tokens_decoder().values()]
    rng = random.Random(seed)
    sample = added if len(added) <= 300 else rng.sample(added, 300)
    texts = corpus(seed, sample, contexts=contexts) if texts is None else texts
    differences = compare_encoding(reference, encode, texts)
    last = results_of(lambda batch: [e.ids for e in reference.encode_batch(batch)], texts[-2000:])
    ids = [one for one in last if one is not None]
    ids += random_ids(reference, rng, 1000)
    for skip_special_tokens in (True, False):
        differences += compare_decoding(reference, decode, ids, skip_special_tokens)
    if differences:
        shown = "; ".join(map(str, differences[:_MAX_REPORTED]))
        raise ExportError(
            f"tokenizer: {len(differences)} of {len(texts) + 2 * len(ids)} results differ from "
            f"tokenizers {tokenizers.__version__}: {shown}"
        )
    return {
        "reference": f"tokenizers {tokenizers.__version__}",
        "seed": seed,
        "encoded_texts": len(texts),
        "decoded_texts": 2 * len(ids),
        "differences": 0,
    }
