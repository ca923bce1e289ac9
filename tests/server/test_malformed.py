"""Wrong bodies: the answer is a small JSON error with the right status, and life goes on."""

import json

import pytest
from raw_http import assert_error, client_of

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "Hi"}]
SECRET = "SECRET" * 50  # must not be echoed


@pytest.fixture(scope="module")
def client(server):
    with client_of(server) as client:
        yield client


@pytest.fixture(autouse=True, scope="module")
def stays_up(client):
    yield
    answer = client.post(COMPLETIONS, json={"prompt": "a", "max_tokens": 1})
    assert answer.status_code == 200
    assert client.get("/health").status_code == 200


def nested(levels: int, inner: str = "", open_: str = "[", close: str = "]") -> str:
    """A body of that many levels in all."""
    count = levels - 1
    return '{"prompt":"a","max_tokens":1,"foo":' + open_ * count + inner + close * count + "}"


@pytest.mark.parametrize(
    "body",
    [
        b"", b" ", b"{", b"}", b"[]", b"null", b"1", b'"a"', b"true", b'{"prompt":"a"} x',
        b'{"prompt":"a"}{}', b'{"prompt":"a",}', b"{'prompt':'a'}", b'{"prompt":"a" // x\n}',
        b'{"prompt":"\xff"}', b'{"prompt":"\xc0\xaf"}', b'{"prompt":"\xed\xa0\xbd"}',
        b'{"prompt":"\xf4\x90\x80\x80"}', b'{"prompt":"\\ud83d"}', b'{"prompt":"\\ude00x"}',
        b'{"prompt":"\\ud83dx"}', b'{"prompt":"\\ud83d\\ud83d"}', b'{"prompt":"\\x41"}',
        b'{"prompt":"\n"}', b'{"prompt":"\x00"}', b'{"prompt":"a","temperature":NaN}',
        b'{"prompt":"a","temperature":Infinity}', b'{"prompt":"a","temperature":1e309}',
        b'{"prompt":"a","temperature":-1e309}', b'{"prompt":"a","max_tokens":01}',
        b'{"prompt":"a","max_tokens":.5}',
        b"\xff\xfe{\x00}\x00", b'{\xff:1}', b'{"prompt":"a","\xff":1}', b"\x00" * 1000,
        b"prompt=a&max_tokens=1",
    ],
)  # fmt: skip
def test_bodies_that_are_no_json_objects(client, body):
    for path in (COMPLETIONS, CHAT, "/tokenize", "/detokenize"):
        assert_error(client.post(path, content=body), 400, None)


def test_a_number_of_5000_digits(client):
    body = b'{"prompt":"a","max_tokens":' + b"9" * 5000 + b"}"
    for path in (COMPLETIONS, CHAT, "/tokenize", "/detokenize"):
        assert_error(client.post(path, content=body), 400, "max_tokens")


@pytest.mark.parametrize(
    ("body", "count"),
    [
        (b'\xef\xbb\xbf{"prompt":"a"}', 1),  # a byte order mark is passed over
        (b'{"prompt":"\\ud83d\\ude00"}', 4),
        ('{"prompt":"\U0001f600"}'.encode(), 4),
        (b'{"prompt":"a\\u0000b"}', 3),
        (b'{"prompt":"xx","prompt":"a"}', 1),  # of equal keys the last one counts
        (b' \r\n\t{"prompt":"a"}\n ', 1),
        (b'{"prompt":"a","foo":{"bar":[1]}}', 1),
        (b'{"prompt":"\\ufeffa\\uffff"}', 7),
    ],
)
def test_unusual_bodies_that_are_right(client, body, count):
    tokens = client.post("/tokenize", content=body).json()
    assert tokens["count"] == len(tokens["tokens"]) == count
    answer = client.post(COMPLETIONS, content=body)
    assert answer.status_code == 200 and answer.json()["usage"]["prompt_tokens"] == count


def test_zero_characters_pass_through_a_prompt(client):
    ids = client.post("/tokenize", json={"prompt": "a\0b"}).json()["tokens"]
    assert client.post("/detokenize", json={"tokens": ids}).json()["prompt"] == "a\0b"
    answer = client.post(COMPLETIONS, json={"prompt": "a\0b", "max_tokens": 0, "echo": True})
    assert answer.json()["choices"][0]["text"] == "a\0b"


