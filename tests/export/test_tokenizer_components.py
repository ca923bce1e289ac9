"""Every component of tokenizer.json, engine against reference, on small tokenizers."""

import json
import random
import re

import pytest
from tokenizer_engine import EngineTokenizer
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
from pinfer.export.tokenizer_verify import code_point_texts, random_ids, random_text

SAMPLES = component_samples()
BYTE_TOKEN = re.compile(r"<0x[0-9A-F]{2}>")


def reference_of(sample: dict) -> Tokenizer:
    reference = Tokenizer.from_str(json.dumps(sample))
    reference.no_truncation()
    reference.no_padding()
    return reference


def expected_ids(reference: Tokenizer, text: str, add_special_tokens: bool):
    """The reference's ids; None where it fails."""
    try:
        return reference.encode(text, add_special_tokens=add_special_tokens).ids
    except Exception:
        return None


@pytest.mark.parametrize("name", SAMPLES)
def test_component(name, tmp_path):
    sample = SAMPLES[name]
    reference = reference_of(sample)
    engine = EngineTokenizer(compile_tokenizer(sample), tmp_path)
    rng = random.Random(name)
    added = [entry["content"] for entry in sample["added_tokens"]]
    texts = ["", " ", "a", *added, *(random_text(rng, added) for _ in range(150))]
    points = rng.sample(probed_code_points(), 800)
    texts += code_point_texts(points, ["{c}", "a{c}b", " {c} "])
    for add_special_tokens in (True, False):
        expected = [expected_ids(reference, text, add_special_tokens) for text in texts]
        for text, ids, ours in zip(
            texts, expected, engine.encode(texts, add_special_tokens), strict=True
        ):
            if ids is None:
                assert isinstance(ours, str), f"{text!r}: the reference refuses it"
            else:
                assert ours == ids, ascii(text)
    all_ids = [ids for ids in expected if ids is not None][:200] + random_ids(reference, rng, 200)
    for skip_special_tokens in (True, False):
        decoded = reference.decode_batch(all_ids, skip_special_tokens=skip_special_tokens)
        assert engine.decode(all_ids, skip_special_tokens) == decoded
        for ids, text, pieces in zip(
            all_ids, decoded, engine.stream(all_ids, skip_special_tokens), strict=True
        ):
            if not breaks_byte_run(reference, ids, skip_special_tokens):
                assert "".join(pieces) == text, ids


def breaks_byte_run(reference: Tokenizer, ids: list[int], skip_special_tokens: bool) -> bool:
    """Whether byte tokens stand in a run that is no valid text; streams keep what is valid."""
    special = {i for i, t in reference.get_added_tokens_decoder().items() if t.special}
    run = b""
    for token_id in [*ids, None]:
        if skip_special_tokens and token_id in special:
            continue
        token = None if token_id is None else reference.id_to_token(token_id)
        if token is not None and BYTE_TOKEN.fullmatch(token):
            run += bytes([int(token[3:5], 16)])
            continue
        if "\ufffd" in run.decode(errors="replace"):
            return True
        run = b""
    return False


ROBERTA = {
    "sep": ["</s>", 2],
    "cls": ["<s>", 1],
    "trim_offsets": True,
    "add_prefix_space": False,
}
REFUSED = {
    "dropout": (tokenizer_json({**model("byte_level"), "dropout": 0.1}), "model.dropout"),
    "normalizer": (tokenizer_json(model("bpe"), normalizer={"type": "Hyphenate"}), "Hyphenate"),
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


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_name(name):
    sample, expected = REFUSED[name]
    with pytest.raises(ExportError, match=re.escape(expected)):
        compile_tokenizer(sample)
