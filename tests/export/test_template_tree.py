"""Compiling chat templates: what is refused, and how; what is detected."""

import json
import re
from subprocess import Popen

import pytest

from pinfer.export import template_bounded, template_tree, template_verify
from pinfer.export.errors import ExportError
from pinfer.export.model_dir import read_chat_template
from pinfer.export.template_bounded import BoundedReference, bounded_reference
from pinfer.export.template_content import detect_content_parts
from pinfer.export.template_corpus import make_requests
from pinfer.export.template_environment import render_reference
from pinfer.export.template_expected import expected_answer
from pinfer.export.template_tree import compile_chat_template, compile_source
from pinfer.export.template_verify import verify_chat_template

REFUSED = (
    # template, line, what the message must name
    ("a\n{{ 'x'|wordwrap }}", 2, "filter 'wordwrap'"),
    ("{{ [1]|random }}", 1, "filter 'random'"),
    ("{{ 'x'|striptags }}", 1, "filter 'striptags'"),
    ("{{ ['x']|map('pprint')|list }}", 1, "filter 'pprint'"),
    ("{{ x|select('no_such_test')|list }}", 1, "test 'no_such_test'"),
    ("{{ x|selectattr('a', 'no_such_test')|list }}", 1, "test 'no_such_test'"),
    ("{% if x %}\n{{ x|from_json }}{% endif %}", 2, "filter 'from_json'"),
    ("\n\n{% include 'x' %}", 3, "statement 'include'"),
    ("{% extends 'x' %}", 1, "statement 'extends'"),
    ("{% import 'x' as y %}", 1, "statement 'import'"),
    ("{% from 'x' import y %}", 1, "statement 'fromimport'"),
    ("{% block b %}{% endblock %}", 1, "statement 'block'"),
    ("{% autoescape true %}{% endautoescape %}", 1, "statement 'scope'"),
    ("{{ self }}", 1, "variable 'self'"),
    ("{{ lipsum() }}", 1, "function 'lipsum'"),
    ("{{ 'x'.encode() }}", 1, "method 'encode'"),
    ("{{ x.translate({}) }}", 1, "method 'translate'"),
    ("{{ 1.5.is_integer() }}", 1, "method 'is_integer'"),
    ("{{ 99999999999999999999 }}", 1, "99999999999999999999"),
    ("{{ 1e999 }}", 1, "constant inf"),
    ("{{ '\\ud800' }}", 1, "not valid Unicode"),
    ("{{ x|no_such_filter }}", 1, "no_such_filter"),
    ("{% if %}", 1, "Expected an expression"),
    ("a\n{% for %}", 2, "line 2"),
    ("{% for x in y %}", 1, "endfor"),
    ("\n{% break %}", 2, "break stands outside"),
    ("{% for x in y %}{% macro f() %}{% continue %}{% endmacro %}{% endfor %}", 1, "continue"),
    ("{% for x in y %}{% else %}\n{% break %}{% endfor %}", 2, "break"),
    ("{% for x in y %}{% set loop = 1 %}{% endfor %}", 1, "'loop'"),
    ("{% macro f(a, a) %}{% endmacro %}", 1, "two parameters"),
    ("{% macro f(caller, a=1) %}{{ caller() }}{% endmacro %}", 1, "'caller'"),
    ("{{ " + "(" * 150 + "x" + ")" * 150 + " }}", None, "nested"),
    ("{{ " + "not " * 700 + "x }}", None, "nested"),
)


@pytest.mark.parametrize(("source", "line", "named"), REFUSED, ids=[r[2] for r in REFUSED])
def test_refuses_by_name_and_line(source: str, line: int | None, named: str):
    with pytest.raises(ExportError) as error:
        compile_chat_template(source, special_tokens={})
    message = str(error.value)
    assert named in message
    assert "'default'" in message
    assert line is None or f"line {line}" in message


def test_does_not_run_the_template():
    compile_source("{{ 9 ** 9 ** 9 ** 9 }}{{ 'x' * 10 ** 15 }}")


