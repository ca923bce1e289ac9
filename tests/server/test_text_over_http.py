"""Characters, stop strings, ends and templates, to the byte, streamed and whole."""

import json

import pytest
import successor_model
from raw_http import assert_error, client_of
from server_process import content_of, parse_events
from successor_model import END, byte_fallback, byte_level

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
LLAMA = "🦙".encode()
BYTE_CHAINS = {
    "a": [LLAMA[:1], LLAMA[1:3], LLAMA[3:] + b"a", b"!"],
    "b": [LLAMA[:2], LLAMA[2:], b"B"],
    "c": ["👩🏽".encode()[:6], "👩🏽".encode()[6:] + b"\xe2\x80", b"\x8d" + "💻".encode()],
    "d": ["삼".encode() + b"\xea", b"\xb2", b"\xb9" + "살".encode()],
    "e": [b"\xe2", b" ok"],
    "f": [b"\x80", b"g."],
    "h": [b"X", b"Y", b"\xf0\x9f\x98", b"\x80Z"],
}
BYTE_TEXTS = {
    "a": "🦙a!",
    "b": "🦙B",
    "c": "👩🏽\u200d💻",
    "d": "삼겹살",
    "e": "\ufffd ok",
    "f": "\ufffdg.",
    "h": "XY😀Z",
}
STOP_CHAINS = [
    [b"o", b"ABC", b"DEF", b"G", b"HI", b"JK", b"\n", b"LM", END],
    [b"t", b"x", b"\xc3", b"\xa9y", b"z", END],
]
STOP_CASES = [
    ("go", ["DEFGHIJ"], "ABC", 5, "DEFGHIJ"), ("go", ["GHIJK", "HI"], "ABCDEFG", 4, "HI"),
    ("go", ["CD"], "AB", 2, "CD"), ("go", "K", "ABCDEFGHIJ", 5, "K"),
    ("go", ["H"], "ABCDEFG", 4, "H"), ("go", "\n", "ABCDEFGHIJK", 6, "\n"),
    ("go", ["go"], "ABCDEFGHIJK\nLM", 8, ""), ("go", ["H", "H", "H"], "ABCDEFG", 4, "H"),
    ("go", ["q", "r", "s", "w", "HI"], "ABCDEFG", 4, "HI"), ("go", [], "ABCDEFGHIJK\nLM", 8, ""),
    ("go", None, "ABCDEFGHIJK\nLM", 8, ""), ("gt", ["é"], "x", 3, "é"),
    ("gt", ["xéy"], "", 3, "xéy"), ("gt", ["éz"], "xéyz", 5, ""),
]  # fmt: skip
HI = [{"role": "user", "content": "Hi"}]
REFUSING = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('No <system> \"role\"') }}{% endif %}"
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Roles must alternate') }}{% endif %}{{ m.content }}\n{% endfor %}"
)


def ask(client, path, **body):
    """The whole answer, and the text of the streamed one, which must be equal."""
    body = {"temperature": 0, "max_tokens": 30, **body}
    whole = client.post(path, json=body)
    assert whole.status_code == 200, whole.text
    streamed = client.post(path, json={**body, "stream": True})
    events = parse_events(streamed.content.decode("utf-8", "strict"))
    assert not any(0xD800 <= ord(c) < 0xE000 for e in events for c in json.dumps(e))
    choice = whole.json()["choices"][0]
    text = choice["text"] if path == COMPLETIONS else choice["message"]["content"]
    assert content_of(events) == text
    assert events[-1]["choices"][0]["finish_reason"] == choice["finish_reason"]
    return text, choice, whole.json()["usage"]


@pytest.fixture(scope="module")
def client(serve, bundles):
    tokens = {t for chain in BYTE_CHAINS.values() for t in chain if len(t) > 1}
    tokens |= {t for chain in STOP_CHAINS for t in chain if isinstance(t, bytes) and len(t) > 1}
    chains = [[letter.encode(), *chain, END] for letter, chain in BYTE_CHAINS.items()]
    template = "{{ messages[-1].content }}"
    bundle = bundles.successor(
        "http-text", byte_level(sorted(tokens)), [*chains, *STOP_CHAINS], chat_template=template
    )
    with serve(bundle) as server, client_of(server) as client:
        yield client


