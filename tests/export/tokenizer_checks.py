"""Comparisons of the engine's tokenizer with the reference, and the texts they are made on."""

import os
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import tokenizers
from tokenizer_engine import Batch, EngineTokenizer
from tokenizers import Tokenizer

from pinfer.export.tokenizer_verify import Difference, results_of

BYTE_TOKEN = re.compile(r"<0x[0-9A-F]{2}>")
POINTS = [p for p in range(0x110000) if not 0xD800 <= p < 0xE000]


def added_tokens(reference: Tokenizer) -> list[str]:
    return [token.content for token in reference.get_added_tokens_decoder().values()]


def reference_ids(
    reference: Tokenizer, texts: list[str], add_special_tokens: bool = False
) -> list[list[int] | None]:
    """The reference's ids; None for what it cannot encode (it has no unknown token)."""

    def encode(batch: list[str]) -> list[list[int]]:
        encodings = reference.encode_batch_fast(batch, add_special_tokens=add_special_tokens)
        return [encoding.ids for encoding in encodings]

    return results_of(encode, texts)


def ids_of(reference: Tokenizer, texts: list[str]) -> list[list[int]]:
    """The ids of the texts that the reference can encode, without automatic special tokens."""
    return [ids for ids in reference_ids(reference, texts) if ids is not None]


def assert_encoded(
    reference: Tokenizer,
    engine: EngineTokenizer,
    texts: list[str],
    add_special_tokens: Sequence[bool] = (True, False),
) -> list[list[int]]:
    """Gives the ids of the texts that have some, as of the last of add_special_tokens."""
    batch = Batch.of_texts(texts)
    expected: list[list[int] | None] = []
    for add in add_special_tokens:
        expected = reference_ids(reference, texts, add)
        found = engine.encode_batch(batch, add)
        if not found.is_same(Batch.of_ids(expected)):
            _fail("encode", texts, expected, found.ids())
    return [ids for ids in expected if ids is not None]


def assert_decoded(
    reference: Tokenizer,
    engine: EngineTokenizer,
    ids: list[list[int]],
    skip_special_tokens: Sequence[bool] = (True, False),
) -> None:
    batch = Batch.of_ids(ids)
    for skip in skip_special_tokens:
        expected = reference.decode_batch(ids, skip_special_tokens=skip)
        found = engine.decode_batch(batch, skip)
        if not found.is_same(Batch.of_texts(expected)):
            _fail("decode", ids, expected, found.texts())


def _fail(what: str, given: list, expected: list, found: list) -> NoReturn:
    triples = zip(given, expected, found, strict=True)
    differences = [Difference(what, *triple) for triple in triples if triple[1] != triple[2]]
    lines = [f"{len(differences)} of {len(given)}", *map(str, differences[:5])]
    raise AssertionError("\n".join(lines))


def assert_streamed(
    reference: Tokenizer,
    engine: EngineTokenizer,
    rng: random.Random,
    ids: list[list[int]],
) -> None:
    """Streams of all ids, and cut at random into what stood before and what is streamed.

    Behind a special token a text of its own begins; behind any other one the pieces join to what
    the reference decodes from all ids. A cut in the middle of a character is not asked for.
    """
    special = {i for i, token in reference.get_added_tokens_decoder().items() if token.special}
    whole = without_broken_bytes(reference, ids, special)
    batch = Batch.of_ids(whole)
    for skip in (True, False):
        decoded = reference.decode_batch(whole, skip_special_tokens=skip)
        streamed = engine.stream_batch(batch, skip)
        if not streamed.is_same(Batch.of_texts(decoded)):
            _fail("stream", whole, decoded, streamed.texts())
        cut = [(one[:at], one[at:]) for one in whole if len(one) > 1 for at in _cut(rng, one)]
        befores = reference.decode_batch([before for before, _ in cut], skip_special_tokens=skip)
        cut, befores = _complete(cut, befores)
        fulls = reference.decode_batch([a + b for a, b in cut], skip_special_tokens=skip)
        alone = reference.decode_batch([after for _, after in cut], skip_special_tokens=skip)
        prompts = Batch.of_ids([before for before, _ in cut])
        answers = engine.stream_batch(Batch.of_ids([after for _, after in cut]), skip, prompts)
        for parts, before, full, own, found in zip(
            cut, befores, fulls, alone, answers.texts(), strict=True
        ):
            begins_anew = parts[0][-1] in special
            expected = own if begins_anew else full[len(before) :]
            if begins_anew or full.startswith(before):
                assert found == expected, parts


def _cut(rng: random.Random, ids: list[int]) -> list[int]:
    return [rng.randrange(1, len(ids))]


def _complete(cut: list[tuple[list[int], list[int]]], befores: list[str]) -> tuple[list, list]:
    """The cuts that are not in the middle of a character."""
    kept = [(c, text) for c, text in zip(cut, befores, strict=True) if not text.endswith("\ufffd")]
    return [c for c, _ in kept], [text for _, text in kept]


def without_broken_bytes(
    reference: Tokenizer, ids: list[list[int]], special: set[int]
) -> list[list[int]]:
    """Without those where byte tokens stand in a run that is no valid text; streams keep what is
    valid."""
    vocabulary = reference.get_vocab(with_added_tokens=True)
    byte_of = {i: int(t[3:5], 16) for t, i in vocabulary.items() if BYTE_TOKEN.fullmatch(t)}
    return [one for one in ids if not _breaks_byte_run(byte_of, one, special)]


def _breaks_byte_run(byte_of: dict[int, int], ids: list[int], special: set[int]) -> bool:
    if byte_of.keys().isdisjoint(ids):
        return False
    for skipped in (set(), special):
        run = b""
        for token_id in [*ids, -1]:
            if token_id in skipped:
                continue
            if token_id in byte_of:
                run += bytes([byte_of[token_id]])
                continue
            if "\ufffd" in run.decode(errors="replace"):
                return True
            run = b""
    return False


def real_files(max_bytes: int) -> list[str]:
    """Source code, prose and tables that every Python and every Debian has; other scripts among
    them. Each file gives its beginning."""
    library = Path(os.__file__).parent
    files = [
        *sorted(library.glob("*.py")),
        *sorted(library.glob("encodings/*.py")),
        *sorted(Path(tokenizers.__file__).parent.rglob("*.pyi")),
        *sorted(library.glob("site-packages/pip/_vendor/**/*.py")),
        *sorted(library.glob("test/cjkencodings/*-utf8.txt")),
        *sorted(Path("/usr/share/i18n/locales").glob("*_*")),
        *sorted(Path("/usr/share/common-licenses").glob("*")),
        *sorted(Path("/usr/share/perl").glob("*/unicore/*.pl")),
        *sorted(Path("/usr/share/doc").glob("*/*.html")),
    ]
    texts = []
    for path in files:
        if path.is_file():
            texts.append(path.read_bytes()[:max_bytes].decode("utf-8", errors="replace"))
    return texts
