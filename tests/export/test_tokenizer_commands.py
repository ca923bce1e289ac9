"""`pinfer tokenize`, `detokenize` and `render` on a bundle that holds text alone."""

import json
import os
import random
import subprocess

import pytest
import transformers
from tokenizer_fixtures import byte_level, unigram
from tokenizer_samples import template
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from pinfer.export.config import ExportConfig
from pinfer.export.exporter import export
from pinfer.export.template_corpus import make_requests
from pinfer.export.tokenizer_verify import random_text

transformers.logging.set_verbosity_error()

DEFAULT = (
    "{{ bos_token }}{% for m in messages %}<tool>{{ m.role }}:"
    "{% if m.content is string %}{{ m.content }}{% else %}{{ m.content|tojson }}{% endif %}</s>"
    "{% endfor %}{% if add_generation_prompt %}<tool>assistant:{% endif %}"
)
TEMPLATES = {
    "default": DEFAULT,
    "tool_use": "{{ tools|tojson }}" + DEFAULT,
    "dated": "{{ strftime_now('%Y-%m-%d %H:%M:%S') }}",
    "strict": "{{ raise_exception('never') }}",
}
HI = [{"role": "user", "content": "hello world 🦙"}]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}


def with_bos(data: dict) -> dict:
    processor = template("<s>", "$A")
    ids = {entry["content"]: entry["id"] for entry in data["added_tokens"]}
    processor["special_tokens"]["<s>"]["ids"] = [ids["<s>"]]
    return {**data, "post_processor": processor}


def make_bundle(folder, tokenizer: dict, templates: dict):
    model = folder / "model"
    model.mkdir()
    (model / "tokenizer.json").write_text(json.dumps(tokenizer))
    named = [{"name": name, "template": source} for name, source in templates.items()]
    config = {"bos_token": "<s>", "eos_token": "</s>", "chat_template": named}
    (model / "tokenizer_config.json").write_text(json.dumps(config))
    export(ExportConfig(model, folder / "bundle", only="text", verify=False), lambda *stage: None)
    return folder / "bundle", model


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """(bundle, model directory)"""
    return make_bundle(tmp_path_factory.mktemp("text"), with_bos(byte_level()), TEMPLATES)