@pytest.mark.parametrize("letter", BYTE_CHAINS)
def test_characters_over_token_borders(client, letter):
    text, choice, usage = ask(client, COMPLETIONS, prompt=f"x {letter}")
    assert text == BYTE_TEXTS[letter] and choice["finish_reason"] == "stop"
    assert usage["completion_tokens"] == len(BYTE_CHAINS[letter]) + 1
    messages = [{"role": "user", "content": f"x {letter}"}]
    assert ask(client, CHAT, messages=messages)[0] == BYTE_TEXTS[letter]


@pytest.mark.parametrize("logprobs", [None, 1])
def test_an_end_inside_a_character(client, logprobs):
    text, choice, usage = ask(client, COMPLETIONS, prompt="x h", max_tokens=3, logprobs=logprobs)
    assert text == "XY\ufffd" and choice["finish_reason"] == "length"
    assert usage["completion_tokens"] == 3
    if logprobs:
        assert choice["logprobs"]["tokens"] == ["X", "Y", "bytes:\\xf0\\x9f\\x98"]
    options = {"logprobs": True, "top_logprobs": 1}
    messages = [{"role": "user", "content": "x h"}]
    text, choice, _ = ask(client, CHAT, messages=messages, max_tokens=4, **options)
    content = choice["logprobs"]["content"]
    assert bytes(byte for entry in content for byte in entry["bytes"]).decode() == text == "XY😀Z"
    assert content[2]["bytes"] == [0xF0, 0x9F, 0x98]


@pytest.mark.parametrize(("prompt", "stop", "text", "count", "match"), STOP_CASES, ids=str)
@pytest.mark.parametrize(
    "extra", [{}, {"logprobs": 2}, {"include_stop_str_in_output": True}], ids=str
)
def test_stop_strings(client, prompt, stop, text, count, match, extra):
    found, choice, usage = ask(client, COMPLETIONS, prompt=prompt, stop=stop, **extra)
    assert found == text + (match if "include_stop_str_in_output" in extra else "")
    assert choice["finish_reason"] == "stop"
    assert usage["completion_tokens"] == count
    if "logprobs" in extra:
        lengths = {name: len(listed) for name, listed in choice["logprobs"].items()}
        assert set(lengths.values()) == {count}


def test_nothing_of_a_stop_string_is_sent(client):
    """Not even its start, in any event."""
    body = {"prompt": "go", "temperature": 0, "max_tokens": 30, "stop": ["DEFGHIJ"], "stream": True}
    text = client.post(COMPLETIONS, json=body).text
    assert content_of(parse_events(text)) == "ABC" and '"D' not in text


def test_ends(client):
    for options, count, reason in (
        ({}, 8, "stop"),
        ({"ignore_eos": True, "max_tokens": 10}, 10, "length"),
        ({"ignore_eos": True, "stop_token_ids": [END]}, 8, "stop"),
        ({"max_tokens": 8}, 8, "stop"),
        ({"max_tokens": 7}, 7, "length"),
        ({"min_tokens": 9, "max_tokens": 9}, 9, "length"),
    ):
        _, choice, usage = ask(client, COMPLETIONS, prompt="go", **options)
        assert (usage["completion_tokens"], choice["finish_reason"]) == (count, reason), options


def test_echo(client):
    text, choice, usage = ask(client, COMPLETIONS, prompt="x é d", echo=True, logprobs=0)
    assert text == "x é d삼겹살"
    logprobs = choice["logprobs"]
    assert logprobs["token_logprobs"][0] is None
    assert usage["prompt_tokens"] + usage["completion_tokens"] == len(logprobs["tokens"])
    assert logprobs["text_offset"][:3] == [0, 1, 2]


def test_special_tokens_are_shown_only_if_asked(client):
    body = {"prompt": "go", "allowed_token_ids": [1], "max_tokens": 2, "temperature": 1}
    assert client.post(COMPLETIONS, json=body).json()["choices"][0]["text"] == ""
    shown = {**body, "skip_special_tokens": False}
    assert client.post(COMPLETIONS, json=shown).json()["choices"][0]["text"] == "<s><s>"


def test_detokenize_and_tokenize_are_inverse(client):
    for text in ("", " ", "a\n b", "🦙 é 삼", "<s>x</s>", "\0"):
        ids = client.post("/tokenize", json={"prompt": text}).json()
        assert ids["count"] == len(ids["tokens"]) and ids["max_model_len"] == 256
        assert client.post("/detokenize", json={"tokens": ids["tokens"]}).json() == {"prompt": text}


