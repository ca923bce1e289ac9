"""Every component of tokenizer.json, engine against reference, on small tokenizers."""

import json
import random
import re

import pytest
from tokenizer_checks import (
    POINTS,
    added_tokens,
    assert_decoded,
    assert_encoded,
    assert_streamed,
    ids_of,
)
from tokenizer_engine import EngineTokenizer
from tokenizer_fixtures import byte_fallback, unigram, word_piece
from tokenizer_samples import (
    BYTE_LEVEL,
    component_samples,
    metaspace,
    model,
    replace,
    sequence,
    split,
    template,
    tokenizer_json,
)
from tokenizers import Tokenizer

from pinfer.export.errors import ExportError
from pinfer.export.tokenizer_tables import compile_tokenizer
from pinfer.export.tokenizer_unicode import probed_code_points
from pinfer.export.tokenizer_verify import CONTEXTS, code_point_texts, random_ids, random_text

SAMPLES = component_samples()
UNPROBED = [0x40200, 0xD8000, 0xF0200, 0xF8000, 0x10FDFF]  # in planes that are asked at both ends


def reference_of(sample: dict) -> Tokenizer:
    reference = Tokenizer.from_str(json.dumps(sample))
    reference.no_truncation()
    reference.no_padding()
    return reference


@pytest.mark.parametrize("name", SAMPLES)
def test_component(name, tmp_path):
    sample = SAMPLES[name]
    reference = reference_of(sample)
    engine = EngineTokenizer(compile_tokenizer(sample), tmp_path)
    rng = random.Random(name)
    added = [entry["content"] for entry in sample["added_tokens"]]
    texts = ["", " ", "a", *added, *(random_text(rng, added) for _ in range(150))]
    points = rng.sample(probed_code_points(), 800)
    texts += code_point_texts(points + UNPROBED, ["{c}", "a{c}b", " {c} "])
    # Marks that move in front of those of the first character's decomposition.
    texts += [first + mark + "中" for first in "éộ가\u0f81" for mark in "\u0301\u0323\u0f71\u0345"]
    assert_encoded(reference, engine, texts)
    ids = ids_of(reference, texts)[:200] + random_ids(reference, rng, 200)
    assert_decoded(reference, engine, ids)
    assert_streamed(reference, engine, rng, ids)


# What a sample with another decoder has in common with one that is there already.
ENCODERS = [name for name in SAMPLES if not name.startswith("decoder ")] + ["decoder none"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ENCODERS)
def test_every_code_point(name, tmp_path):
    """Alone and in six contexts; minutes a sample."""
    reference = reference_of(SAMPLES[name])
    engine = EngineTokenizer(compile_tokenizer(SAMPLES[name]), tmp_path)
    for start in range(0, len(POINTS), 100_000):
        chunk = POINTS[start : start + 100_000]
        assert_encoded(reference, engine, [chr(point) for point in chunk], [False])
        assert_encoded(reference, engine, code_point_texts(chunk, CONTEXTS[1:]), [False])


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLES)
def test_many_random_mixes(name, tmp_path):
    """Text to ids and back, whole and streamed."""
    reference = reference_of(SAMPLES[name])
    engine = EngineTokenizer(compile_tokenizer(SAMPLES[name]), tmp_path)
    rng = random.Random(f"many {name}")
    added = added_tokens(reference)
    texts = [random_text(rng, added) for _ in range(50_000)]
    ids = assert_encoded(reference, engine, texts) + random_ids(reference, rng, 20_000)
    assert_decoded(reference, engine, ids)
    assert_streamed(reference, engine, rng, rng.sample(ids, 20_000))