HOSTILE = {
    "nested loops": (
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    ),
    "a huge power": "{{ 9 ** (9 ** 9) }}",
    "a power of what is given": "{{ (messages|length + 8) ** (9 ** 9) }}",
    "one conversation only": (
        "{% if messages|length > 3 %}{% for a in range(99999) %}{% for b in range(99999) %}"
        "{% endfor %}{% endfor %}{% endif %}{{ messages[0].content }}"
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_template_that_does_not_end_is_refused(name, monkeypatch):
    """Jinja2 has no bounds: it is stopped, and started anew for the next template."""
    reference = BoundedReference(max_seconds=1.5)
    for module in (template_tree, template_verify):
        monkeypatch.setattr(module, "bounded_reference", lambda: reference)

    def render_all(requests):
        return [{"error": "too many steps"} for _ in requests]

    named = [{"name": "hostile", "template": HOSTILE[name]}]
    with pytest.raises(ExportError, match="chat template 'hostile': Jinja2 did not finish"):
        verify_chat_template(compile_chat_template(named, special_tokens={}), render_all)
    assert compile_chat_template("a", special_tokens={})["templates"][0]["source"] == "a"
    reference.close()


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'x' * 10 ** 11 }}",
        "{% set ns = namespace(v='x') %}{% for i in range(60) %}{% set ns.v = ns.v ~ ns.v %}"
        "{% endfor %}",
        "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
    ],
)
def test_memory_and_depth_of_the_reference_are_bounded(source):
    try:
        compiled = compile_chat_template(source, special_tokens={})
        answer = bounded_reference().expected_answer(
            compiled["templates"][0], {}, {"messages": [{"role": "user", "content": "Hi"}]}
        )
    except ExportError as error:  # a slow machine meets the bound of time first
        assert "did not finish" in str(error)
    else:
        assert "error" in answer


def test_a_process_that_dies_is_named(monkeypatch):
    reference = BoundedReference()
    monkeypatch.setattr(template_bounded, "_start", lambda: Popen(["echo"], stdin=-1, stdout=-1))
    with pytest.raises(ExportError, match="chat template 'a': Jinja2's process died"):
        reference.content_parts("a", "b", {})


def test_the_bounded_reference_is_the_reference():
    compiled = compile_chat_template(PARTS_LOOP + "{{ tools|tojson }}", special_tokens={"a": "é"})
    template = compiled["templates"][0]
    for request in make_requests(40, seed=9):
        expected = expected_answer(template, {"a": "é"}, request)
        assert bounded_reference().expected_answer(template, {"a": "é"}, request) == expected


def test_tree_is_json_and_keeps_the_source():
    source = "{% for m in messages %}{{ m.content }}{% endfor %}é"
    tree = json.loads(
        json.dumps(compile_chat_template(source, special_tokens={"eos_token": "</s>"}))
    )
    assert tree["format_version"] == 1
    assert tree["special_tokens"] == {"eos_token": "</s>"}
    assert [t["name"] for t in tree["templates"]] == ["default"]
    assert tree["templates"][0]["source"] == source


def test_named_templates():
    named = [{"name": "default", "template": "a"}, {"name": "tool_use", "template": "b"}]
    tree = compile_chat_template(named, special_tokens={})
    assert [t["name"] for t in tree["templates"]] == ["default", "tool_use"]
    with pytest.raises(ExportError, match="'default' occurs twice"):
        compile_chat_template([named[0], named[0]], special_tokens={})
    as_object = {entry["name"]: entry["template"] for entry in named}
    assert compile_chat_template(as_object, special_tokens={}) == tree
    with pytest.raises(ExportError, match="empty"):
        compile_chat_template([], special_tokens={})
    with pytest.raises(ExportError, match="'tool_use', line 1"):
        compile_chat_template(
            [named[0], {"name": "tool_use", "template": "{{ x|random }}"}], special_tokens={}
        )


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            5,
            "chat_template: expected text, a list of named templates or an object of them, found 5",
        ),
        (True, "chat_template: expected text"),
        (
            [1],
            "chat_template[0]: expected an object with text fields 'name' and 'template', found 1",
        ),
        (["a"], "chat_template[0]: expected an object with text fields"),
        ([{"name": "a"}], "chat_template[0]: expected an object with text fields"),
        ([{"name": 1, "template": "a"}], "chat_template[0]: expected an object with text fields"),
        ({"a": 5}, "chat_template.a: expected a template's text, found 5"),
        ({"a": {"template": "b"}}, "chat_template.a: expected a template's text"),
        ([], "chat_template: the list is empty"),
        ({}, "chat_template: the list is empty"),
    ],
)
def test_templates_of_a_wrong_kind_are_named(value, message, tmp_path):
    with pytest.raises(ExportError, match=re.escape(message)):
        compile_chat_template(value, special_tokens={})
    where = f"{tmp_path}/tokenizer_config.json: {message}"
    with pytest.raises(ExportError, match=re.escape(where)):
        read_chat_template(tmp_path, {"chat_template": value})