@pytest.mark.parametrize("content_type", ["text/plain", "application/octet-stream", "x/y; z=1", ""])
def test_any_content_type_is_read_as_json(client, content_type):
    body = b'{"prompt":"a","max_tokens":1}'
    headers = {"Content-Type": content_type}
    assert client.post(COMPLETIONS, content=body, headers=headers).status_code == 200


WRONG_VALUES = [
    ("max_tokens", ["ten", 1.5, 1e2, 1.0, True, -1, 2**31, 2**64, [], {}, "1"]),
    ("min_tokens", ["1", -1, 1.5, True]),
    ("temperature", ["NaN", "0.5", -1, -1e-9, True, [], {}]),
    ("top_p", ["x", -0.1, 1.5, 1.0000001, True]),
    ("top_k", [1.5, 1e3, -2, "5", True, 2**31]),
    ("min_p", [1.1, -0.1, "x"]),
    ("presence_penalty", [2.1, -2.1, "x", True]),
    ("frequency_penalty", [2.1, -2.1, "x", []]),
    ("repetition_penalty", [-1, "x"]),
    ("seed", [2**63, 2**64, -(2**63) - 1, 1.5, "7", True]),
    ("n", [0, -1, 129, 1.5, "2", True]),
    ("stream", ["yes", 1, 0, "true", []]),
    ("echo", ["yes", 1]),
    ("logprobs", [6, -1, True, False, "1", 1.5]),
    ("prompt_logprobs", [21, -1, True]),
    ("ignore_eos", [1, "true"]),
    ("skip_special_tokens", [0, "x"]),
    ("include_stop_str_in_output", [0, "x"]),
    ("add_special_tokens", [0, "x"]),
    ("stop", ["", ["", "X"], {"a": 1}, 5, True, ["x"] * 65, "x" * 1_000_000, ["x" * 4097]]),
    ("stop_token_ids", [5, "5", {}]),
    ("allowed_token_ids", [[], 5, "x"]),
    ("bad_words", ["x", 5, {}]),
    ("logit_bias", [[[5, 1]], "x", 5, True]),
    ("user", [5, [], {}]),
    ("cache_salt", [5, [], "\0"]),
    ("priority", ["x", 1.5, 2**31]),
    ("truncate_prompt_tokens", [0, -2, 1.5, "x"]),
    ("best_of", [2, 20, "x", 1.5]),
    ("suffix", ["x", 5]),
    ("stream_options", [5, "x", [], {}, {"include_usage": True}]),  # without stream
    ("response_format", ["text"]),
    ("model", [5, [], {}, True]),
]


@pytest.mark.parametrize(("name", "values"), WRONG_VALUES, ids=lambda value: str(value)[:20])
def test_wrong_values_are_named(client, name, values):
    for value in values:
        answer = client.post(COMPLETIONS, json={"prompt": SECRET[:9], name: value})
        message = assert_error(answer, 400, name)
        assert name in message and len(answer.content) < 600 and "xxx" not in answer.text


REFUSED_BY_THE_ENGINE = [
    ("top_p", 0),
    ("repetition_penalty", 0),
    ("min_tokens", 17),
    ("allowed_token_ids", [99999]),
    ("logit_bias", {"999999": 1}),
]


@pytest.mark.parametrize(("name", "value"), REFUSED_BY_THE_ENGINE)
def test_wrong_values_that_the_engine_finds_are_named(client, name, value):
    answer = client.post(COMPLETIONS, json={"prompt": "a", name: value})
    assert name in assert_error(answer, 400, name)


