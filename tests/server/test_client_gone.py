"""Clients that vanish: their requests leave the engine, and only theirs."""

import random
import re
import time

import pytest
from raw_http import RawClient, assert_error, client_of, post_bytes
from served_models import ENDLESS, LONG_CONTEXT, long_model

COMPLETIONS = "/v1/completions"
BODY = {"prompt": "a", "max_tokens": 1}
RUNNING, WAITING = "vllm:num_requests_running", "vllm:num_requests_waiting"
LONG_PROMPT = {"prompt": [5] * (LONG_CONTEXT - 2000), "max_tokens": 1000}


@pytest.fixture(scope="module")
def server(serve, bundles):
    """Two requests run at a time, long prompts in chunks of 64 tokens."""
    flags = ("--max-num-seqs", "2", "--max-num-batched-tokens", "64", "--max-queue", "4",
             "--max-queue-tokens", "70000", "--no-enable-prefix-caching")  # fmt: skip
    with serve(long_model(bundles), *flags) as server:
        yield server


def gauges(server) -> tuple[float, float]:
    with client_of(server) as client:
        text = client.get("/metrics").text
    return tuple(
        float(re.search(rf"^{name}{{.*}} (\S+)$", text, re.M)[1]) for name in (RUNNING, WAITING)
    )


def wait_for_gauges(server, running: int, waiting: int, seconds: float = 10) -> float:
    begin = time.monotonic()
    while gauges(server) != (running, waiting):
        assert time.monotonic() - begin < seconds, (gauges(server), running, waiting)
        time.sleep(0.005)
    return time.monotonic() - begin


SENT: list[RawClient] = []


@pytest.fixture(autouse=True)
def idle_behind_each_test(server):
    yield
    while SENT:
        SENT.pop().close()
    wait_for_gauges(server, 0, 0)
    assert server.post(COMPLETIONS, BODY).status_code == 200


def send(server, body, request_id="x", *headers: str, **options) -> RawClient:
    lines = (f"X-Request-Id: {request_id}", *headers)
    SENT.append(RawClient(server, **options))
    return SENT[-1].send(post_bytes(COMPLETIONS, body, *lines))


def wait_for_log_line(server, request_id: str) -> str:
    end = time.monotonic() + 10
    while not (found := re.search(rf"^.*request_id={request_id} .*$", server.log(), re.M)):
        assert time.monotonic() < end, server.log()[-2000:]
        time.sleep(0.005)
    return found[0]


def leave(raw: RawClient, way: str) -> None:
    raw.close() if way == "FIN" else raw.reset()


WAYS = pytest.mark.parametrize("way", ["FIN", "RST"])


@WAYS
@pytest.mark.parametrize("kind", ["stream", "whole", "prefill", "many", "pipelined"])
def test_running_requests_end(server, way, kind):
    body = {
        "stream": {**ENDLESS, "stream": True},
        "whole": ENDLESS,
        "prefill": LONG_PROMPT,
        "many": {**ENDLESS, "n": 2, "stream": True},
        "pipelined": ENDLESS,
    }[kind]
    name = f"{kind}-{way}"
    aborted = server.metric("vllm:request_success_total", finished_reason="abort")
    raw = send(server, body, name)
    if kind == "pipelined":
        raw.send(post_bytes(COMPLETIONS, body))  # unread bytes hide the end
    wait_for_gauges(server, 2 if kind == "many" else 1, 0)
    if kind in ("stream", "many"):
        for _ in range(3):
            raw.read_until(b"data: ")
    leave(raw, way)
    assert wait_for_gauges(server, 0, 0) < 2
    line = wait_for_log_line(server, name)
    assert "cancelled=true" in line and "status=499" in line
    found = server.metric("vllm:request_success_total", finished_reason="abort")
    assert found == aborted + (2 if kind == "many" else 1)


@WAYS
@pytest.mark.parametrize("stream", [False, True])
def test_waiting_requests_are_never_started(server, way, stream):
    running = [send(server, ENDLESS) for _ in range(2)]
    wait_for_gauges(server, 2, 0)
    name = f"waiting-{way}-{stream}"
    raw = send(server, {**ENDLESS, "prompt": [5] * 1000, "stream": stream}, name)
    wait_for_gauges(server, 2, 1)
    leave(raw, way)
    assert wait_for_gauges(server, 2, 0) < 2
    assert "cancelled=true" in wait_for_log_line(server, name)
    for other in running:
        other.close()


def test_prompts_that_were_never_computed_are_not_counted(server):
    running = [send(server, ENDLESS) for _ in range(2)]
    wait_for_gauges(server, 2, 0)
    before = server.metric("vllm:prompt_tokens_total")
    waiting = send(server, {**ENDLESS, "prompt": [5] * 1000})
    wait_for_gauges(server, 2, 1)
    waiting.close()
    wait_for_gauges(server, 2, 0)
    found = server.metric("vllm:prompt_tokens_total")
    for other in running:
        other.close()
    assert found == before


