"""Chat template troubles reported of other servers, as tests."""

import datetime
import json

import pytest
from template_engine import EngineTemplates

from pinfer.export.errors import ExportError

NOW = 1721952000.0
USER = {"role": "user", "content": "Hi"}


def test_strftime_now_reads_the_clock_of_the_request():
    engine = EngineTemplates(
        "{{ strftime_now('%Y-%m-%d') }}|{{ strftime_now('%d %B %Y') }}|"
        "{% if strftime_now is defined %}y{% endif %}{{ messages[0].content }}"
    )
    for now in (NOW, NOW + 86400 * 40):
        day = datetime.datetime.fromtimestamp(now)
        months = (
            "January February March April May June July August September October November December"
        ).split()
        name = f"{day.day:02d} {months[day.month - 1]} {day.year}"
        expected = f"{day:%Y-%m-%d}|{name}|yHi"
        assert engine.render({"messages": [USER], "now": now}) == {"text": expected}


def test_strftime_now_can_be_overridden_by_the_client():
    engine = EngineTemplates(
        "{% if date_string is not defined %}{% set date_string = strftime_now('%d %b %Y') %}"
        "{% endif %}{{ date_string }}"
    )
    kwargs = {"date_string": "26 Jul 2024"}
    request = {"messages": [USER], "chat_template_kwargs": kwargs, "now": 0.0}
    assert engine.render(request) == {"text": "26 Jul 2024"}
    assert "1970" in engine.render({"messages": [USER], "now": 86400.0})["text"]


def test_a_call_of_an_unknown_function_names_it():
    error = EngineTemplates("a\n{{ get_date() }}").render({"messages": [USER]})["error"]
    assert "'get_date' is undefined" in error
    assert "line 2" in error


def test_tojson_equals_json_dumps():
    engine = EngineTemplates(
        "{{ tools[0] | tojson }}~{{ tools[0] | tojson(indent=2) }}~"
        "{{ tools[0] | tojson(ensure_ascii=False) }}~"
        "{{ tools[0] | tojson(sort_keys=true, separators=(',', ':')) }}"
    )
    tool = {
        "type": "function",
        "name": "b",
        "description": 'Größe <5 & "x"/y 天气 — 😀',
        "numbers": [1.0, 1e22, True, None],
        "empty": [{}, []],
    }
    expected = [
        json.dumps(tool, ensure_ascii=False),
        json.dumps(tool, ensure_ascii=False, indent=2),
        json.dumps(tool, ensure_ascii=False),
        json.dumps(tool, ensure_ascii=False, sort_keys=True, separators=(",", ":")),
    ]
    answer = engine.render({"messages": [USER], "tools": [tool]})
    assert answer == {"text": "~".join(expected)}


REFUSING = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}"
    "{{ raise_exception('System role not supported') }}{% endif %}{% for message in messages %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Roles must alternate') }}{% endif %}{{ message['content'] }}{% endfor %}"
)


@pytest.mark.parametrize(
    ("messages", "error"),
    [
        ([{"role": "system", "content": "Be brief."}, USER], "System role not supported"),
        ([USER, USER], "Roles must alternate"),
        ([{"role": "assistant", "content": "x"}], "Roles must alternate"),
        ([], "messages: expected at least one message, found none"),
    ],
)
def test_what_the_template_refuses_is_its_own_text(messages, error):
    engine = EngineTemplates(REFUSING)
    answers = engine.render_all([{"messages": messages}, {"messages": [USER]}])
    assert answers == [{"error": error}, {"text": "<bos>Hi"}]


TEXT_TEMPLATE = "{% for m in messages %}{{ '[' + m.role + ':' + m.content + ']' }}{% endfor %}"
LOOP_TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}:{% for p in m.content %}({{ p.text }})"
    "{% endfor %}]{% endfor %}"
)
PARTS = [{"type": "text", "text": "One."}, {"type": "text", "text": "Two."}]


def in_role(role: str, content: object) -> list[dict]:
    tested = {"role": role, "content": content}
    return [USER, tested] if role in ("assistant", "tool") else [tested]


@pytest.mark.parametrize("role", ["user", "system", "assistant", "tool", "critic"])
def test_parts_are_joined_for_templates_that_want_text(role):
    engine = EngineTemplates(TEXT_TEMPLATE)
    text = engine.render({"messages": in_role(role, PARTS)})["text"]
    assert text.endswith(f"[{role}:One.\nTwo.]")
    assert engine.render({"messages": in_role(role, [])})["text"].endswith(f"[{role}:]")


@pytest.mark.parametrize("role", ["user", "system", "assistant", "tool", "critic"])
def test_parts_stay_a_list_for_templates_that_loop(role):
    # Detection needs plain texts of the other messages to go through the same loop.
    engine = EngineTemplates(LOOP_TEMPLATE)
    text = engine.render({"messages": in_role(role, PARTS)})["text"]
    assert text.endswith(f"[{role}:(One.)(Two.)]")


@pytest.mark.parametrize("template", [TEXT_TEMPLATE, LOOP_TEMPLATE])
@pytest.mark.parametrize(
    ("content", "path"),
    [
        (
            [PARTS[0], {"type": "image_url", "image_url": {"url": "x"}}],
            "messages[0].content[1].type",
        ),
        ([{"type": "text"}], "messages[0].content[0].text"),
        ([{"type": "text", "text": 5}], "messages[0].content[0].text"),
        ([{"text": "a"}], "messages[0].content[0].type"),
        ([{"type": 5}], "messages[0].content[0].type"),
        (["plain"], "messages[0].content[0]"),
        ([None], "messages[0].content[0]"),
    ],
)
def test_bad_parts_are_named_by_path(template, content, path):
    request = {"messages": [{"role": "user", "content": content}]}
    assert EngineTemplates(template).render(request)["error"].startswith(path + ": expected")