@pytest.mark.parametrize(
    ("name", "value", "param"),
    [
        ("stop", ["a", 1], "stop[1]"),
        ("stop_token_ids", [1, "a"], "stop_token_ids[1]"),
        ("stop_token_ids", [-1], "stop_token_ids[0]"),
        ("bad_words", ["a", 1], "bad_words[1]"),
        ("bad_words", ["  "], "bad_words[0]"),
        ("allowed_token_ids", [1.5], "allowed_token_ids[0]"),
        ("logit_bias", {"5": 1000}, "logit_bias[5]"),
        ("logit_bias", {"5": -100.5}, "logit_bias[5]"),
        ("logit_bias", {"5": "x"}, "logit_bias[5]"),
        ("logit_bias", {"5": None}, "logit_bias[5]"),
        ("prompt", [1, "a"], "prompt[1]"),
        ("prompt", [[1], "a"], "prompt[1]"),
        ("prompt", ["a", [1]], "prompt[1]"),
        ("prompt", ["a", 1], "prompt[1]"),
        ("prompt", [[1], [1.5]], "prompt[1][0]"),
        ("prompt", [1, 2.0], "prompt[1]"),
        ("prompt", [True], "prompt[0]"),
        ("prompt", [None], "prompt[0]"),
        ("prompt", [2**31], "prompt[0]"),
        ("prompt", [2**64], "prompt[0]"),
        ("response_format", {"type": "json_object"}, "response_format.type"),
        ("response_format", {"type": 5}, "response_format.type"),
    ],
    ids=str,
)
def test_wrong_entries_are_named(client, name, value, param):
    answer = client.post(COMPLETIONS, json={"prompt": "a", "max_tokens": 1, name: value})
    if param == "prompt[1][0]":  # the list, at least
        assert assert_error(answer, 400).startswith("prompt[1]")
    else:
        assert assert_error(answer, 400, param).startswith(param)


@pytest.mark.parametrize("key", ["-1", "abc", "5.0", "", " 5", "+5", "0x5", "1e1", str(2**64)])
def test_keys_of_logit_bias_are_ids(client, key):
    body = {"prompt": "a", "max_tokens": 1, "logit_bias": {"5": 1, key: 1}}
    assert_error(client.post(COMPLETIONS, json=body), 400, "logit_bias")


@pytest.mark.parametrize("key", ["-1", "abc", "5.0"])
def test_a_wrong_key_of_logit_bias_is_shown(client, key):
    body = {"prompt": "a", "max_tokens": 1, "logit_bias": {"5": 1, key: 1}}
    assert key in assert_error(client.post(COMPLETIONS, json=body), 400)


def test_a_key_of_logit_bias_has_one_spelling(client):
    for bias in ({"05": 1}, {"5": 1, "05": 2}):
        body = {"prompt": "a", "max_tokens": 1, "logit_bias": bias}
        assert_error(client.post(COMPLETIONS, json=body), 400)


def test_null_means_default(client):
    names = [name for name, _ in WRONG_VALUES]
    body = {"prompt": "a", **dict.fromkeys(names)}
    answer = client.post(COMPLETIONS, json=body)
    assert answer.status_code == 200
    assert answer.json()["usage"]["completion_tokens"] <= 16
    chat = {"messages": MESSAGES, **dict.fromkeys(names), "max_tokens": 1, "tools": None}
    assert client.post(CHAT, json={**chat, "tool_choice": None}).status_code == 200


@pytest.mark.parametrize("prompt", [None, {}, 5, True, 1.5, {"a": 1}], ids=str)
def test_prompts_of_wrong_types(client, prompt):
    assert_error(client.post(COMPLETIONS, json={"prompt": prompt}), 400, "prompt")
    assert_error(client.post(COMPLETIONS, json={}), 400, "prompt")


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ("hi", "messages"), ({}, "messages"), ([], "messages"), (None, "messages"),
        ([1], "messages[0]"), (["hi"], "messages[0]"), ([None], "messages[0]"),
        ([{}], "messages[0].role"), ([{"role": 5, "content": "a"}], "messages[0].role"),
        ([{"role": None, "content": "a"}], "messages[0].role"),
        ([*MESSAGES, {"role": "user", "content": [{"type": "text"}]}],
         "messages[1].content[0].text"),
        ([{"role": "user", "content": [{"type": "text", "text": 5}]}],
         "messages[0].content[0].text"),
        ([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url"}]}],
         "messages[0].content[1].type"),
        ([{"role": "user", "content": [{"text": "a"}]}], "messages[0].content[0].type"),
        ([{"role": "user", "content": ["plain"]}], "messages[0].content[0]"),
        ([{"role": "user", "content": [{"type": "nope"}] * 5000}], "messages[0].content[0].type"),
    ],
    ids=lambda value: str(value)[:30],
)  # fmt: skip
@pytest.mark.parametrize("path", [CHAT, "/tokenize"])
def test_wrong_messages(client, path, messages, param):
    if path == "/tokenize" and messages is None:
        param = "prompt"
    assert_error(client.post(path, json={"messages": messages, "stream": True}), 400, param)


