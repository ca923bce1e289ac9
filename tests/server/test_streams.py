"""Server-sent events: framing, usage, choices, logprobs, errors."""

import json
import time

import pytest
from raw_http import RawClient, assert_error, client_of, post_bytes
from served_models import ENDLESS, fixed_model, long_model
from server_process import content_of, parse_events

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
BODIES = {
    COMPLETIONS: {"prompt": "a", "max_tokens": 4, "temperature": 0},
    CHAT: {"messages": [{"role": "user", "content": "a"}], "max_tokens": 4, "temperature": 0},
}
BOTH = pytest.mark.parametrize("path", [COMPLETIONS, CHAT])


@pytest.fixture(scope="module")
def fixed(serve, bundles):
    with serve(fixed_model(bundles)) as server:
        yield server


@pytest.fixture(scope="module")
def client(fixed):
    with client_of(fixed) as client:
        yield client


def events_of(client, path, **options):
    answer = client.post(path, json={**BODIES[path], "stream": True, **options})
    assert answer.status_code == 200, answer.text
    return parse_events(answer.text)


@BOTH
@pytest.mark.parametrize("options", ["absent", None, {"include_usage": False}, {}], ids=str)
def test_no_usage_unless_asked(client, path, options):
    extra = {} if options == "absent" else {"stream_options": options}
    events = events_of(client, path, **extra)
    assert all("usage" not in event for event in events)
    assert all(len(event["choices"]) == 1 for event in events)


@BOTH
@pytest.mark.parametrize("n", [1, 3])
def test_usage_chunk(client, path, n):
    events = events_of(client, path, stream_options={"include_usage": True}, n=n)
    *others, last = events
    assert all("usage" in event and event["usage"] is None for event in others)
    assert all(len(event["choices"]) == 1 for event in others)
    assert last["choices"] == []
    whole = client.post(path, json={**BODIES[path], "n": n}).json()
    assert last["usage"]["completion_tokens"] == 4 * n == whole["usage"]["completion_tokens"]
    assert last["usage"]["prompt_tokens"] == whole["usage"]["prompt_tokens"]
    assert last["usage"]["total_tokens"] == whole["usage"]["total_tokens"]
    assert "cached_tokens" in last["usage"]["prompt_tokens_details"]
    assert len({(event["id"], event["created"], event["model"]) for event in events}) == 1


@BOTH
@pytest.mark.parametrize("options", [{"include_usage": True}, {}], ids=str)
def test_stream_options_need_a_stream(client, path, options):
    for stream in (False, None):
        body = {**BODIES[path], "stream": stream, "stream_options": options}
        assert_error(client.post(path, json=body), 400, "stream_options")


@BOTH
def test_raw_framing(fixed, path):
    with RawClient(fixed) as raw:
        raw.send(post_bytes(path, {**BODIES[path], "stream": True}, "Accept-Encoding: gzip, br"))
        head = raw.read_head()
        assert head.status == 200
        assert head.headers["content-type"].startswith("text/event-stream")
        assert head.headers["transfer-encoding"] == "chunked"
        assert "content-encoding" not in head.headers and "content-length" not in head.headers
        assert head.headers["cache-control"] == "no-cache"
        chunks = raw.read_until(b"0\r\n\r\n")
        assert raw.pending == b""
    lines = chunks.split(b"\r\n")
    data = b"".join(lines[1:-3:2])
    assert data.endswith(b"data: [DONE]\n\n") and b"\r" not in data
    for size, chunk in zip(lines[0:-3:2], lines[1:-3:2], strict=True):
        assert int(size, 16) == len(chunk) and chunk.endswith(b"\n\n")  # whole events only
    for event in data.split(b"\n\n")[:-2]:
        assert event.startswith(b"data: {") and b"\n" not in event
        json.loads(event[6:].decode("utf-8", "strict"))


def test_chat_chunks(client):
    events = events_of(client, CHAT, n=2)
    for index in (0, 1):
        choices = [e["choices"][0] for e in events if e["choices"][0]["index"] == index]
        assert choices[0]["delta"] == {"role": "assistant", "content": ""}
        assert choices[-1]["delta"] == {} and choices[-1]["finish_reason"] == "length"
        for choice in choices[1:-1]:
            assert list(choice["delta"]) == ["content"] and choice["delta"]["content"]
        assert all(choice["finish_reason"] is None for choice in choices[:-1])
    assert {event["object"] for event in events} == {"chat.completion.chunk"}
    assert events[0]["id"].startswith("chatcmpl-")


def test_completion_chunks(client):
    events = events_of(client, COMPLETIONS, n=2)
    for index in (0, 1):
        choices = [e["choices"][0] for e in events if e["choices"][0]["index"] == index]
        assert all(isinstance(choice["text"], str) for choice in choices)
        assert [c["finish_reason"] for c in choices].count("length") == 1
        assert choices[-1]["finish_reason"] == "length"
    assert {event["object"] for event in events} == {"text_completion"}


