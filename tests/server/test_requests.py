"""What requests may ask for: lengths, prompts, echo, log-probabilities, choices."""

import time

import pytest
from raw_http import assert_error, client_of

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
L = 256  # the context of the bundle
MESSAGES = [{"role": "user", "content": "Hi"}]
GREEDY = {"temperature": 0, "ignore_eos": True}


@pytest.fixture(scope="module")
def client(server):
    with client_of(server) as client:
        yield client


def complete(client, **body):
    answer = client.post(COMPLETIONS, json={**GREEDY, **body})
    assert answer.status_code == 200, answer.text
    return answer.json()


# ---- prompt bounds ----


@pytest.mark.parametrize("size", [L, L + 1, 20 * L, 4000 * L])
def test_prompts_beyond_the_context(client, size):
    chat = {"messages": [{"role": "user", "content": "a" * size}]}
    for path, body, param in (
        (COMPLETIONS, {"prompt": [5] * size}, "prompt"),
        (COMPLETIONS, {"prompt": "a" * size}, "prompt"),
        (COMPLETIONS, {"prompt": [[5], [5] * size]}, "prompt"),
        (COMPLETIONS, {"prompt": [5] * size, "max_tokens": 0, "echo": True}, "prompt"),
        (CHAT, chat, "messages"),
    ):
        begin = time.monotonic()
        answer = client.post(path, json=body)
        assert time.monotonic() - begin < 5
        message = assert_error(answer, 400, param)
        assert answer.json()["error"]["code"] == "context_length_exceeded"
        assert str(L) in message and (path == CHAT or str(size) in message)