def run(pinfer, command: str, bundle, lines: list[bytes], **environment) -> list[dict]:
    """The answers to raw lines."""
    done = subprocess.run(
        [pinfer, command, bundle],
        input=b"".join(line + b"\n" for line in lines),
        capture_output=True,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr.decode()
    assert done.stderr == b""
    answers = [json.loads(line) for line in done.stdout.decode().split("\n")[:-1]]
    assert len(answers) == len(lines)
    return answers


def ask(pinfer, command: str, bundle, values: list, **environment) -> list[dict]:
    lines = [json.dumps(value, ensure_ascii=False).encode() for value in values]
    return run(pinfer, command, bundle, lines, **environment)


def test_thousands_of_lines_in_one_process(pinfer, made):
    bundle, model = made
    reference = Tokenizer.from_file(str(model / "tokenizer.json"))
    rng = random.Random(3)
    texts = [random_text(rng, ["<s>", "</s>", "<tool>"]) for _ in range(4000)]
    values = [{"text": text, "add_special_tokens": i % 3 > 0} for i, text in enumerate(texts)]
    values[::7] = texts[::7]  # a text alone has the special tokens
    expected = [
        reference.encode(text, add_special_tokens=isinstance(value, str) or i % 3 > 0).ids
        for i, (text, value) in enumerate(zip(texts, values, strict=True))
    ]
    assert ask(pinfer, "tokenize", bundle, values) == [{"ids": ids} for ids in expected]
    values = [{"ids": ids, "skip_special_tokens": i % 2 > 0} for i, ids in enumerate(expected)]
    for value in values[::5]:
        del value["skip_special_tokens"]
    answers = ask(pinfer, "detokenize", bundle, values)
    for value, answer in zip(values, answers, strict=True):
        skip = value.get("skip_special_tokens", True)
        assert answer == {"text": reference.decode(value["ids"], skip_special_tokens=skip)}


def test_a_vocabulary_that_is_a_list(pinfer, tmp_path):
    bundle, model = make_bundle(tmp_path, unigram(), {"default": "a"})
    reference = Tokenizer.from_file(str(model / "tokenizer.json"))
    texts = ["ab aba", "<s>ab</s>", "", "日本"]
    answers = ask(pinfer, "tokenize", bundle, texts)
    assert answers == [{"ids": reference.encode(text).ids} for text in texts]
    manifest = json.loads((bundle / "manifest.json").read_text())
    assert manifest["text"]["eos_token_ids"] == [reference.token_to_id("</s>")]
    assert manifest["text"]["bos_token_id"] == reference.token_to_id("<s>")


BAD = {
    # command: [(line, words of the error)]
    "tokenize": [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b'"a" "b"', "not valid JSON"),
        (b"nonsense", "not valid JSON"),
        (b"[1]", "expected a string or an object"),
        (b"5", "expected a string or an object"),
        (b"null", "expected a string or an object"),
        (b"{}", "text: missing"),
        (b'{"text": 5}', "text: expected a string"),
        (b'{"text": "a", "txt": 1}', "unknown field txt"),
        (b'{"text": "a", "add_special_tokens": 1}', "add_special_tokens: expected true or false"),
        (b'{"text": "\xff"}', "not valid JSON"),
        (b'{"text": "\xc3"}', "not valid JSON"),
        (b'"\xed\xa0\x80"', "not valid JSON"),
        (b'"\\ud800"', "not valid JSON"),
        (b'"\\udc00 b"', "not valid JSON"),
        (b'"\\ud83d x"', "not valid JSON"),
        (b"[" * 100_000, "nested deeper|not valid JSON"),
    ],
    "detokenize": [
        (b"[1]", "expected an object with ids"),
        (b"{}", "ids: missing"),
        (b'{"ids": "1"}', "ids: expected"),
        (b'{"ids": [1.5]}', "ids: expected"),
        (b'{"ids": [-1]}', "ids: expected"),
        (b'{"ids": [99999999999999999999]}', "ids[0]: the integer 99999999999999999999 needs"),
        (b'{"ids": [true]}', "ids: expected"),
        (b'{"ids": [1000000]}', "1000000"),
        (b'{"ids": [1], "stream": true}', "unknown field stream"),
        (b'{"ids": [1], "skip_special_tokens": "no"}', "skip_special_tokens: expected true"),
    ],
    "render": [
        (b"[]", "object"),
        (b"{}", "messages: "),
        (b'{"messages": []}', "messages: expected at least one message"),
        (b'{"messages": [1]}', "messages[0]: expected an object"),
        (b'{"messages": [{"role": "user", "content": "\xff"}]}', "not valid JSON"),
        (b'{"messages": [{"role": "user", "content": "\\ud800"}]}', "not valid JSON"),
        (b'{"messages": [{"role": "user", "content": "a"}], "seed": 1}', "seed"),
        (
            b'{"messages": [{"role": "user", "content": "a"}], "chat_template": "none"}',
            "chat_template: expected one of default, tool_use, dated, strict",
        ),
        (b'{"messages": [{"role": "user", "content": "a"}], "chat_template": "strict"}', "never"),
        (
            b'{"messages": [{"role": "user", "content": "a"}], "add_generation_prompt": "yes"}',
            "add_generation_prompt: expected",
        ),
    ],
}
GOOD = {
    "tokenize": b'{"text": "hello"}',
    "detokenize": b'{"ids": [65]}',
    "render": b'{"messages": [{"role": "user", "content": "hello"}]}',
}


@pytest.mark.parametrize("command", BAD)
def test_a_bad_line_gets_an_error_on_its_line(command, pinfer, made):
    """In order, and the lines around it are answered as ever."""
    bad = BAD[command]
    lines = [line for case, _ in bad for line in (GOOD[command], case)]
    answers = run(pinfer, command, made[0], [*lines, GOOD[command]])
    good = answers[0]
    assert "error" not in good
    assert answers[::2] == [good] * (len(bad) + 1)
    for (line, words), answer in zip(bad, answers[1::2], strict=True):
        assert list(answer) == ["error"], (line[:100], answer)
        assert any(word in answer["error"] for word in words.split("|")), (line[:100], answer)


