"""Tokenizers rebuilt from GGUF metadata."""

import json
import random
import re

import gguf
import pytest
from registry_models import RegistryUnavailable, npm_tokenizer, smollm2_gguf
from tokenizers import Tokenizer
from transformers import AutoTokenizer
from transformers.tokenization_utils_base import generate_merges

from pinfer.export.errors import ExportError
from pinfer.export.exporter import read_checkpoint
from pinfer.export.text import build_text
from pinfer.export.tokenizer_gguf import tokenizer_from_gguf
from pinfer.export.tokenizer_merges import merges_from_vocabulary
from pinfer.export.tokenizer_tables import compile_tokenizer
from pinfer.export.tokenizer_verify import random_text

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


@pytest.mark.slow
def test_smollm2_agrees_with_transformers_but_for_digits(smollm2_fields):
    """transformers' own conversion keeps no digit rule; on text without digits both agree."""
    path = smollm2_gguf()
    theirs = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
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


def test_the_unknown_token_is_special():
    """As in Llama 2's tokenizer.json: one token in a text, left out of decoded text."""
    data = tokenizer_from_gguf(SENTENCEPIECE)
    unknown = next(entry for entry in data["added_tokens"] if entry["content"] == "<unk>")
    assert (unknown["id"], unknown["special"]) == (0, True)
    tokenizer = Tokenizer.from_str(json.dumps(data))
    assert tokenizer.encode("ab<unk>a").ids.count(0) == 1
    assert tokenizer.decode([8, 0, 6], skip_special_tokens=True) == "ab a"


def test_merges_follow_the_scores():
    assert merges_from_vocabulary(["a", "b", "ab", "aba", "ba"], [-5, -4, -1, -2, -3]) == [
        ["a", "b"],
        ["a", "ba"],
        ["ab", "a"],
        ["b", "a"],
    ]


def test_merges_of_one_score_take_the_longest_left_part_first():
    tokens = ["a", "aa", "aaa", "b", "ba"]
    merges = merges_from_vocabulary(tokens, [0, 0, 0, -1, -1], longest_first=True)
    assert merges == [["aa", "a"], ["a", "aa"], ["a", "a"], ["b", "a"]]
    rng = random.Random(4)
    letters = sorted({"".join(rng.choices("ab", k=rng.randrange(1, 9))) for _ in range(300)})
    rng.shuffle(letters)
    scores = [float(rng.randrange(-9, 1)) for _ in letters]
    ids = {token: token_id for token_id, token in enumerate(letters)}
    theirs = generate_merges(ids, dict(zip(letters, scores, strict=True)))
    assert merges_from_vocabulary(letters, scores, longest_first=True) == [*map(list, theirs)]


BYTE_TOKEN = re.compile(r"<0x[0-9A-F]{2}>")


def fields_of(data: dict, architecture: str, pre: str | None = None) -> dict:
    """The GGUF metadata that llama.cpp's converter makes of a tokenizer.json."""
    ids = dict(data["model"]["vocab"])
    ids |= {entry["content"]: entry["id"] for entry in data["added_tokens"]}
    tokens = [f"[PAD{token_id}]" for token_id in range(max(ids.values()) + 1)]
    kinds = [5] * len(tokens)
    for token, token_id in ids.items():
        tokens[token_id] = token
        kinds[token_id] = 6 if BYTE_TOKEN.fullmatch(token) and pre is None else 1
    for entry in data["added_tokens"]:
        kinds[entry["id"]] = 3 if entry["special"] else 4
    post = data["post_processor"] or {}
    adds_bos = post.get("type") == "TemplateProcessing"
    fields = {
        "general.architecture": architecture,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.add_bos_token": adds_bos,
    }
    if adds_bos:
        fields["tokenizer.ggml.bos_token_id"] = ids[post["single"][0]["SpecialToken"]["id"]]
    if pre is not None:
        merges = data["model"]["merges"]
        written = [merge if isinstance(merge, str) else " ".join(merge) for merge in merges]
        return {**fields, "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": pre,
                "tokenizer.ggml.merges": written}  # fmt: skip
    unknown = ids["<unk>"]
    kinds[unknown] = 2
    first = next(i for i, kind in enumerate(kinds) if kind == 1)
    scores = [-float(i - first) if kind == 1 else 0.0 for i, kind in enumerate(kinds)]
    if architecture == "llama":
        runs = [i for i, token in enumerate(tokens) if len(token) > 1 and set(token) == {"▁"}]
        for i in runs:
            scores[i] = -1e9
    for i, kind in enumerate(kinds):
        if kind == 4:  # the converter writes its own score and real spaces
            tokens[i], scores[i] = tokens[i].replace("▁", " "), -1000.0
    return {**fields, "tokenizer.ggml.model": "llama", "tokenizer.ggml.scores": scores,
            "tokenizer.ggml.unknown_token_id": unknown,
            "tokenizer.ggml.add_space_prefix": architecture == "llama"}  # fmt: skip


PUBLISHED = {
    "llama2": ("llama", None),
    "llama3": ("llama", "llama-bpe"),
    "qwen3": ("qwen3", "qwen2"),
    "gpt4o": ("gpt-oss", "gpt-4o"),
    "gemma3": ("gemma3", None),
}
FAST = {"llama2": 3000}  # number of texts in the fast tier


