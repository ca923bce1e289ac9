"""Comparisons of the engine's tokenizer with the reference, and the texts they are made on."""

import os
import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import tokenizers
from tokenizer_engine import EngineTokenizer
from tokenizers import Tokenizer

from pinfer.export.tokenizer_verify import CONTEXTS, compare_decoding, compare_encoding

BYTE_TOKEN = re.compile(r"<0x[0-9A-F]{2}>")
POINTS = [p for p in range(0x110000) if not 0xD800 <= p < 0xE000]


def added_tokens(reference: Tokenizer) -> list[str]:
    return [token.content for token in reference.get_added_tokens_decoder().values()]


def assert_encoded(
    reference: Tokenizer,
    engine: EngineTokenizer,
    texts: list[str],
    add_special_tokens: Sequence[bool] = (True, False),
) -> None:
    for add in add_special_tokens:
        differences = compare_encoding(
            reference, lambda batch, add=add: engine.encode(batch, add), texts, add
        )
        assert not differences, "\n".join(map(str, differences[:5]))


def assert_decoded(
    reference: Tokenizer,
    engine: EngineTokenizer,
    ids: list[list[int]],
    skip_special_tokens: Sequence[bool] = (True, False),
) -> None:
    for skip in skip_special_tokens:
        differences = compare_decoding(reference, engine.decode, ids, skip)
        assert not differences, "\n".join(map(str, differences[:5]))


def ids_of(reference: Tokenizer, texts: list[str]) -> list[list[int]]:
    """The ids of the texts that the reference can encode, without automatic special tokens."""
    result = []
    for text in texts:
        try:
            result.append(reference.encode(text, add_special_tokens=False).ids)
        except Exception:  # it has no unknown token
            continue
    return result


def assert_streamed(
    reference: Tokenizer,
    engine: EngineTokenizer,
    rng: random.Random,
    ids: list[list[int]],
    with_prompts: bool = True,
) -> None:
    """Streams of all ids, and cut at random into what stood before and what is streamed.

    Behind a special token a text of its own begins; behind any other one the pieces join to what
    the reference decodes from all ids. A cut in the middle of a character is not asked for.
    """
    special = {i for i, token in reference.get_added_tokens_decoder().items() if token.special}
    whole = [one for one in ids if not breaks_byte_run(reference, one, special)]
    for skip in (True, False):
        decoded = reference.decode_batch(whole, skip_special_tokens=skip)
        for given, text, pieces in zip(whole, decoded, engine.stream(whole, skip), strict=True):
            assert "".join(pieces) == text, given
        if not with_prompts:
            continue
        cuts = [rng.randrange(1, len(one)) for one in whole if len(one) > 1]
        cut = [(one[:at], one[at:]) for one, at in zip(_longer(whole), cuts, strict=True)]
        befores = reference.decode_batch([before for before, _ in cut], skip_special_tokens=skip)
        cut, befores = _complete(cut, befores)
        fulls = reference.decode_batch([a + b for a, b in cut], skip_special_tokens=skip)
        alone = reference.decode_batch([after for _, after in cut], skip_special_tokens=skip)
        answers = engine.stream([b for _, b in cut], skip, [a for a, _ in cut])
        for parts, before, full, own, pieces in zip(
            cut, befores, fulls, alone, answers, strict=True
        ):
            begins_anew = parts[0][-1] in special
            expected = own if begins_anew else full[len(before) :]
            if begins_anew or full.startswith(before):
                assert "".join(pieces) == expected, parts


def _longer(ids: list[list[int]]) -> list[list[int]]:
    return [one for one in ids if len(one) > 1]


def _complete(cut: list[tuple[list[int], list[int]]], befores: list[str]) -> tuple[list, list]:
    """The cuts that are not in the middle of a character."""
    kept = [(c, text) for c, text in zip(cut, befores, strict=True) if not text.endswith("\ufffd")]
    return [c for c, _ in kept], [text for _, text in kept]


def breaks_byte_run(reference: Tokenizer, ids: list[int], special: set[int]) -> bool:
    """Whether byte tokens stand in a run that is no valid text; streams keep what is valid."""
    for skipped in (set(), special):
        run = b""
        for token_id in [*ids, None]:
            if token_id in skipped:
                continue
            token = None if token_id is None else reference.id_to_token(token_id)
            if token is not None and BYTE_TOKEN.fullmatch(token):
                run += bytes([int(token[3:5], 16)])
                continue
            if "\ufffd" in run.decode(errors="replace"):
                return True
            run = b""
    return False


def context_texts(points: Sequence[int], contexts: Sequence[str] = CONTEXTS[1:]) -> Iterator[list]:
    """For each context, one text a code point."""
    for context in contexts:
        yield [context.replace("{c}", chr(point)) for point in points]


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