ROBERTA = {
    "sep": ["</s>", 2],
    "cls": ["<s>", 1],
    "trim_offsets": True,
    "add_prefix_space": False,
}
REFUSED = {
    "dropout": (tokenizer_json({**model("byte_level"), "dropout": 0.1}), "model.dropout"),
    "normalizer": (tokenizer_json(model("bpe"), normalizer={"type": "Hyphenate"}), "Hyphenate"),
    "text before the first character, and bytes": (
        tokenizer_json(
            model("byte_level"),
            normalizer=replace({"Regex": "x*"}, "_"),
            pre_tokenizer=sequence("pretokenizers", {"type": "WhitespaceSplit"}, BYTE_LEVEL),
        ),
        "normalizer Replace of {'Regex': 'x*'}: it writes text before the first character, and"
        " ByteLevel stands behind it",
    ),
    "text before the first character, and a normal form": (
        {
            **tokenizer_json(
                model("bpe"),
                normalizer=sequence(
                    "normalizers",
                    {"type": "NFD"},
                    replace({"String": ""}, "_"),
                    sequence("normalizers", {"type": "Prepend", "prepend": "a"}, {"type": "NFC"}),
                ),
            ),
            "added_tokens": [],  # the reference fails on their normal form
        },
        "normalizer Replace of {'String': ''}: it writes text before the first character, and NFC",
    ),
    "added tokens that are one": (
        {
            **tokenizer_json(model("bpe"), normalizer={"type": "Lowercase"}),
            "added_tokens": [
                {
                    "id": 500 + i,
                    "content": content,
                    "special": i == 1,
                    "normalized": True,
                    "lstrip": False,
                    "rstrip": False,
                    "single_word": False,
                }
                for i, content in enumerate(("[Pad]", "[PAD]"))
            ],
        },
        "added_tokens: '[Pad]' and '[PAD]' are both '[pad]' once normalized",
    ),
    "pre_tokenizer": (
        tokenizer_json(model("bpe"), pre_tokenizer={"type": "UnicodeScripts"}),
        "UnicodeScripts",
    ),
    "nested pre_tokenizer": (
        tokenizer_json(
            model("bpe"), pre_tokenizer=sequence("pretokenizers", BYTE_LEVEL, {"type": "Cut"})
        ),
        "Cut",
    ),
    "decoder": (
        tokenizer_json(model("bpe"), decoder={"type": "BPEDecoder", "suffix": "</w>"}),
        "BPEDecoder",
    ),
    "ctc": (
        tokenizer_json(
            model("bpe"),
            decoder={
                "type": "CTC",
                "pad_token": "<pad>",
                "word_delimiter_token": "|",
                "cleanup": True,
            },
        ),
        "CTC",
    ),
    "two processors": (
        tokenizer_json(
            model("bpe"),
            post_processor=sequence(
                "processors", template("<s>", "$A"), BYTE_LEVEL, template("$A", "</s>")
            ),
        ),
        "expected one processor that adds tokens, found 2 (TemplateProcessing, TemplateProcessing",
    ),
    "processors in processors": (
        tokenizer_json(
            model("bpe"),
            post_processor=sequence(
                "processors",
                sequence("processors", template("<s>", "$A")),
                sequence("processors", {"type": "RobertaProcessing", **ROBERTA}),
            ),
        ),
        "found 2 (TemplateProcessing, RobertaProcessing",
    ),
    "a token that is not described": (
        tokenizer_json(
            model("bpe"), post_processor={**template("<s>", "$A"), "special_tokens": {}}
        ),
        "post_processor.single: '<s>' is not in special_tokens",
    ),
    "strip of too much": (
        tokenizer_json(
            model("bpe"), decoder={"type": "Strip", "content": "e", "start": 1, "stop": 1}
        ),
        "decoder Strip {'content': 'e', 'start': 1, 'stop': 1}: the reference fails on token 'e'",
    ),
    "strip after fuse": (
        tokenizer_json(
            model("bpe"),
            decoder=sequence(
                "decoders",
                {"type": "Fuse"},
                {"type": "Strip", "content": "e", "start": 0, "stop": 1},
            ),
        ),
        "decoder Strip: stop 1: expected 0",
    ),
    "byte level after fuse": (
        tokenizer_json(model("bpe"), decoder=sequence("decoders", {"type": "Fuse"}, BYTE_LEVEL)),
        "decoder ByteLevel: expected before",
    ),
    "byte level twice": (
        tokenizer_json(model("bpe"), decoder=sequence("decoders", BYTE_LEVEL, BYTE_LEVEL)),
        "decoder ByteLevel: expected before",
    ),
    "byte fallback after metaspace": (
        tokenizer_json(
            model("bpe"),
            decoder=sequence("decoders", metaspace("first"), {"type": "ByteFallback"}),
        ),
        "decoder ByteFallback: expected before",
    ),
    "byte fallback after fuse": (
        tokenizer_json(
            model("bpe"), decoder=sequence("decoders", {"type": "Fuse"}, {"type": "ByteFallback"})
        ),
        "decoder ByteFallback: expected before",
    ),
    "post_processor": (tokenizer_json(model("bpe"), post_processor={"type": "Pair"}), "Pair"),
    "model": (tokenizer_json({"type": "Neural", "vocab": {"a": 0}}), "Neural"),
    "pattern": (
        tokenizer_json(model("bpe"), pre_tokenizer=split({"Regex": "(unclosed"}, "Isolated")),
        "pre_tokenizer",
    ),
    "not JSON": ("{", "not valid JSON"),
    "no model": ({"version": "1.0"}, "model"),
}