@pytest.mark.parametrize("body", [
    {**BODY, "max_tokens": 3000}, {**BODY, "max_tokens": 3000, "stream": True},
    {**BODY, "prompt": [5] * 3000},
], ids=["whole", "stream", "prefill"])  # fmt: skip
def test_half_closed_clients_are_served(server, body):
    raw = send(server, {**body, "ignore_eos": True}).half_close()
    answer = raw.read_answer()
    assert answer.status == 200
    assert b'"finish_reason":"length"' in answer.body
    raw.close()


@WAYS
def test_half_closed_clients_may_go(server, way):
    for stream in (False, True):
        raw = send(server, {**ENDLESS, "stream": stream}).half_close()
        wait_for_gauges(server, 1, 0)
        leave(raw, way)
        assert wait_for_gauges(server, 0, 0) < 2


def test_only_the_dead_are_cancelled(server):
    body = {**ENDLESS, "max_tokens": 2500, "stream": True}
    alive = send(server, body)
    dead = send(server, {**ENDLESS, "stream": True})
    dead.read_until(b"data: ")
    dead.reset()
    text = alive.read_until(b"[DONE]").decode()
    assert text.count('"text":"a"') > 1 and text.count("a") >= 2500
    alive.close()


def test_a_full_queue(server):
    raws = [send(server, {**ENDLESS, "stream": True}) for _ in range(2)]
    wait_for_gauges(server, 2, 0)
    raws += [send(server, {**ENDLESS, "stream": True}) for _ in range(4)]
    wait_for_gauges(server, 2, 4)
    for body in (BODY, {**BODY, "stream": True}, {"prompt": ["a", "b"], "max_tokens": 1}):
        answer = server.post(COMPLETIONS, body)
        assert "queue" in assert_error(answer, 503)
        assert int(answer.headers["retry-after"]) >= 1
        assert answer.headers["content-type"] == "application/json"
    assert gauges(server) == (2, 4)  # a refused request leaves nothing
    assert server.get("/health").status_code == 200
    raws.pop().close()
    wait_for_gauges(server, 2, 3)
    raws.append(send(server, ENDLESS))
    wait_for_gauges(server, 2, 4)
    for raw in raws:
        raw.close()


def test_a_queue_that_is_full_of_tokens(server):
    raws = [send(server, ENDLESS) for _ in range(2)]
    wait_for_gauges(server, 2, 0)
    raws += [send(server, {**LONG_PROMPT, "prompt": [5] * 60_000})]
    wait_for_gauges(server, 2, 1)
    answer = server.post(COMPLETIONS, {**LONG_PROMPT, "prompt": [5] * 20_000})
    assert "token" in assert_error(answer, 503)
    assert "retry-after" in answer.headers
    raws += [send(server, BODY)]  # a small one still fits
    wait_for_gauges(server, 2, 2)
    for raw in raws:
        raw.close()


@pytest.mark.parametrize(
    "body", [{"n": 8}, {"prompt": ["a"] * 7}, {"prompt": ["a"] * 2, "n": 4}], ids=str
)
def test_requests_larger_than_the_queue(server, body):
    """Eight choices where two run and four wait: to try again is no use."""
    assert server.post(COMPLETIONS, {**BODY, **body}).status_code in (200, 400)


@pytest.mark.parametrize("count", [60, pytest.param(500, marks=pytest.mark.slow)])
def test_vanishing_at_random_moments(serve, bundles, count):
    """No block, slot or queue place is lost."""
    flags = ["--max-num-seqs", "8", "--max-num-batched-tokens", "128"]
    flags += ["--max-model-len", "8192", "--num-blocks", "520"]
    choose = random.Random(count)
    with serve(long_model(bundles), *flags) as server, client_of(server) as client:
        usual = {"prompt": "abc", "max_tokens": 30, "temperature": 0, "ignore_eos": True}
        expected = client.post(COMPLETIONS, json=usual).json()["choices"]
        raws: list[RawClient] = []
        SENT.clear()
        for i in range(count):
            body = {
                "prompt": [5] * choose.choice([1, 17, 100, 3000]),
                "max_tokens": choose.choice([1, 10, 500]), "n": choose.choice([1, 1, 3]),
                "stream": choose.random() < 0.7, "presence_penalty": 0.5, "ignore_eos": True,
                "logprobs": 1,
            }  # fmt: skip
            raws.append(send(server, body))
            if i % 10 == 0:
                assert client.post(COMPLETIONS, json=usual).json()["choices"] == expected
            while len(raws) > 16 or (raws and choose.random() < 0.4):
                leave(raws.pop(choose.randrange(len(raws))), choose.choice(["FIN", "RST"]))
        for raw in raws:
            raw.close()
        wait_for_gauges(server, 0, 0)
        assert server.metric("vllm:kv_cache_usage_perc") == 0
        largest = {"prompt": [7] * 8190, "max_tokens": 2}
        assert client.post(COMPLETIONS, json=largest).status_code == 200
        assert client.post(COMPLETIONS, json=usual).json()["choices"] == expected