@pytest.mark.parametrize(
    ("request_fields", "error"),
    [
        ({"messages": "text"}, "messages: expected a list"),
        ({"messages": ["text"]}, "messages[0]: expected an object"),
        ({}, "messages: expected a list, found null"),
        ({"messages": [USER], "tools": {}}, "tools: expected a list"),
        ({"messages": [USER], "tools": ["x"]}, "tools[0]: expected an object"),
        ({"messages": [USER], "documents": [1]}, "documents[0]: expected an object"),
        ({"messages": [USER], "chat_template_kwargs": []}, "chat_template_kwargs: expected"),
        ({"messages": [USER], "chat_template_kwargs": {"tools": 1}}, "chat_template_kwargs.tools"),
        ({"messages": [USER], "chat_template": "nope"}, "chat_template: expected one of default"),
        (
            {"messages": [USER], "continue_final_message": True, "add_generation_prompt": True},
            "continue_final_message and add_generation_prompt",
        ),
    ],
)
def test_bad_requests_are_named_by_field(request_fields, error):
    assert EngineTemplates(TEXT_TEMPLATE).render(request_fields)["error"].startswith(error)


def test_template_selection():
    named = [{"name": name, "template": name} for name in ("default", "tool_use", "rag")]
    engine = EngineTemplates(named)
    tools = [{"type": "function"}]
    requests = [{}, {"tools": tools}, {"tools": None}, {"chat_template": "rag", "tools": tools}]
    answers = engine.render_all([{"messages": [USER], **request} for request in requests])
    assert [answer["text"] for answer in answers] == ["default", "tool_use", "default", "rag"]
    without_default = EngineTemplates(named[1:])
    error = without_default.render({"messages": [USER]})["error"]
    assert error == "chat_template: expected one of tool_use, rag, found default"


def test_generation_prompt_defaults():
    engine = EngineTemplates("{{ messages[-1].content }}{{ add_generation_prompt }}")
    assert engine.render({"messages": [USER]}) == {"text": "HiTrue"}
    request = {"messages": [USER], "continue_final_message": True}
    assert engine.render(request) == {"text": "Hi"}


# Python's integers have no bounds, the engine's 64 bits. What needs more is refused, never another
# number.
WIDE = (
    "2**70", "9223372036854775807 + 1", "-9223372036854775807 - 2", "9223372036854775807 * 2",
    "2**63", "-(-9223372036854775807 - 1)", "(-9223372036854775807 - 1)|abs", "3**41",
    "(-9223372036854775807 - 1) // -1", "1e20|int", "'9223372036854775808'|int",
    "'0xffffffffffffffff'|int(base=16)", "[9223372036854775807, 1]|sum", "'%d' % 1e20",
    "9223372036854775807|round(-1)", "9223372036854775807|round(-19)",
    "9223372036854775800|tojson|int + 10", "(2**62)|float|int * 2", "range(2, 9, 2)[::2**62]",
    "[{'a': [1]}]|map(attribute='a.9223372036854775808')|list",
)  # fmt: skip


@pytest.mark.parametrize("expression", WIDE)
def test_an_integer_beyond_64_bits_is_refused(expression):
    answer = EngineTemplates("a\n{{ " + expression + " }}").render({"messages": [USER]})
    assert "needs more than 64 bits" in answer.get("error", answer), answer


@pytest.mark.parametrize("literal", ["9223372036854775808", "1180591620717411303424"])
def test_a_literal_beyond_64_bits_is_refused_at_export(literal):
    with pytest.raises(ExportError, match=f"line 2.*{literal}.*more than 64 bits"):
        EngineTemplates("a\n{{ " + literal + " }}")


@pytest.mark.parametrize("number", [2**63, 2**64 - 1, 2**64, -(2**63) - 1, 2**70, 10**400])
@pytest.mark.parametrize("place", ["message", "tools", "chat_template_kwargs"])
def test_an_integer_of_a_request_beyond_64_bits_is_refused(number, place):
    """A JSON parser would make a float of it, and tojson 1.8446744073709552e+19."""
    engine = EngineTemplates("{{ messages[0] | tojson }}{{ tools | tojson }}{{ n }}")
    schema = {"type": "integer", "maximum": number}
    fields = {
        "message": {"messages": [{**USER, "n": number}]},
        "tools": {"messages": [USER], "tools": [{"type": "function", "parameters": schema}]},
        "chat_template_kwargs": {"messages": [USER], "chat_template_kwargs": {"n": number}},
    }
    error = engine.render(fields[place])["error"]
    assert error.endswith("needs more than 64 bits")
    assert str(number)[:60] in error


@pytest.mark.parametrize("number", [2**63 - 1, -(2**63), 2.0**70, "2" * 40])
def test_numbers_of_64_bits_and_floats_keep_their_value(number):
    engine = EngineTemplates("{{ tools | tojson }}")
    tools = [{"type": "function", "n": number, 'a"12': [number]}]
    assert engine.render({"messages": [USER], "tools": tools}) == {"text": json.dumps(tools)}