def test_rendered_ids_are_those_of_apply_chat_template(pinfer, made):
    bundle, model = made
    reference = AutoTokenizer.from_pretrained(model)
    requests = []
    for request in make_requests(150, seed=11):
        kept = {key: request[key] for key in ("messages", "tools", "add_generation_prompt")
                if key in request}  # fmt: skip
        # Lists of parts are joined for a template that does not loop over them: not the reference.
        if all(isinstance(m.get("content"), str) for m in kept["messages"]):
            requests.append(kept)
    assert len(requests) > 50
    for request, answer in zip(requests, ask(pinfer, "render", bundle, requests), strict=True):
        options = {
            "tools": request.get("tools"),
            "add_generation_prompt": request["add_generation_prompt"],
        }
        text = reference.apply_chat_template(request["messages"], tokenize=False, **options)
        ids = reference.apply_chat_template(request["messages"], return_dict=False, **options)
        assert answer == {"text": text, "ids": ids}


def test_template_selection(pinfer, made):
    requests = [
        {},
        {"tools": [TOOL]},
        {"tools": [TOOL], "chat_template": "default"},
        {"tools": []},
        {"tools": None},
    ]
    answers = ask(pinfer, "render", made[0], [{"messages": HI, **request} for request in requests])
    begins = [answer["text"][:2] for answer in answers]
    assert begins == ["<s", "[{", "<s", "[]", "<s"]  # an empty list is given, too


def test_the_clock_can_be_frozen(pinfer, made):
    request = {"messages": HI, "chat_template": "dated"}
    for now, shown in (
        ("2024-07-26T13:14:15", "2024-07-26 13:14:15"),
        ("1999-12-31T23:59:59", "1999-12-31 23:59:59"),
    ):
        for zone in ("UTC", "Asia/Tokyo"):
            (answer,) = ask(pinfer, "render", made[0], [request], PINFER_NOW=now, TZ=zone)
            assert answer["text"] == shown
    (answer,) = ask(pinfer, "render", made[0], [request])
    assert answer["text"][:2] == "20"


@pytest.mark.parametrize("now", ["yesterday", "2024-13-01T00:00:00", "now"])
def test_a_bad_frozen_clock_is_named(now, pinfer, made):
    lines = [{"messages": HI, "chat_template": "dated"}, {"messages": HI}]
    done = subprocess.run(
        [pinfer, "render", made[0]],
        input="".join(json.dumps(line) + "\n" for line in lines).encode(),
        capture_output=True,
        env={**os.environ, "PINFER_NOW": now},
    )
    said = done.stdout.decode() + done.stderr.decode()
    assert "PINFER_NOW: expected YYYY-MM-DDThh:mm:ss" in said
    assert now in said


@pytest.mark.parametrize("command", ["run", "chat", "batch", "score", "serve"])
def test_commands_that_need_a_model_say_so(command, pinfer, made):
    done = subprocess.run([pinfer, command, made[0]], input=b"", capture_output=True)
    assert done.returncode == 1 and done.stdout == b""
    last = done.stderr.decode().strip().split("\n")[-1]
    assert last.startswith("pinfer: error: ") and "holds no model" in last


@pytest.mark.parametrize("command", ["verify", "inspect"])
def test_commands_that_need_none(command, pinfer, made):
    done = subprocess.run([pinfer, command, made[0]], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()


def test_a_bundle_without_a_template(pinfer, tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    (model / "tokenizer.json").write_text(json.dumps(byte_level()))
    config = ExportConfig(model, tmp_path / "bundle", only="text", verify=False)
    export(config, lambda *stage: None)
    assert not (tmp_path / "bundle" / "chat_template.json").exists()
    (answer,) = ask(pinfer, "render", tmp_path / "bundle", [{"messages": HI}])
    assert "chat template" in answer["error"]
    (answer,) = ask(pinfer, "tokenize", tmp_path / "bundle", ["hello"])
    assert len(answer["ids"]) == 1
