"""From messages to ids through every command: one BOS, templates that refuse, parts, the clock."""

import json
import os
import subprocess
import time
from datetime import datetime

import pytest
import successor_model
from transformers import AutoTokenizer

import pinfer as binding
from pinfer.export.template_environment import render_reference

END = successor_model.END
GREEDY = {"temperature": 0.0, "max_tokens": 30}
HI = [{"role": "user", "content": "Hi"}]
# Answers "yes." to a prompt that ends in a line feed, as the templates below do.
CHAIN = [b"\n", b"yes", b".", END]
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}


def answer_tokenizer():
    return successor_model.byte_level([b"yes"])


def command(pinfer, name, bundle, *flags, lines=(), text=None, **environment):
    """(exit code, stdout, stderr) of a command that reads JSON lines or a text."""
    stdin = "".join(json.dumps(line) + "\n" for line in lines) if text is None else text
    result = subprocess.run(
        [pinfer, name, bundle, *flags], input=stdin, capture_output=True, text=True,
        env={**os.environ, **environment},
    )  # fmt: skip
    return result.returncode, result.stdout, result.stderr


def json_lines(pinfer, name, bundle, lines, **environment):
    code, out, error = command(pinfer, name, bundle, lines=lines, **environment)
    assert code == 0, error
    return [json.loads(line) for line in out.splitlines()]


# ---- tok-bos-once ----

TURN = "{% for m in messages %}[{{ m.role }}]{{ m.content }}\n{% endfor %}"
BOS_MODELS = {
    # name: (template, tokenizer.json's post-processor adds BOS, tokenizer_config, BOS in a chat)
    "A": ("{{ bos_token }}" + TURN, True, {}, 1),
    "B": (TURN, True, {}, 0),
    "C": (TURN, False, {"add_bos_token": False}, 0),
    # Files that disagree: tokenizer.json rules.
    "C-by-setting": (TURN, True, {"add_bos_token": False}, 0),
    "A-by-setting": ("{{ bos_token }}" + TURN, False, {"add_bos_token": True}, 1),
}


@pytest.fixture(scope="module", params=BOS_MODELS)
def bos_model(request, bundles):
    """(checkpoint, bundle, BOS tokens in a chat, in a text)."""
    template, adds_bos, tokenizer_config, in_chat = BOS_MODELS[request.param]
    tokenizer = answer_tokenizer()
    data = json.loads(tokenizer.to_str())
    if adds_bos:
        single = [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]  # fmt: skip  # noqa: E501
        data["post_processor"] = {
            "type": "TemplateProcessing", "single": single, "pair": single,
            "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
        }  # fmt: skip
    tokenizer = tokenizer.from_str(json.dumps(data))
    name = f"bos-{request.param}"
    bundle = bundles.successor(
        name, tokenizer, [CHAIN], chat_template=template, tokenizer_config=tokenizer_config
    )
    return bundles.folder / name, bundle, in_chat, int(adds_bos)


def test_chats_have_the_bos_of_the_template_alone(pinfer, bos_model):
    checkpoint, bundle, in_chat, _ = bos_model
    reference = AutoTokenizer.from_pretrained(checkpoint)
    expected = reference.apply_chat_template(HI, tokenize=True, return_dict=False)
    assert expected.count(1) == in_chat
    (rendered,) = json_lines(pinfer, "render", bundle, [{"messages": HI}])
    assert rendered["ids"] == expected
    assert rendered["text"] == reference.apply_chat_template(HI, tokenize=False)
    (answer,) = json_lines(pinfer, "batch", bundle, [{"messages": HI, **GREEDY}])
    assert answer["num_prompt_tokens"] == len(expected) and answer["text"] == "yes."
    with binding.Engine(bundle, threads=1) as engine:
        assert engine.chat(HI, **GREEDY).num_prompt_tokens == len(expected)
        assert list(engine.stream_chat(HI, **GREEDY))[-1].num_prompt_tokens == len(expected)
        # The same ids as a prompt: the same computation, found in the cache or not.
        scored = engine.generate(expected, **GREEDY, logprobs=0)
        assert scored.logprobs == engine.chat(HI, **GREEDY, logprobs=0).logprobs
    for name, flags, text in (("run", ["--chat", "-p", "Hi"], ""), ("chat", [], "Hi\n")):
        _, out, error = command(
            pinfer, name, bundle, *flags, "--temperature", "0", "--stats", text=text
        )
        assert out == "yes.\n"
        assert json.loads(error)["prompt_tokens"] == len(expected)


