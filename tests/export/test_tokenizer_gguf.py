"""Tokenizers rebuilt from GGUF metadata."""

import json

import pytest
from registry_models import RegistryUnavailable, smollm2_gguf
from tokenizers import Tokenizer

from pinfer.export.errors import ExportError
from pinfer.export.tokenizer_gguf import tokenizer_from_gguf
from pinfer.export.tokenizer_merges import merges_from_vocabulary
from pinfer.export.tokenizer_tables import compile_tokenizer

gguf = pytest.importorskip("gguf")

TOKENS = ["<unk>", "<s>", "</s>", "▁", "a", "b", "▁a", "ab", "▁ab", "<0x0A>", "<think>"]
KINDS = [2, 3, 3, 1, 1, 1, 1, 1, 1, 6, 4]
SCORES = [0.0, 0.0, 0.0, -9.0, -8.0, -7.0, -2.0, -1.0, -3.0, 0.0, 0.0]
SENTENCEPIECE = {
    "general.architecture": "llama",
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.tokens": TOKENS,
    "tokenizer.ggml.scores": SCORES,
    "tokenizer.ggml.token_type": KINDS,
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
    "tokenizer.ggml.unknown_token_id": 0,
}


@pytest.fixture(scope="module")
def smollm2_fields():
    try:
        reader = gguf.GGUFReader(smollm2_gguf())
    except RegistryUnavailable as error:
        pytest.skip(str(error))
    return {key: field.contents() for key, field in reader.fields.items()}


def test_smollm2_has_its_own_components(smollm2_fields):
    data = tokenizer_from_gguf(smollm2_fields)
    kinds = [part["type"] for part in data["pre_tokenizer"]["pretokenizers"]]
    assert kinds == ["Digits", "ByteLevel"]
    assert data["pre_tokenizer"]["pretokenizers"][0]["individual_digits"]
    assert data["post_processor"] is None
    special = [entry["content"] for entry in data["added_tokens"] if entry["special"]]
    assert special[:3] == ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    assert len(special) == 17


def test_smollm2_ids(smollm2_fields):
    tokenizer = Tokenizer.from_str(json.dumps(tokenizer_from_gguf(smollm2_fields)))
    encoding = tokenizer.encode("<|im_start|>user\nIt's 2024, a  1<|im_end|>")
    assert encoding.tokens == [
        "<|im_start|>", "user", "Ċ", "It", "'s", "Ġ", "2", "0", "2", "4", ",", "Ġa", "ĠĠ", "1",
        "<|im_end|>",
    ]  # fmt: skip


def test_smollm2_agrees_with_transformers_but_for_digits(smollm2_fields):
    """transformers' own conversion keeps no digit rule; on text without digits both agree."""
    auto = pytest.importorskip("transformers").AutoTokenizer
    path = smollm2_gguf()
    theirs = auto.from_pretrained(path.parent, gguf_file=path.name)
    ours = Tokenizer.from_str(json.dumps(tokenizer_from_gguf(smollm2_fields)))
    for text in ("Hello world!\n\n  It's naïve — 天气 🦙", "<|im_start|>a<|im_end|>", "x\ty  z "):
        assert ours.encode(text).ids == theirs(text, add_special_tokens=False)["input_ids"]


def test_sentencepiece():
    data = tokenizer_from_gguf(SENTENCEPIECE)
    compile_tokenizer(data)
    tokenizer = Tokenizer.from_str(json.dumps(data))
    assert tokenizer.encode("ab a<think>").tokens == ["<s>", "▁ab", "▁a", "<think>"]
    assert tokenizer.decode(tokenizer.encode("ab a\nb").ids) == "ab a\nb"
    without = tokenizer_from_gguf({**SENTENCEPIECE, "tokenizer.ggml.add_bos_token": False})
    assert without["post_processor"] is None


def test_merges_follow_the_scores():
    assert merges_from_vocabulary(["a", "b", "ab", "aba", "ba"], [-5, -4, -1, -2, -3]) == [
        ["a", "b"],
        ["a", "ba"],
        ["ab", "a"],
        ["b", "a"],
    ]


REFUSED = {
    "model": ({**SENTENCEPIECE, "tokenizer.ggml.model": "rwkv"}, "rwkv"),
    "no tokens": ({"tokenizer.ggml.model": "llama"}, "tokenizer.ggml.tokens"),
    "no scores": ({**SENTENCEPIECE, "tokenizer.ggml.scores": None}, "tokenizer.ggml.scores"),
    "bos": ({**SENTENCEPIECE, "tokenizer.ggml.bos_token_id": 99}, "bos_token_id"),
    "twice": ({**SENTENCEPIECE, "tokenizer.ggml.tokens": [*TOKENS[:-1], "a"]}, "'a' stands at"),
    "pre": (
        {
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.tokens": ["a"],
            "tokenizer.ggml.merges": [],
            "tokenizer.ggml.pre": "unheard-of",
        },
        "unheard-of",
    ),
    "no merges": ({"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": ["a"]}, "merges"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_field(name):
    fields, expected = REFUSED[name]
    with pytest.raises(ExportError, match=expected):
        tokenizer_from_gguf(fields)