# ---- spaces ----


@pytest.mark.parametrize("kind", ["llama", "metaspace"])
def test_the_first_token_keeps_its_space(serve, bundles, kind):
    pieces = ["▁", *"Once", "▁upon", "▁a", "▁time"]
    tokenizer = byte_fallback(pieces, kind)
    chains = [["e", "▁upon", "▁a", "▁time", END]]
    bundle = bundles.successor(f"http-spaces-{kind}", tokenizer, chains)
    with serve(bundle) as server, client_of(server) as client:
        assert ask(client, COMPLETIONS, prompt="Once")[0] == " upon a time"
        for count, text in ((1, " upon"), (2, " upon a"), (3, " upon a time")):
            assert ask(client, COMPLETIONS, prompt="Once", max_tokens=count)[0] == text
        assert ask(client, COMPLETIONS, prompt="Once", echo=True)[0] == "Once upon a time"


def assert_offsets(client):
    """A token's offset is the place of its text in the answer's text."""
    text, choice, _ = ask(client, COMPLETIONS, prompt="Hey", echo=True, logprobs=0, max_tokens=2)
    logprobs = choice["logprobs"]
    for token, offset in zip(logprobs["tokens"], logprobs["text_offset"], strict=True):
        if token in text and token.strip():
            assert text[offset:].startswith(token), (token, offset, text)


@pytest.mark.parametrize("kind", ["llama", "metaspace"])
def test_offsets_behind_an_added_space(serve, bundles, kind):
    tokenizer = byte_fallback(["▁", *"Hey", "▁a"], kind)
    bundle = bundles.successor(f"http-offsets-{kind}", tokenizer, [["y", "▁a", END]])
    with serve(bundle) as server, client_of(server) as client:
        assert_offsets(client)


