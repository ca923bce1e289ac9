"""The check at export finds differences and says where they are."""

import json
import random

import pytest
from tokenizer_fixtures import byte_level
from tokenizers import Tokenizer

from pinfer.export.errors import ExportError
from pinfer.export.tokenizer_verify import corpus, random_ids, verify_tokenizer

TEXTS = ["hello world", "straße", "<s>aa 123 🦙</s>", ""] * 10


@pytest.fixture(scope="module")
def reference():
    return Tokenizer.from_str(json.dumps(byte_level()))


def encode_with(reference):
    return lambda texts: [encoding.ids for encoding in reference.encode_batch(texts)]


def decode_with(reference):
    return lambda ids, skip: reference.decode_batch(ids, skip_special_tokens=skip)


def test_equal_sides_give_a_record(reference):
    record = verify_tokenizer(
        reference, encode_with(reference), decode_with(reference), seed=3, contexts=("{c}", "a{c}b")
    )
    assert record["differences"] == 0
    assert record["seed"] == 3
    assert record["encoded_texts"] > 10_000
    assert record["reference"].startswith("tokenizers ")


def test_a_wrong_id_is_reported(reference):
    def encode(texts):
        ids = encode_with(reference)(texts)
        return [
            [*one, 0] if "straße" in text else one for text, one in zip(texts, ids, strict=True)
        ]

    with pytest.raises(ExportError, match=r"differ from tokenizers .*stra\\xdfe"):
        verify_tokenizer(reference, encode, decode_with(reference), texts=TEXTS)


def test_wrong_text_is_reported(reference):
    def decode(ids, skip):
        return [text.replace("\ufffd", "") for text in decode_with(reference)(ids, skip)]

    with pytest.raises(ExportError, match="decode of"):
        verify_tokenizer(reference, encode_with(reference), decode, texts=TEXTS)


def test_the_corpus_depends_on_the_seed_alone(reference):
    assert corpus(1, ["<x>"], 50) == corpus(1, ["<x>"], 50)
    assert corpus(1, ["<x>"], 50) != corpus(2, ["<x>"], 50)
    known = set(reference.get_vocab(True).values())
    assert all(set(ids) <= known for ids in random_ids(reference, random.Random(0), 100))
