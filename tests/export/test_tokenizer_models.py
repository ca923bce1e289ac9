"""Real tokenizers, engine against reference: samples in the fast tier, full matrices in the slow.

The tokenizers come from registry packages (tests/registry_models.py).
"""

import json
import random
from pathlib import Path

import gguf
import pytest
import tokenizers
from registry_models import (
    NPM_TOKENIZERS,
    RegistryUnavailable,
    cached_bytes,
    npm_tokenizer,
    smollm2_gguf,
)
from tokenizer_engine import EngineTokenizer
from tokenizers import Tokenizer

from pinfer.export import tokenizer_tables
from pinfer.export.tokenizer_gguf import tokenizer_from_gguf
from pinfer.export.tokenizer_tables import compile_tokenizer
from pinfer.export.tokenizer_unicode import probed_code_points
from pinfer.export.tokenizer_verify import (
    CONTEXTS,
    code_point_texts,
    compare_decoding,
    compare_encoding,
    corpus,
    random_ids,
    random_text,
)

FAST = ["smollm2", "qwen3", "llama3", "gemma3", "gpt4o"]
NAMES = [*FAST, *(pytest.param(n, marks=pytest.mark.slow) for n in NPM_TOKENIZERS if n not in FAST)]
EXPORTER = Path(tokenizer_tables.__file__).parent


def tokenizer_text(name: str) -> str:
    """tokenizer.json of a tokenizer in NAMES; skips the test where it cannot be had."""
    try:
        if name != "smollm2":
            return (npm_tokenizer(name) / "tokenizer.json").read_text(encoding="utf-8")
        reader = gguf.GGUFReader(smollm2_gguf())
    except RegistryUnavailable as error:
        pytest.skip(str(error))
    fields = {key: field.contents() for key, field in reader.fields.items()}
    return json.dumps(tokenizer_from_gguf(fields), ensure_ascii=False)


def compiled(name: str, text: str) -> bytes:
    """tokenizer.bin; made anew when the exporter's tokenizer modules change."""
    sources = [path.read_bytes() for path in sorted(EXPORTER.glob("tokenizer_*.py"))]
    inputs = [text.encode(), tokenizers.__version__.encode(), *sources]
    return cached_bytes(f"{name}.bin", inputs, lambda: compile_tokenizer(text))


@pytest.fixture(scope="module", params=NAMES)
def both(request, tmp_path_factory):
    """(reference, engine) of one tokenizer."""
    text = tokenizer_text(request.param)
    reference = Tokenizer.from_str(text)
    reference.no_truncation()
    reference.no_padding()
    folder = tmp_path_factory.mktemp(request.param)
    return reference, EngineTokenizer(compiled(request.param, text), folder)


def added_tokens(reference: Tokenizer) -> list[str]:
    return [token.content for token in reference.get_added_tokens_decoder().values()]


def assert_equal(reference: Tokenizer, engine: EngineTokenizer, texts: list[str]) -> None:
    for add_special_tokens in (True, False):
        differences = compare_encoding(
            reference,
            lambda batch, add=add_special_tokens: engine.encode(batch, add),
            texts,
            add_special_tokens,
        )
        assert not differences, "\n".join(map(str, differences[:5]))


def test_sample(both):
    reference, engine = both
    rng = random.Random(5)
    added = rng.sample(added_tokens(reference), min(50, len(added_tokens(reference))))
    texts = corpus(0, added, num_mixes=1000)
    assert_equal(reference, engine, rng.sample(texts, 1500) + texts[-1000:])
    ids = random_ids(reference, rng, 1000)
    for skip_special_tokens in (True, False):
        differences = compare_decoding(reference, engine.decode, ids, skip_special_tokens)
        assert not differences, "\n".join(map(str, differences[:5]))


def test_streams_join_to_the_whole_text(both):
    reference, engine = both
    rng = random.Random(6)
    added = added_tokens(reference)
    texts = [random_text(rng, added) for _ in range(500)]
    ids = [reference.encode(text, add_special_tokens=False).ids for text in texts]
    for skip_special_tokens in (True, False):
        expected = reference.decode_batch(ids, skip_special_tokens=skip_special_tokens)
        for text, pieces in zip(expected, engine.stream(ids, skip_special_tokens), strict=True):
            assert "".join(pieces) == text
            assert not any("\ufffd" in piece for piece in pieces) or "\ufffd" in text


def test_text_without_a_break(both):
    reference, engine = both
    rng = random.Random(7)
    letters = "".join(rng.choice("abcdefgh") for _ in range(400_000))
    texts = ["a" * 400_000, " " * 400_000, "中" * 133_000, letters, "<" * 400_000]
    answers = engine.encode(texts, add_special_tokens=False)
    for text, ids in zip(texts, answers, strict=True):
        assert engine.decode([ids], True) == [text]
    # The reference is slow on these; shorter ones show that the ids are the same.
    assert_equal(reference, engine, [text[:5_000] for text in texts])


@pytest.mark.slow
def test_every_code_point_alone_and_in_contexts(both):
    reference, engine = both
    points = [p for p in range(0x110000) if not 0xD800 <= p < 0xE000]
    for start in range(0, len(points), 100_000):
        chunk = points[start : start + 100_000]
        assert_equal(reference, engine, [chr(p) for p in chunk])
        if start < 400_000 or chunk[-1] >= 0xE0000:
            for context in CONTEXTS[1:]:
                assert_equal(reference, engine, [context.replace("{c}", chr(p)) for p in chunk])
        assert_equal(reference, engine, code_point_texts(chunk))


@pytest.mark.slow
def test_many_random_mixes(both):
    reference, engine = both
    rng = random.Random(8)
    added = added_tokens(reference)
    texts = [random_text(rng, added) for _ in range(50_000)]
    assert_equal(reference, engine, texts)
    ids = [encoding.ids for encoding in reference.encode_batch_fast(texts[:20_000])]
    ids += random_ids(reference, rng, 20_000)
    for skip_special_tokens in (True, False):
        differences = compare_decoding(reference, engine.decode, ids, skip_special_tokens)
        assert not differences, "\n".join(map(str, differences[:5]))


@pytest.mark.slow
def test_every_token_alone(both):
    reference, engine = both
    ids = [[token_id] for token_id in sorted(reference.get_vocab(True).values())]
    for skip_special_tokens in (True, False):
        differences = compare_decoding(reference, engine.decode, ids, skip_special_tokens)
        assert not differences, "\n".join(map(str, differences[:5]))


def test_ignore_merges_of_llama3(tmp_path):
    """tok-ignore-merges: a word in the vocabulary is one token, whatever the merges say."""
    engine = EngineTokenizer(compiled("llama3", tokenizer_text("llama3")), tmp_path)
    assert engine.encode([" Việt"], add_special_tokens=False) == [[101798]]


def test_probed_code_points_stand_for_all():
    """What is not asked lies in the middle of planes without characters of their own."""
    probed = set(probed_code_points())
    left_out = [p for p in range(0x110000) if p not in probed and not 0xD800 <= p < 0xE000]
    assert {p >> 16 for p in left_out} == {*range(4, 14), 15, 16}
    assert all(512 <= p & 0xFFFF < 0x10000 - 512 for p in left_out)