def test_offsets_behind_a_bos(serve, bundles):
    single = [
        {"SpecialToken": {"id": "<s>", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
    ]
    data = json.loads(byte_level().to_str())
    data["post_processor"] = {
        "type": "TemplateProcessing", "single": single, "pair": single,
        "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
    }  # fmt: skip
    tokenizer = byte_level().from_str(json.dumps(data))
    bundle = bundles.successor("http-offsets-bos", tokenizer, [[b"y", b"!", END]])
    with serve(bundle) as server, client_of(server) as client:
        assert_offsets(client)


# ---- templates ----


def test_template_refusals(serve, bundles):
    bundle = bundles.successor("http-refusing", byte_level(), [], chat_template=REFUSING)
    with serve(bundle) as server, client_of(server) as client:
        for stream in (False, True):
            for messages, text in (
                ([{"role": "system", "content": "a"}, *HI], 'No <system> "role"'),
                (HI * 2, "Roles must alternate"),
                ([{"role": "assistant", "content": "x"}], "Roles must alternate"),
            ):
                body = {"messages": messages, "stream": stream, "max_tokens": 1}
                assert text in assert_error(client.post(CHAT, json=body), 400)
                assert text in assert_error(client.post("/tokenize", json=body), 400)
            body = {"messages": HI, "max_tokens": 1, "stream": stream}
            assert client.post(CHAT, json=body).status_code == 200


def test_a_model_without_a_template(serve, bundles):
    """400: trying again, as 503 would suggest, is of no use."""
    with serve(bundles.successor("http-no-template", byte_level(), [])) as server:
        with client_of(server) as client:
            message = assert_error(client.post(CHAT, json={"messages": HI}), 400)
            assert message == "the model has no chat template: use /v1/completions"


def test_a_template_of_the_time(serve, bundles):
    template = "{{ strftime_now('%d %B %Y') }}|{{ date_string }}|{{ messages[0].content }}"
    bundle = bundles.successor("http-clock", byte_level(), [], chat_template=template)
    env = {"PINFER_NOW": "2024-07-26T12:34:56", "LC_ALL": "de_DE.UTF-8"}
    with serve(bundle, env=env) as server, client_of(server) as client:
        body = {"messages": HI, "chat_template_kwargs": {"date_string": "today"}}
        ids = client.post("/tokenize", json=body).json()["tokens"]
        text = client.post("/detokenize", json={"tokens": ids}).json()["prompt"]
    assert text == "26 July 2024|today|Hi"


def test_an_undefined_function_is_named(serve, bundles):
    template = "{{ nonsense(messages) }}"
    bundle = bundles.successor("http-undefined", byte_level(), [], chat_template=template)
    with serve(bundle) as server, client_of(server) as client:
        message = assert_error(client.post(CHAT, json={"messages": HI}), 400)
        assert "nonsense" in message


def test_tools_are_rendered_as_python_does(serve, bundles):
    template = "{{ tools[0] | tojson }}~{{ tools[0] | tojson(indent=2) }}~{{ messages[0].content }}"
    bundle = bundles.successor("http-tools", byte_level(), [], chat_template=template)
    function = {
        "name": "b", "description": 'Größe <5 & "x"/y 天气 — 😀', "z": 1.0, "a": 1e22, "t": True,
        "n": None, "l": [], "o": {},
    }  # fmt: skip
    tool = {"type": "function", "function": function}
    with serve(bundle) as server, client_of(server) as client:
        answer = client.post("/tokenize", json={"messages": HI, "tools": [tool]}).json()
        body = {"tokens": answer["tokens"]}
        text = client.post("/detokenize", json=body).json()["prompt"]
    expected = [json.dumps(tool, ensure_ascii=False, indent=indent) for indent in (None, 2)]
    assert text == "~".join([*expected, "Hi"])


@pytest.mark.parametrize("loops", [False, True])
def test_text_parts(serve, bundles, loops):
    shown = "{% for p in m.content %}[{{ p.text }}]{% endfor %}" if loops else "{{ m.content }}"
    template = "{% for m in messages %}{{ m.role }}:" + shown + ";{% endfor %}"
    name = f"http-parts-{loops}"
    bundle = bundles.successor(name, byte_level(), [], chat_template=template)
    parts = [{"type": "text", "text": "One."}, {"type": "text", "text": "Two."}]
    roles = ("system", "user", "assistant", "tool")
    with serve(bundle) as server, client_of(server) as client:
        messages = [{"role": role, "content": parts} for role in roles]
        ids = client.post("/tokenize", json={"messages": messages}).json()["tokens"]
        text = client.post("/detokenize", json={"tokens": ids}).json()["prompt"]
    one = "[One.][Two.]" if loops else "One.\nTwo."
    assert text == "".join(f"{role}:{one};" for role in roles)


def test_bos(serve, bundles):
    """A chat has the BOS of its template, a text that of the tokenizer, ids none."""
    single = [
        {"SpecialToken": {"id": "<s>", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
    ]
    for name, start, adds, in_chat in (("a", "{{ bos_token }}", True, 1), ("b", "", True, 0),
                                       ("c", "", False, 0)):  # fmt: skip
        data = json.loads(byte_level().to_str())
        if adds:
            data["post_processor"] = {
                "type": "TemplateProcessing", "single": single, "pair": single,
                "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
            }  # fmt: skip
        bundle = bundles.successor(
            f"http-bos-{name}", byte_level().from_str(json.dumps(data)), [],
            chat_template=start + "{{ messages[0].content }}",
        )  # fmt: skip
        with serve(bundle) as server, client_of(server) as client:

            def prompt_tokens(path, client=client, **body):
                answer = client.post(path, json={"max_tokens": 1, **body})
                return answer.json()["usage"]["prompt_tokens"] if answer.is_success else answer

            assert prompt_tokens(CHAT, messages=HI) == 2 + in_chat
            assert prompt_tokens(COMPLETIONS, prompt="Hi") == 2 + adds
            assert prompt_tokens(COMPLETIONS, prompt=[5, 6, 7]) == 3
            ids = client.post("/tokenize", json={"messages": HI}).json()["tokens"]
            assert ids.count(1) == in_chat
            if adds:
                assert prompt_tokens(COMPLETIONS, prompt="") == 1
                body = {"prompt": "Hi", "max_tokens": 0, "echo": True, "logprobs": 0}
                choice = client.post(COMPLETIONS, json=body).json()["choices"][0]
                assert choice["text"] == "Hi" and len(choice["logprobs"]["tokens"]) == 3
            else:
                assert_error(prompt_tokens(COMPLETIONS, prompt=""), 400, "prompt")
    assert successor_model.SPECIAL[1] == "<s>"