def test_typing_is_no_decoding(pinfer, bos_model):
    """Pauses between answers and questions do not count in `decode_tokens_per_s`."""
    arguments = [pinfer, "chat", bos_model[1], "--temperature", "0", "--stats"]
    pipe = subprocess.PIPE
    with subprocess.Popen(arguments, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        process.stdin.write("Hi\n")
        process.stdin.flush()
        assert process.stdout.readline() == "yes.\n"
        time.sleep(2)
        out, error = process.communicate("Hi\n", timeout=30)
    stats = json.loads(error)
    assert out == "yes.\n" and stats["output_tokens"] >= 4
    # 0: an answer came in one piece.
    assert not 0 < stats["decode_tokens_per_s"] < stats["output_tokens"] / 1.5


def test_texts_have_the_bos_of_the_tokenizer(pinfer, bos_model):
    checkpoint, bundle, _, in_text = bos_model
    reference = AutoTokenizer.from_pretrained(checkpoint)
    expected = reference("Hi")["input_ids"]
    assert expected.count(1) == in_text
    asked = json_lines(pinfer, "tokenize", bundle, ["Hi", {"text": "Hi"}])
    assert [answer["ids"] for answer in asked] == [expected] * 2
    bare = {"text": "Hi", "add_special_tokens": False}
    assert json_lines(pinfer, "tokenize", bundle, [bare])[0]["ids"] == expected[in_text:]
    _, _, error = command(pinfer, "run", bundle, "-p", "Hi", "-n", "1", "--stats")
    assert json.loads(error)["prompt_tokens"] == len(expected)
    lines = [{"prompt": "Hi"}, {"prompt": "Hi", "add_special_tokens": False},
             {"prompt_ids": [5, 6, 7]}]  # fmt: skip
    answers = json_lines(pinfer, "batch", bundle, lines)
    assert [a["num_prompt_tokens"] for a in answers] == [len(expected), len(expected) - in_text, 3]


# ---- chat-template-refuses ----

# As Gemma 2's: no system role, roles alternate.
REFUSING = (
    "{{ bos_token }}"
    "{% if messages[0].role == 'system' %}"
    "{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for m in messages %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}"
    "{% endif %}<{{ m.role }}>{{ m.content | trim }}\n{% endfor %}"
)
NO_SYSTEM, ALTERNATE = "System role not supported", "Conversation roles must alternate"
SYSTEM = [{"role": "system", "content": "Be brief."}, *HI]
REFUSED = [(SYSTEM, NO_SYSTEM), (HI * 2, ALTERNATE),
           ([{"role": "assistant", "content": "x"}], ALTERNATE), ([], "messages")]  # fmt: skip


@pytest.fixture(scope="module")
def refusing(bundles):
    return bundles.successor("refusing", answer_tokenizer(), [CHAIN], chat_template=REFUSING)


def test_json_lines_say_what_the_template_said(pinfer, refusing):
    """And the lines between are answered as ever."""
    lines = [line for messages, _ in REFUSED for line in ({"messages": messages}, {"messages": HI})]
    rendered = json_lines(pinfer, "render", refusing, lines)
    answered = json_lines(pinfer, "batch", refusing, [{**line, **GREEDY} for line in lines])
    for i, (_, part) in enumerate(REFUSED):
        for answers in (rendered, answered):
            assert set(answers[2 * i]) == {"error"} and part in answers[2 * i]["error"]
        assert rendered[2 * i + 1]["text"] == "<s><user>Hi\n"
        assert answered[2 * i + 1]["text"] == "yes."


def test_the_engine_says_what_the_template_said(refusing):
    with binding.Engine(refusing, threads=1) as engine:
        for messages, part in REFUSED:
            for ask in (engine.render, engine.chat, lambda m: list(engine.stream_chat(m))):
                with pytest.raises(binding.Error, match=part) as refused:
                    ask(messages)
                assert refused.value.status == "invalid_argument"
        assert engine.chat(HI, **GREEDY).text == "yes."
        assert engine.metrics()["num_requests_running"] == 0


def test_commands_say_what_the_template_said(pinfer, refusing):
    flags = ["--system", "Be brief.", "--temperature", "0"]
    code, out, error = command(pinfer, "run", refusing, "--chat", "-p", "Hi", *flags)
    assert code == 1 and out == ""
    assert error.startswith("pinfer: error: ") and NO_SYSTEM in error and error.count("\n") == 1
    # A conversation goes on; what was refused is taken back, so that roles still alternate.
    code, out, error = command(pinfer, "chat", refusing, *flags, text="Hi\nHi\n")
    assert code == 0 and out == "" and error.count(NO_SYSTEM) == 2
    code, out, error = command(pinfer, "chat", refusing, "--temperature", "0", text="Hi\nHi\n")
    assert (code, out, error) == (0, "yes.\nyes.\n", "")
    code, out, _ = command(
        pinfer, "chat", refusing, "--temperature", "0", "--stop", "s.", text="Hi\nHi\n"
    )
    assert (code, out) == (0, "ye\nye\n")


# ---- chat-content-parts ----

JOINING = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
LOOPING = (
    "{% for m in messages %}<{{ m.role }}>{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for p in m.content %}({{ p.text }}){% endfor %}{% endif %}{% endfor %}"
)
PARTS = [{"type": "text", "text": "One."}, {"type": "text", "text": "Two."}]


@pytest.fixture(scope="module")
def part_bundles(bundles):
    return {
        name: bundles.successor(f"parts-{name}", answer_tokenizer(), [CHAIN], chat_template=source)
        for name, source in (("joining", JOINING), ("looping", LOOPING))
    }


def test_text_parts_of_every_role(pinfer, part_bundles):
    """Joined by a line feed where the template wants a string, as a list where it loops."""
    roles = ["system", "user", "assistant", "tool", "user"]
    messages = [{"role": role, "content": PARTS} for role in roles]
    for name, text in (("joining", "One.\nTwo."), ("looping", "(One.)(Two.)")):
        expected = "".join(f"<{role}>{text}" for role in roles)
        bundle = part_bundles[name]
        (rendered,) = json_lines(pinfer, "render", bundle, [{"messages": messages}])
        assert rendered["text"] == expected
        (answer,) = json_lines(pinfer, "batch", bundle, [{"messages": messages, **GREEDY}])
        assert answer["num_prompt_tokens"] == len(rendered["ids"])
        with binding.Engine(bundle, threads=1) as engine:
            assert engine.render(messages) == expected
            assert engine.chat(messages, **GREEDY).num_prompt_tokens == len(rendered["ids"])


@pytest.mark.parametrize(
    ("content", "text", "list_text"),
    [([], "", ""), (PARTS[:1], "One.", "(One.)"), ("plain", "plain", "plain"),
     ([{"type": "text", "text": ""}, *PARTS], "\nOne.\nTwo.", "()(One.)(Two.)")],
)  # fmt: skip
def test_few_and_empty_parts(pinfer, part_bundles, content, text, list_text):
    line = {"messages": [{"role": "user", "content": content}]}
    for name, expected in (("joining", text), ("looping", list_text)):
        (rendered,) = json_lines(pinfer, "render", part_bundles[name], [line])
        assert rendered["text"] == f"<user>{expected}"


@pytest.mark.parametrize(
    ("content", "path"),
    [
        ([PARTS[0], {"type": "image_url", "image_url": {"url": "x"}}],
         "messages[1].content[1].type"),
        ([{"type": "text"}], "messages[1].content[0].text"),
        ([{"type": "text", "text": 5}], "messages[1].content[0].text"),
        ([{"text": "x"}], "messages[1].content[0].type"),
        (["plain"], "messages[1].content[0]"),
        ([PARTS], "messages[1].content[0]"),
    ],
)  # fmt: skip
def test_parts_that_are_no_text_are_named(pinfer, part_bundles, content, path):
    messages = [*HI, {"role": "user", "content": content}]
    for bundle in part_bundles.values():
        (rendered, after) = json_lines(
            pinfer, "render", bundle, [{"messages": messages}, {"messages": HI}]
        )
        assert rendered["error"].startswith(f"{path}: expected "), rendered
        assert after["text"] == "<user>Hi"
        (answer,) = json_lines(pinfer, "batch", bundle, [{"messages": messages}])
        assert answer["error"] == rendered["error"]
        with binding.Engine(bundle, text_only=True) as engine:
            with pytest.raises(binding.Error) as refused:
                engine.render(messages)
            assert refused.value.status == "invalid_argument" and path in str(refused.value)


# ---- chat-strftime-now ----

CLOCK = (
    "{{ strftime_now('%Y-%m-%d') }}|{{ strftime_now('%d %B %Y') }}|{{ strftime_now('%a %b %p') }}|"
    "{% if strftime_now is defined %}y{% endif %}"
    "|{{ date_string if date_string is defined else strftime_now('%d %b %Y') }}"
    "|{% for m in messages %}{{ m.content }}{% endfor %}"
)


@pytest.fixture(scope="module")
def clock(bundles):
    return bundles.successor("clock", answer_tokenizer(), [CHAIN], chat_template=CLOCK)


def at(time, **kwargs):
    return render_reference(
        CLOCK, HI, special_tokens=SPECIAL, chat_template_kwargs=kwargs, now=lambda: time
    )


@pytest.mark.parametrize("locale", ["C", "de_DE.UTF-8", "tr_TR.UTF-8"])
def test_a_frozen_clock_as_the_reference_shows_it(pinfer, clock, locale):
    """English names whatever the locale."""
    lines = [{"messages": HI}]
    for month in (1, 3, 5, 10, 12):
        time = datetime(2031, month, 9, 15, 4, 5)
        environment = {"PINFER_NOW": time.isoformat(), "LC_ALL": locale, "LANG": locale}
        (rendered,) = json_lines(pinfer, "render", clock, lines, **environment)
        assert rendered["text"] == at(time)
    assert at(datetime(2031, 5, 9)).startswith("2031-05-09|09 May 2031|Fri May AM|y|09 May 2031|Hi")


def test_the_clock_is_read_when_a_request_comes(pinfer, clock):
    with binding.Engine(clock, text_only=True) as engine:
        before, found, after = datetime.now(), engine.render(HI), datetime.now()
        assert found in (at(before), at(after))
    assert json_lines(pinfer, "render", clock, [{"messages": HI, "now": 86400 * 365.25 * 30}])[0][
        "text"
    ].startswith(("1999-12-31|31 December 1999", "2000-01-01|01 January 2000"))


def test_the_request_may_name_its_date(pinfer, clock):
    kwargs = {"date_string": "26 Jul 2024"}
    time = datetime(2031, 5, 9)
    line = {"messages": HI, "chat_template_kwargs": kwargs}
    environment = {"PINFER_NOW": time.isoformat()}
    (rendered,) = json_lines(pinfer, "render", clock, [line], **environment)
    assert rendered["text"] == at(time, **kwargs) and "|26 Jul 2024|" in rendered["text"]
    (answer,) = json_lines(pinfer, "batch", clock, [{**line, **GREEDY}], **environment)
    assert answer["num_prompt_tokens"] == len(rendered["ids"])


def test_a_function_that_does_not_exist_is_named(pinfer, bundles):
    bundle = bundles.successor(
        "undefined", answer_tokenizer(), [CHAIN], chat_template="{{ moon_phase('%d') }}"
    )
    for name in ("render", "batch"):
        (answer,) = json_lines(pinfer, name, bundle, [{"messages": HI}])
        assert "moon_phase" in answer["error"]
    code, _, error = command(pinfer, "run", bundle, "--chat", "-p", "Hi")
    assert code == 1 and "moon_phase" in error