@pytest.mark.parametrize(
    ("size", "asked", "given"),
    [
        (L - 1, 1, 1), (L - 1, 5, 1), (L - 10, 9, 9), (L - 10, 10, 10), (L - 10, 11, 10),
        (L - 10, 2**31 - 1, 10), (L - 10, None, 10), (1, None, 16), (1, "absent", 16),
        (L - 10, "absent", 10), (L - 1, 2**31 - 1, 1), (1, 2**31 - 1, L - 1),
    ],
)  # fmt: skip
def test_lengths_of_completions(client, size, asked, given):
    extra = {} if asked == "absent" else {"max_tokens": asked}
    answer = complete(client, prompt=[5] * size, **extra)
    assert answer["usage"]["completion_tokens"] == given
    assert answer["usage"]["prompt_tokens"] == size
    assert answer["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("extra", [{}, {"max_tokens": None}, {"max_completion_tokens": 2**31 - 1}])
def test_lengths_of_chats(client, extra):
    answer = client.post(CHAT, json={"messages": MESSAGES, **GREEDY, **extra}).json()
    assert answer["usage"]["total_tokens"] == L
    assert answer["choices"][0]["finish_reason"] == "length"


def test_the_newer_name_of_max_tokens_counts(client):
    for body, count in (({"max_tokens": 5, "max_completion_tokens": 2}, 2),
                        ({"max_completion_tokens": 3}, 3)):  # fmt: skip
        answer = client.post(CHAT, json={"messages": MESSAGES, **GREEDY, **body}).json()
        assert answer["usage"]["completion_tokens"] == count


@pytest.mark.parametrize("prompt", ["", [""], [], ["a", ""], ["", "a"], [[]], [[5], []]], ids=str)
@pytest.mark.parametrize("stream", [False, True])
def test_prompts_without_tokens(client, prompt, stream):
    assert_error(client.post(COMPLETIONS, json={"prompt": prompt, "stream": stream}), 400, "prompt")


def test_short_prompts(client):
    assert complete(client, prompt=" ", max_tokens=1)["usage"]["prompt_tokens"] == 1
    assert complete(client, prompt=[[5]], max_tokens=1)["usage"]["prompt_tokens"] == 1


def test_truncated_prompts(client):
    prompt = [5 + i % 200 for i in range(300)]
    for kept, size in ((10, 10), (1, 1), (255, 255), (-1, 255)):
        answer = complete(client, prompt=prompt, max_tokens=1, truncate_prompt_tokens=kept)
        assert answer["usage"]["prompt_tokens"] == size
        same = complete(client, prompt=prompt[-size:], max_tokens=1)
        assert answer["choices"][0]["text"] == same["choices"][0]["text"]
    body = {"prompt": prompt, "truncate_prompt_tokens": 256}
    assert_error(client.post(COMPLETIONS, json=body), 400)
    chat = {"messages": MESSAGES, "truncate_prompt_tokens": 5, "max_tokens": 1}
    assert client.post(CHAT, json=chat).json()["usage"]["prompt_tokens"] == 5


# ---- echo and log-probabilities ----


@pytest.mark.parametrize("logprobs", [0, 1, 5])
@pytest.mark.parametrize("prompt", ["The sky is blue", ["The sky", "a"], [[5, 6, 7], [8]]], ids=str)
def test_echo_without_tokens(client, logprobs, prompt):
    prompts = prompt if isinstance(prompt, list) else [prompt]
    answer = complete(client, prompt=prompt, max_tokens=0, echo=True, logprobs=logprobs)
    assert answer["usage"]["completion_tokens"] == 0
    assert answer["usage"]["total_tokens"] == answer["usage"]["prompt_tokens"]
    for choice, expected in zip(answer["choices"], prompts, strict=True):
        found = choice["logprobs"]
        assert len({len(listed) for listed in found.values()}) == 1
        assert len(found["tokens"]) == len(expected)
        assert found["token_logprobs"][0] is None and found["top_logprobs"][0] is None
        assert all(value <= 0 for value in found["token_logprobs"][1:])
        assert choice["finish_reason"] == "length"
        if isinstance(expected, str):
            assert choice["text"] == expected
        for top in found["top_logprobs"][1:]:
            # The token itself is always listed.
            assert top is None if logprobs == 0 else logprobs <= len(top) <= logprobs + 1


def test_echo_with_one_token(client):
    base = {"prompt": "The sky", "echo": True, "logprobs": 1}
    scored = complete(client, max_tokens=0, **base)["choices"][0]
    longer = complete(client, max_tokens=1, **base)["choices"][0]
    assert len(longer["logprobs"]["tokens"]) == len(scored["logprobs"]["tokens"]) + 1
    assert longer["logprobs"]["token_logprobs"][:-1] == scored["logprobs"]["token_logprobs"]
    assert longer["text"].startswith("The sky") and len(longer["text"]) > len("The sky")
    plain = complete(client, prompt="The sky", max_tokens=1)["choices"][0]
    assert longer["text"] == "The sky" + plain["text"] and plain["logprobs"] is None


def test_zero_tokens_without_echo(client):
    for body in (
        {"prompt": "a", "max_tokens": 0},
        {"prompt": "a", "max_tokens": 0, "stream": True},
    ):
        assert_error(client.post(COMPLETIONS, json=body), 400, "max_tokens")


@pytest.mark.parametrize("size", [15, 16, 17, 32, 33])
def test_prompt_logprobs_of_cached_prompts(client, size):
    """The same entries, however much of the prompt is cached."""
    prompt = [10 + size + i for i in range(size)]

    def scored(logprobs, ids=prompt):
        body = {"prompt": ids, "max_tokens": 1, "echo": True, "logprobs": logprobs}
        found = complete(client, cache_salt=str(size), **body)
        cached = found["usage"]["prompt_tokens_details"]["cached_tokens"]
        assert cached % 16 == 0 and cached < len(ids)
        return found["choices"][0]["logprobs"]

    first = scored(2)
    assert len(first["tokens"]) == size + 1 and first["token_logprobs"][0] is None
    complete(client, prompt=prompt, max_tokens=1, cache_salt=str(size))
    longer = scored(1, [*prompt, 5, 6])
    for _ in range(2):
        again = scored(2)
        assert again["tokens"] == first["tokens"]
        assert again["token_logprobs"][1:] == pytest.approx(first["token_logprobs"][1:], abs=1e-4)
    wide = scored(5)
    assert all(5 <= len(top) <= 6 for top in wide["top_logprobs"][1:])
    assert wide["token_logprobs"][1:] == pytest.approx(first["token_logprobs"][1:], abs=1e-4)
    shared = longer["token_logprobs"][1:size]
    assert shared == pytest.approx(first["token_logprobs"][1:size], abs=1e-4)


@pytest.mark.parametrize("top", [0, 1, 20])
def test_chat_logprobs(client, top):
    body = {"messages": MESSAGES, "max_tokens": 3, "logprobs": True, "top_logprobs": top, **GREEDY}
    content = client.post(CHAT, json=body).json()["choices"][0]["logprobs"]["content"]
    assert len(content) == 3
    for entry in content:
        assert set(entry) == {"token", "logprob", "bytes", "top_logprobs"}
        assert len(entry["top_logprobs"]) == top
        values = [other["logprob"] for other in entry["top_logprobs"]]
        assert values == sorted(values, reverse=True)
        assert all(0 <= byte < 256 for byte in entry["bytes"])
    without = client.post(CHAT, json={**body, "logprobs": None, "top_logprobs": None}).json()
    assert without["choices"][0]["logprobs"] is None


def test_the_sampled_token_is_among_the_alternatives(client):
    """As OpenAI has it: "there may be up to logprobs+1 elements"."""
    body = {"prompt": "a", "max_tokens": 20, "temperature": 5, "logprobs": 1, "seed": 1}
    found = complete(client, **body)["choices"][0]["logprobs"]
    for token, top in zip(found["tokens"], found["top_logprobs"], strict=True):
        assert token in top


# ---- choices ----


def test_choices(client):
    answer = complete(client, prompt=["a", "b"], n=3, max_tokens=5, temperature=1)
    assert [choice["index"] for choice in answer["choices"]] == list(range(6))
    assert answer["usage"]["prompt_tokens"] == 2  # of each prompt once
    assert answer["usage"]["completion_tokens"] == 30
    solo = complete(client, prompt="b", max_tokens=5)["choices"][0]["text"]
    both = complete(client, prompt=["a", "b"], n=2, max_tokens=5)["choices"]
    assert [choice["text"] for choice in both[2:]] == [solo] * 2


def test_most_choices(client):
    assert len(complete(client, prompt="a", n=128, max_tokens=1)["choices"]) == 128
    assert len(complete(client, prompt=["a"] * 1024, max_tokens=1)["choices"]) == 1024
    assert_error(client.post(COMPLETIONS, json={"prompt": ["a"] * 1025}), 400, "prompt")


def test_best_of(client):
    assert complete(client, prompt="a", best_of=1, max_tokens=1)
    assert_error(client.post(COMPLETIONS, json={"prompt": "a", "best_of": 2}), 400, "best_of")


# ---- the rest ----


def test_answers_have_the_documented_fields(client):
    answer = complete(client, prompt="a", max_tokens=1)
    assert set(answer) == {"id", "object", "created", "model", "choices", "usage"}
    assert set(answer["choices"][0]) == {"index", "text", "logprobs", "finish_reason"}
    assert abs(answer["created"] - time.time()) < 100
    timed = complete(client, prompt="a", max_tokens=3, timings=True)
    assert timed["timings"]["decode_ms"] >= 0
    chat = client.post(CHAT, json={"messages": MESSAGES, "max_tokens": 1}).json()
    assert chat["object"] == "chat.completion"
    assert set(chat["choices"][0]["message"]) == {"role", "content", "refusal"}


def test_timings_of_streams(client):
    body = {"prompt": "a", "max_tokens": 2, "stream": True, "timings": True}
    assert '"timings"' in client.post(COMPLETIONS, json=body).text


def test_served_names(serve, chat_bundle):
    names = ("--served-model-name", "first", "--served-model-name", "second/x:1")
    with serve(chat_bundle, *names) as server, client_of(server) as client:
        assert [m["id"] for m in client.get("/v1/models").json()["data"]] == ["first", "second/x:1"]
        for name, found in ((None, "first"), ("first", "first"), ("second/x:1", "second/x:1")):
            body = {"model": name, "prompt": "a", "max_tokens": 1}
            assert client.post(COMPLETIONS, json=body).json()["model"] == found
        assert_error(client.post(COMPLETIONS, json={"model": "tied", "prompt": "a"}), 404, "model")
        assert 'model_name="first"' in client.get("/metrics").text


def test_final_messages_may_be_continued(client):
    messages = [*MESSAGES, {"role": "assistant", "content": "Hello"}]

    def ids(**options):
        return client.post("/tokenize", json={"messages": messages, **options}).json()["tokens"]

    continued = ids(continue_final_message=True, add_generation_prompt=False)
    ended = ids(add_generation_prompt=False)
    assert ended[: len(continued)] == continued and len(continued) < len(ended)
    assert len(ids()) > len(ended)
    body = {"messages": messages, "continue_final_message": True, "add_generation_prompt": True}
    assert_error(client.post(CHAT, json=body), 400)