def test_template_files(tmp_path):
    """They win over tokenizer_config.json; others may stand beside the one or without it."""
    config = {"chat_template": "config"}
    assert read_chat_template(tmp_path, {}) is None
    assert read_chat_template(tmp_path, config) == "config"
    folder = tmp_path / "additional_chat_templates"
    folder.mkdir()
    (folder / "tool_use.jinja").write_text("tools")
    tool_use = {"name": "tool_use", "template": "tools"}
    assert read_chat_template(tmp_path, config) == [tool_use]
    (tmp_path / "chat_template.jinja").write_text("main")
    default = {"name": "default", "template": "main"}
    assert read_chat_template(tmp_path, config) == [default, tool_use]
    (folder / "tool_use.jinja").write_bytes(b"\xff")
    with pytest.raises(ExportError, match=r"tool_use\.jinja: not valid UTF-8"):
        read_chat_template(tmp_path, config)


def test_refuses_special_tokens_that_are_no_text():
    with pytest.raises(ExportError, match="bos_token"):
        compile_chat_template("a", special_tokens={"bos_token": {"content": "<s>"}})


PARTS_LOOP = (
    "{% for m in messages %}{{ m.role }}{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}{% endfor %}"
)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{% for m in messages %}{{ '[' + m.content + ']' }}{% endfor %}", ""),
        ("{% for m in messages %}{{ m.content }}{% endfor %}", ""),
        ("{% for m in messages %}{{ m.content|tojson }}{% endfor %}", ""),
        ("{{ messages|tojson }}", ""),
        ("no messages", ""),
        (PARTS_LOOP, "system user assistant tool"),
        (
            "{% for m in messages %}{% if m.role == 'user' %}{% for p in m.content %}{{ p.text }}"
            "{% endfor %}{% else %}{{ m.content + '' }}{% endif %}{% endfor %}",
            "user",
        ),
    ],
)
def test_detects_who_takes_parts(source: str, expected: str):
    detected = detect_content_parts(source, {})
    assert {role for role, takes in detected.items() if takes} == set(expected.split())


def test_verification_names_the_first_difference():
    compiled = compile_chat_template("{{ messages[0].content }}", special_tokens={})

    def always_empty(requests):
        return [{"text": ""} for _ in requests]

    with pytest.raises(ExportError, match=r"expected: .*\n?found: \{\"text\": \"\"\}"):
        verify_chat_template(compiled, always_empty, count=20)


def test_the_corpus_covers_what_it_should():
    requests = make_requests(300, seed=7)
    assert requests == make_requests(300, seed=7)
    assert requests != make_requests(300, seed=8)
    messages = [message for request in requests for message in request["messages"]]
    assert {m["role"] for m in messages} >= {"system", "user", "assistant", "tool"}
    assert any(isinstance(m["content"], list) for m in messages)
    assert any(m["content"] is None for m in messages)
    assert any(m["content"] == "" for m in messages)
    assert any(m["content"] and len(m["content"]) > 1000 for m in messages)
    assert any("tool_calls" in m for m in messages)
    assert any(r.get("tools") for r in requests)
    assert any(r.get("documents") for r in requests)
    assert any(r.get("continue_final_message") for r in requests)
    assert any(r["messages"][0]["role"] == "user" for r in requests)


@pytest.mark.parametrize(
    ("messages", "options", "message"),
    [
        ([], {}, "empty"),
        (["text"], {}, "object"),
        ([{"role": "user"}], {"continue_final_message": True}, "no content"),
        (
            [{"role": "user", "content": "a"}],
            {"continue_final_message": True, "add_generation_prompt": True},
            "exclude",
        ),
    ],
)
def test_the_reference_refuses_bad_requests(messages, options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        render_reference("{{ messages[0].content }}", messages, **options)
