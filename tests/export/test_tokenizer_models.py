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
from tokenizer_checks import (
    POINTS,
    added_tokens,
    assert_decoded,
    assert_encoded,
    assert_streamed,
    ids_of,
    real_files,
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


def test_sample(both):
    reference, engine = both
    rng = random.Random(5)
    added = rng.sample(added_tokens(reference), min(50, len(added_tokens(reference))))
    texts = corpus(0, added, num_mixes=1000)
    assert_encoded(reference, engine, rng.sample(texts, 1500) + texts[-1000:])
    assert_decoded(reference, engine, random_ids(reference, rng, 1000))


def test_streams_join_to_the_whole_text(both):
    reference, engine = both
    rng = random.Random(6)
    added = added_tokens(reference)
    ids = ids_of(reference, [random_text(rng, added) for _ in range(400)])
    assert_streamed(reference, engine, rng, ids + random_ids(reference, rng, 200))
    for one, pieces in zip(ids, engine.stream(ids, True), strict=True):
        text = reference.decode(one)
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
    assert_encoded(reference, engine, [text[:5_000] for text in texts])


def test_real_files(both):
    """Source code and text in other scripts, as files have it."""
    reference, engine = both
    texts = random.Random(9).sample(real_files(3_000), 40)
    assert_encoded(reference, engine, texts, [False])
    assert_decoded(reference, engine, ids_of(reference, texts), [False])


@pytest.mark.slow
def test_all_real_files(both):
    reference, engine = both
    texts = real_files(16_000)
    assert sum(len(text) for text in texts) > 1_000_000
    assert sum(character > "\x7f" for text in texts for character in text) > 10_000
    assert_encoded(reference, engine, texts, [False])
    assert_decoded(reference, engine, ids_of(reference, texts), [False])


@pytest.mark.slow
@pytest.mark.parametrize("context", CONTEXTS)
def test_every_code_point(both, context):
    """Alone and in six contexts, there and back."""
    reference, engine = both
    for start in range(0, len(POINTS), 100_000):
        chunk = POINTS[start : start + 100_000]
        texts = [context.replace("{c}", chr(point)) for point in chunk]
        ids = assert_encoded(reference, engine, texts, [False])
        assert_decoded(reference, engine, ids, [False])
        joined = code_point_texts(chunk, [context])
        assert_decoded(reference, engine, assert_encoded(reference, engine, joined, [True]), [True])


@pytest.mark.slow
def test_many_random_mixes(both):
    reference, engine = both
    rng = random.Random(8)
    added = added_tokens(reference)
    texts = [random_text(rng, added) for _ in range(50_000)]
    ids = assert_encoded(reference, engine, texts) + random_ids(reference, rng, 50_000)
    assert_decoded(reference, engine, ids)


@pytest.mark.slow
def test_many_streams(both):
    reference, engine = both
    rng = random.Random(10)
    added = added_tokens(reference)
    texts = [random_text(rng, added) for _ in range(50_000)]
    assert_streamed(reference, engine, rng, ids_of(reference, texts))
    assert_streamed(reference, engine, rng, random_ids(reference, rng, 50_000))


@pytest.mark.slow
def test_every_token_alone(both):
    reference, engine = both
    ids = [[token_id] for token_id in sorted(reference.get_vocab(True).values())]
    assert_decoded(reference, engine, ids)


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