@pytest.mark.parametrize("content", [5, True, {"type": "text", "text": "a"}], ids=str)
def test_content_is_text_or_parts(client, content):
    body = {"messages": [{"role": "user", "content": content}], "max_tokens": 1}
    assert_error(client.post(CHAT, json=body), 400, "messages[0].content")


@pytest.mark.parametrize("calls", ["x", 5, [5], {}], ids=str)
def test_tool_calls_are_a_list_of_objects(client, calls):
    message = {"role": "assistant", "content": "a", "tool_calls": calls}
    assert_error(client.post(CHAT, json={"messages": [message], "max_tokens": 1}), 400)


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_completion_tokens": 0}, "max_completion_tokens"),
        ({"top_logprobs": 1}, "top_logprobs"),
        ({"top_logprobs": 0}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": -1}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": True}, "top_logprobs"),
        ({"logprobs": 5}, "logprobs"),
        ({"tools": {}}, "tools"),
        ({"tools": [1]}, "tools[0]"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice"),
        ({"functions": []}, "functions"),
        ({"response_format": {"type": "json_schema"}}, "response_format.type"),
        ({"chat_template_kwargs": []}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs.messages"),
        ({"chat_template": "{{ messages }}"}, "chat_template"),
        ({"stream_options": {}}, "stream_options"),
        ({"stream": True, "stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
        ({"stream": True, "prompt_logprobs": 1}, "prompt_logprobs"),
    ],
    ids=str,
)
def test_wrong_chat_options(client, options, param):
    assert_error(client.post(CHAT, json={"messages": MESSAGES, **options}), 400, param)


@pytest.mark.parametrize("inner", ["1", '"a"', "1,2"])
def test_depth(client, inner):
    """The body's own braces are the first of 256 levels."""
    for open_, close in (("[", "]"), ('[{"a":', "}]")):
        per_level = 1 if open_ == "[" else 2
        value = inner if per_level == 1 else "1"
        levels = 1 + 254 // per_level * per_level
        body = nested((levels - 1) // per_level + 1, value, open_, close)
        assert client.post(COMPLETIONS, content=body).status_code == 200
    assert client.post(COMPLETIONS, content=nested(256, inner)).status_code == 200
    for levels in (257, 258, 100_000):
        message = assert_error(client.post(COMPLETIONS, content=nested(levels, inner)), 400)
        assert "256" in message


def test_depth_of_empty_lists(client):
    assert_error(client.post(COMPLETIONS, content=nested(257)), 400)


@pytest.mark.parametrize("body", ["[" * 1_000_000, '{"a":' * 200_000, '{"a":[' * 100_000], ids=len)
def test_deep_bodies_that_never_close(client, body):
    assert_error(client.post(COMPLETIONS, content=body), 400)


@pytest.mark.parametrize(
    "body",
    [
        {"prompt": "a", "max_tokens": SECRET},
        {"prompt": "a", "model": SECRET},
        {"prompt": "a", "stop": [SECRET, 5]},
        {"prompt": "a", "logit_bias": {SECRET: 1}},
        {"prompt": [SECRET, 5]},
        {"prompt": SECRET * 20},  # too long
        {"prompt": "a", "bad_words": [SECRET, ""]},
    ],
    ids=str,
)
def test_payload_is_not_echoed(client, body):
    answer = client.post(COMPLETIONS, json=body)
    assert_error(answer, 404 if "model" in body else 400)
    assert "SECRETSECRET" not in answer.text


@pytest.mark.parametrize(
    "body",
    [
        {"messages": MESSAGES, "chat_template": SECRET},
        {"messages": [{"role": "user", "content": SECRET}], "tool_choice": SECRET},
        {"messages": MESSAGES, "response_format": {"type": SECRET}},
        {"messages": SECRET},
        {"messages": [SECRET]},
    ],
    ids=lambda body: "-".join(body),
)
def test_payload_of_chats_is_not_echoed(client, body):
    answer = client.post(CHAT, json=body)
    assert_error(answer, 400)
    assert "SECRETSECRET" not in answer.text


@pytest.mark.parametrize(
    "content",
    [
        [SECRET],
        [{"type": SECRET}],
        [{"type": "text", "text": [SECRET]}],
    ],
    ids=["part", "type", "text"],
)
def test_payload_of_parts_is_not_echoed(client, content):
    answer = client.post(CHAT, json={"messages": [{"role": "user", "content": content}]})
    assert_error(answer, 400)
    assert "SECRETSECRETSECRETSECRET" not in answer.text


def test_unknown_model(client):
    body = {"model": "another", "prompt": "a"}
    answer = client.post(COMPLETIONS, json=body)
    assert_error(answer, 404, "model")
    assert answer.json()["error"]["code"] == "model_not_found"
    assert_error(client.post(CHAT, json={"model": "", "messages": MESSAGES}), 404, "model")


def test_many_keys_cost_linear_time(client):
    """A body of a megabyte must not hold a worker for many seconds."""

    def seconds(count: int) -> float:
        fields = {f"k{i}": 1 for i in range(count)}
        body = json.dumps({"prompt": "a", "max_tokens": 1, **fields})
        answer = client.post(COMPLETIONS, content=body)
        assert answer.status_code in (200, 400)
        return answer.elapsed.total_seconds()

    few = max(min(seconds(3_000), seconds(3_000)), 0.01)
    assert seconds(24_000) < 24 * few


@pytest.mark.parametrize(
    ("tokens", "param"),
    [(None, "tokens"), ("a", "tokens"), ({}, "tokens"), ([-1], "tokens[0]"), ([1.0], "tokens[0]"),
     ([2**31], "tokens[0]"), (["a"], "tokens[0]"), ([[1]], "tokens[0]")],
    ids=str,
)  # fmt: skip
def test_detokenize_of_wrong_types(client, tokens, param):
    assert_error(client.post("/detokenize", json={"tokens": tokens}), 400, param)


@pytest.mark.parametrize("token", [259, 299, 300, 2**31 - 1])
def test_detokenize_of_ids_without_a_token(client, token):
    assert_error(client.post("/detokenize", json={"tokens": [1, token]}), 400, "tokens")


@pytest.mark.parametrize("token", [300, 2**31 - 1])
def test_completion_of_ids_without_a_token(client, token):
    assert_error(client.post(COMPLETIONS, json={"prompt": [1, token]}), 400, "prompt")
    assert_error(client.post(COMPLETIONS, json={"prompt": [[1], [token]]}), 400, "prompt")


@pytest.mark.parametrize("stream", [False, True])
def test_a_choice_of_nothing_is_the_clients_fault(client, stream):
    """Id 299 has no token and is masked, so nothing is left to choose from."""
    body = {"prompt": "a", "max_tokens": 1, "allowed_token_ids": [299], "stream": stream}
    assert_error(client.post(COMPLETIONS, json=body), 400)


def test_unknown_fields_are_accepted(client):
    body = {"prompt": "a", "max_tokens": 1, "foo": 1, "metadata": {"a": [None]}, "": 0}
    assert client.post(COMPLETIONS, json=body).status_code == 200
    chat = {"messages": [{**MESSAGES[0], "foo": 1, "name": "x"}], "max_tokens": 1, "foo": []}
    assert client.post(CHAT, json=chat).status_code == 200


def test_prompts_that_cannot_fit_are_not_tokenized(client):
    """Half a minute of a worker's time, or two requests that keep the server from all others."""
    text = "a" * 20_000_000
    for path, body, param in (
        (COMPLETIONS, {"prompt": text}, "prompt"),
        (COMPLETIONS, {"prompt": ["a", text]}, "prompt[1]"),
        (CHAT, {"messages": [{"role": "user", "content": text}]}, "messages"),
    ):
        error = client.post(path, json=body | {"max_tokens": 1}).json()["error"]
        assert error["code"] == "context_length_exceeded" and error["param"] == param
        assert "bytes, the context holds" in error["message"]


def test_messages_without_content(client):
    for role in ("user", "system"):
        for message in ({"role": role}, {"role": role, "content": None}):
            answer = client.post(CHAT, json={"messages": [message], "max_tokens": 1})
            assert answer.status_code == 400
            assert answer.json()["error"]["param"] == "messages[0].content"


def test_structured_output_is_refused_by_every_name(client):
    for name in ("grammar", "json_schema", "use_beam_search", "logits_processors"):
        for path, body in ((COMPLETIONS, {"prompt": "a"}), (CHAT, {"messages": MESSAGES})):
            error = client.post(path, json=body | {name: True}).json()["error"]
            assert error["param"] == name and "not supported" in error["message"]
            harmless = client.post(path, json=body | {name: False, "max_tokens": 1})
            assert harmless.status_code == 200