def assert_rebuilt(name: str, num_texts: int) -> None:
    try:
        data = json.loads((npm_tokenizer(name) / "tokenizer.json").read_text(encoding="utf-8"))
    except RegistryUnavailable as error:
        pytest.skip(str(error))
    own = Tokenizer.from_str(json.dumps(data))
    rebuilt = Tokenizer.from_str(json.dumps(tokenizer_from_gguf(fields_of(data, *PUBLISHED[name]))))
    added = [entry["content"] for entry in data["added_tokens"]]
    rng = random.Random(12)
    texts = [random_text(rng, added) for _ in range(num_texts)]
    texts += [letter * count for letter in " \n\ta=aー" for count in range(1, 80)]
    for add_special_tokens in (True, False):
        expected = own.encode_batch_fast(texts, add_special_tokens=add_special_tokens)
        found = rebuilt.encode_batch_fast(texts, add_special_tokens=add_special_tokens)
        differences = [
            (text, theirs.ids, ours.ids)
            for text, theirs, ours in zip(texts, expected, found, strict=True)
            if theirs.ids != ours.ids
        ]
        assert not differences, f"{len(differences)} of {len(texts)}: {differences[0]!a}"
    ids = [encoding.ids for encoding in expected]
    for skip in (True, False):
        assert rebuilt.decode_batch(ids, skip_special_tokens=skip) == own.decode_batch(
            ids, skip_special_tokens=skip
        )


@pytest.mark.parametrize("name", FAST)
def test_published_tokenizer_rebuilt(name):
    assert_rebuilt(name, FAST[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_tokenizer_rebuilt_on_many_texts(name):
    assert_rebuilt(name, 20_000)


def write_gguf(path, architecture: str, templates: dict[str, str] = {}, **ids: int) -> None:  # noqa: B006
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(TOKENS)
    writer.add_token_scores(SCORES)
    writer.add_token_types(KINDS)
    for key, value in {"bos": 1, "eos": 2, **ids}.items():
        writer.add_uint32(f"tokenizer.ggml.{key}_token_id", value)
    for key, template in templates.items():
        writer.add_string(f"tokenizer.chat_template{key}", template)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("architecture", ["qwen3", "gemma3", "rwkv6", "llama"])
def test_text_of_any_architecture(architecture, tmp_path):
    """Without the model, nothing is asked of it: neither its architecture nor its settings."""
    path = tmp_path / "m.gguf"
    write_gguf(path, architecture, {"": "{{ mask_token }}{{ bos_token }}"}, mask=4, seperator=5)
    text = build_text(read_checkpoint(path, text_only=True))
    assert text.eos_token_ids == (2,)
    assert text.bos_token_id == 1
    compiled = json.loads(text.chat_template_json)
    assert compiled["special_tokens"] == {
        "bos_token": "<s>", "eos_token": "</s>", "sep_token": "b", "mask_token": "a",
    }  # fmt: skip
    with pytest.raises(ExportError, match=r"general\.architecture|metadata \w+\.\S+ is missing"):
        read_checkpoint(path)


@pytest.mark.parametrize(
    ("templates", "expected"),
    [
        ({}, None),
        ({"": "a"}, ["default"]),
        ({"": "a", ".tool_use": "b", ".rag": "c"}, ["default", "rag", "tool_use"]),
        ({".tool_use": "b"}, ["tool_use"]),
    ],
)
def test_named_templates(templates, expected, tmp_path):
    write_gguf(tmp_path / "m.gguf", "llama", templates)
    text = build_text(read_checkpoint(tmp_path / "m.gguf", text_only=True))
    if expected is None:
        assert text.chat_template_json is None
        return
    compiled = json.loads(text.chat_template_json)["templates"]
    assert [template["name"] for template in compiled] == expected
    assert {template["source"] for template in compiled} == set(templates.values())


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
    "token": ({**SENTENCEPIECE, "tokenizer.ggml.tokens": ["a", 5]}, r"tokens\[1\]: expected text"),
    "token list": ({**SENTENCEPIECE, "tokenizer.ggml.tokens": 5}, "tokens: expected a list"),
    "kind": ({**SENTENCEPIECE, "tokenizer.ggml.token_type": ["x"]}, r"token_type\[0\]"),
    "score": ({**SENTENCEPIECE, "tokenizer.ggml.scores": [None] * 11}, r"scores\[0\]"),
    "few scores": ({**SENTENCEPIECE, "tokenizer.ggml.scores": [0.0]}, "found 1 for 11 tokens"),
    "merge": ({**SENTENCEPIECE, "tokenizer.ggml.merges": ["ab"]}, r"merges\[0\]: expected two"),
    "unknown": ({**SENTENCEPIECE, "tokenizer.ggml.unknown_token_id": 11}, "unknown_token_id"),
    "no merges": ({"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": ["a"]}, "merges"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_field(name):
    fields, expected = REFUSED[name]
    with pytest.raises(ExportError, match=expected):
        tokenizer_from_gguf(fields)