@pytest.mark.parametrize(
    "options",
    [
        {}, {"n": 3, "temperature": 1, "seed": 5}, {"logprobs": 2}, {"logprobs": 0},
        {"echo": True}, {"echo": True, "logprobs": 1}, {"echo": True, "max_tokens": 0},
        {"echo": True, "max_tokens": 0, "logprobs": 1}, {"stop": ["b"]},
        {"stop": ["aa"], "temperature": 0}, {"min_tokens": 3, "stop": ["a"]},
        {"max_tokens": 1}, {"prompt": ["a", "bb", "ccc"], "echo": True, "logprobs": 0},
        {"prompt": [[5, 6], [7]], "n": 2, "temperature": 2, "seed": 1},
        {"prompt": list(range(3, 103)), "echo": True, "logprobs": 5},
    ],
    ids=str,
)  # fmt: skip
def test_streamed_equals_whole(client, options):
    events = events_of(client, COMPLETIONS, **options)
    whole = client.post(COMPLETIONS, json={**BODIES[COMPLETIONS], **options}).json()
    for choice in whole["choices"]:
        index = choice["index"]
        pieces = [e["choices"][0] for e in events if e["choices"][0]["index"] == index]
        assert content_of(events, index) == choice["text"]
        assert pieces[-1]["finish_reason"] == choice["finish_reason"]
        if choice["logprobs"] is None:
            assert all(piece["logprobs"] is None for piece in pieces)
        else:
            for name, expected in choice["logprobs"].items():
                found = [entry for p in pieces if p["logprobs"] for entry in p["logprobs"][name]]
                assert found == expected, name
    indexes = {e["choices"][0]["index"] for e in events}
    assert indexes == {choice["index"] for choice in whole["choices"]}


def test_events_come_one_by_one(serve, bundles):
    """The first token is here while the rest is being computed."""
    with serve(long_model(bundles)) as server, RawClient(server) as raw:
        raw.send(post_bytes(COMPLETIONS, {**ENDLESS, "stream": True}))
        raw.read_until(b"data: ")
        assert server.metric("vllm:num_requests_running") == 1
        seen = server.metric("vllm:generation_tokens_total")
        for _ in range(20):
            raw.read_until(b"data: ")
        assert seen < 59_000


@BOTH
@pytest.mark.parametrize(
    "options",
    [{"temperature": -1}, {"max_tokens": "x"}, {"model": "no"}, {"top_p": 0}, {"n": 1000}],
    ids=str,
)
def test_refusals_are_no_streams(client, path, options):
    answer = client.post(path, json={**BODIES[path], "stream": True, **options})
    assert_error(answer, 404 if "model" in options else 400)


def test_too_long_prompts_are_no_streams(client):
    for body in ({"prompt": [5] * 256}, {"prompt": [[5], [5] * 300]}, {"prompt": ""}):
        assert_error(client.post(COMPLETIONS, json={**body, "stream": True}), 400, "prompt")


def test_silent_streams_are_pinged(serve, bundles):
    """All text could still become the stop string, so none is sent; comments are."""
    body = {**ENDLESS, "stop": ["a" * 4000], "max_tokens": 3000, "stream": True}
    with serve(long_model(bundles), "--event-ping", "0.05") as server:
        text = server.post(COMPLETIONS, body).text
    comments = [line for line in text.split("\n") if line.startswith(":")]
    assert comments and len(comments) < 200
    assert len(content_of(parse_events(text))) == 3000


def test_nothing_is_held_back_needlessly(client):
    """A letter that could begin the stop string waits for one token; no longer."""
    letter = content_of(events_of(client, COMPLETIONS, max_tokens=1))
    events = events_of(client, COMPLETIONS, stop=[letter + "!"], max_tokens=6)
    assert content_of(events) == letter * 6
    assert sum(1 for event in events if event["choices"][0]["text"]) >= 5


@BOTH
def test_a_stream_leaves_the_connection_usable(fixed, path):
    with RawClient(fixed) as raw:
        for _ in range(3):
            raw.send(post_bytes(path, {**BODIES[path], "stream": True}))
            assert parse_events(raw.read_answer().body.decode())
        assert raw.pending == b""


def test_many_streams_at_once(fixed):
    raws = [RawClient(fixed) for _ in range(64)]
    for i, raw in enumerate(raws):
        body = {**BODIES[COMPLETIONS], "max_tokens": 1 + i, "stream": True,
                "stream_options": {"include_usage": True}}  # fmt: skip
        raw.send(post_bytes(COMPLETIONS, body))
    begin = time.monotonic()
    for i, raw in enumerate(raws):
        events = parse_events(raw.read_answer().body.decode())
        assert events[-1]["usage"]["completion_tokens"] == 1 + i
        raw.close()
    assert time.monotonic() - begin < 20
