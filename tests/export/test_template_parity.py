"""The engine renders chat templates as Jinja2 does in Hugging Face's environment."""

import json
import mmap
import struct
from pathlib import Path

import pytest
from registry_models import RegistryUnavailable, npm_tokenizer, smollm2_gguf
from template_engine import TEMPLATE_DATA, EngineTemplates, run_tool

from pinfer.export import template_names
from pinfer.export.template_corpus import make_requests
from pinfer.export.template_expected import expected_answer
from pinfer.export.template_tree import compile_source
from pinfer.export.template_verify import find_differences, is_same, verify_chat_template

CONSTRUCTS = sorted((TEMPLATE_DATA / "constructs").glob("*.jinja"))
PUBLISHED = ("smollm2", "qwen3", "llama3", "gemma3")
FAST, SLOW = 15, 500
NOW = 1721952000.5


def gguf_text(path: Path, key: str) -> str:
    """A text of the file's metadata; reading all of it takes ten seconds."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        start = data.find(key.encode()) + len(key)
        value_type, size = struct.unpack_from("<IQ", data, start)
        assert value_type == 8, "expected a text"
        return data[start + 12 : start + 12 + size].decode()


def published_template(name: str) -> str:
    try:
        if name == "smollm2":
            return gguf_text(smollm2_gguf(), "tokenizer.chat_template")
        config = json.loads((npm_tokenizer(name) / "tokenizer_config.json").read_text())
    except RegistryUnavailable as error:
        pytest.skip(str(error))
    return config["chat_template"]


def assert_same(source: str, count: int, seed: int) -> None:
    engine = EngineTemplates(source)
    differences = find_differences(engine.compiled, engine.render_all, make_requests(count, seed))
    assert not differences, f"{len(differences)} differences, the first:\n{differences[0]}"


@pytest.mark.parametrize("path", CONSTRUCTS, ids=lambda path: path.stem)
def test_construct(path: Path):
    assert_same(path.read_bytes().decode(), FAST, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("path", CONSTRUCTS, ids=lambda path: path.stem)
def test_construct_on_many_conversations(path: Path):
    assert_same(path.read_bytes().decode(), SLOW, seed=2)


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_template(name: str):
    assert_same(published_template(name), 4 * FAST, seed=3)


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_template_on_many_conversations(name: str):
    assert_same(published_template(name), SLOW, seed=4)


def expression_template(expression: str) -> dict:
    source = "{{ " + expression + " }}"
    return {
        "name": expression,
        "source": source,
        "content_parts": {"user": False},
        "root": compile_source(source, expression),
    }


def test_expressions():
    """Python's semantics in detail: one short expression each."""
    lines = (TEMPLATE_DATA / "expressions.txt").read_text().split("\n")[:-1]
    engine = EngineTemplates("")
    engine.compiled["templates"] = [expression_template(line) for line in lines]
    request = {"messages": [{"role": "user", "content": "Hi"}], "now": NOW}
    request["add_generation_prompt"] = True
    answers = engine.render_all([{**request, "chat_template": line} for line in lines])
    failures = []
    for template, answer in zip(engine.compiled["templates"], answers, strict=True):
        expected = expected_answer(template, engine.compiled["special_tokens"], request)
        if not is_same(expected, answer):
            failures.append(f"{template['name']}: expected {expected}, found {answer}")
    assert len(lines) > 700
    assert not failures, "\n".join(failures)


CHARACTER_TEMPLATE = """{% for c in messages[0].content %}
{{- c.upper() }}|{{ c.lower() }}|{{ c.title() }}|{{ c.casefold() }}|{{ c.swapcase() }}|
{{- c.capitalize() }}|{{ c.isalpha() }}{{ c.isdecimal() }}{{ c.isdigit() }}{{ c.isnumeric() }}
{{- c.isspace() }}{{ c.islower() }}{{ c.isupper() }}{{ c.istitle() }}{{ c.isprintable() }}
{{- c.isalnum() }}|{{ [c] }}|{{ ('A' ~ c ~ 'Σ').lower() }}{{ (c ~ 'Σ').lower() }}
{{- ('Σ' ~ c).lower() }}|{{ (c ~ 'a' ~ c).strip() }}|{{ (c ~ c).splitlines() }}|{{ c|tojson(true) }}
{% endfor %}"""


@pytest.mark.slow
def test_every_character():
    """Case, classes and escapes of every code point equal this Python's."""
    points = [point for point in range(0x110000) if not 0xD800 <= point <= 0xDFFF]
    size = 2048
    requests = [
        {"messages": [{"role": "user", "content": "".join(map(chr, points[i : i + size]))}]}
        for i in range(0, len(points), size)
    ]
    engine = EngineTemplates(CHARACTER_TEMPLATE)
    differences = find_differences(engine.compiled, engine.render_all, requests)
    assert not differences, str(differences[0])[:2000]


def test_names_are_the_engines():
    names = run_tool("--names")[0]
    assert set(names["filters"]) == template_names.FILTERS
    assert set(names["tests"]) == template_names.TESTS
    assert set(names["globals"]) == template_names.GLOBALS
    assert set(names["string_methods"]) == template_names.STRING_METHODS


def test_verification_passes_and_reports():
    engine = EngineTemplates("{% for m in messages %}{{ m.role }}{% endfor %}")
    result = verify_chat_template(engine.compiled, engine.render_all, count=10)
    assert result == {"conversations": 10, "templates": 1, "differences": 0}