STREAMED = {
    "byte level then fuse": sequence("decoders", BYTE_LEVEL, {"type": "Fuse"}),
    "replace then byte level": sequence("decoders", replace({"String": "▁"}, "Ġ"), BYTE_LEVEL),
    "metaspace then byte level": sequence("decoders", metaspace("always"), BYTE_LEVEL),
    "word_piece then byte level": sequence(
        "decoders", {"type": "WordPiece", "prefix": "##", "cleanup": True}, BYTE_LEVEL
    ),
    "fuse then replace": sequence("decoders", {"type": "Fuse"}, replace({"String": "▁"}, " ")),
    "fuse, replace, strip": sequence(
        "decoders",
        {"type": "Fuse"},
        replace({"String": "▁"}, " "),
        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        {"type": "Fuse"},
    ),
}


@pytest.mark.parametrize("name", STREAMED)
def test_text_is_not_held_back(name, tmp_path):
    """Steps on the whole text that can be done token by token: each token gives its text."""
    data = tokenizer_json(model("bpe"), pre_tokenizer=metaspace("first"), decoder=STREAMED[name])
    reference = reference_of(data)
    ids = reference.encode("the quick brown fox", add_special_tokens=False).ids
    (pieces,) = EngineTokenizer(compile_tokenizer(data), tmp_path).stream([ids], False)
    assert "".join(pieces) == reference.decode(ids, skip_special_tokens=False)
    assert all(pieces[: len(ids)])


WRONG = (None, 5, -1, 1.5, True, "", [], {}, [1], {"a": 1}, "x", 10**9, [["a"]], [None])


def places(value, path=()):
    """The paths of a JSON value's parts; of a long list or object its beginning."""
    yield path
    if isinstance(value, dict | list):
        children = value.items() if isinstance(value, dict) else enumerate(value)
        for key, child in list(children)[:12]:
            yield from places(child, (*path, key))


def replaced(value, path, part):
    """The value with another part at the path."""
    if not path:
        return part
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(copy[path[0]], path[1:], part)
    return copy


@pytest.mark.parametrize(
    "make", [unigram, word_piece, pytest.param(byte_fallback, marks=pytest.mark.slow)]
)
def test_a_wrong_part_anywhere_is_refused_or_compiled(make):
    """Whatever a file holds, the exporter says what is wrong with it."""
    sample = make()
    paths = list(places(sample))
    rng = random.Random(5)
    for path in [path for path in paths if path[:2] != ("model", "vocab")] + rng.sample(paths, 30):
        for part in rng.sample(WRONG, 4):
            try:
                compile_tokenizer(replaced(sample, path, part))
            except ExportError as error:
                assert str(error).startswith("tokenizer.json: ")


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_name(name):
    sample, expected = REFUSED[name]
    with pytest.raises(ExportError, match=re.escape(expected)):
        compile_tokenizer(sample)
