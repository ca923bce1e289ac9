"""Sampling parameters over HTTP, on logits that are known: A 5, B 4, C 3, D -1, others 0."""

import concurrent.futures
import math

import pytest
from raw_http import assert_error, client_of
from served_models import A, B, C, broken_model, fixed_model

COMPLETIONS = "/v1/completions"
D = 103
LOGITS = {A: 5.0, B: 4.0, C: 3.0, D: -1.0}
NAMES = {}  # the text of each


@pytest.fixture(scope="module")
def client(serve, bundles):
    with serve(fixed_model(bundles)) as server, client_of(server) as client:
        for token in LOGITS:
            NAMES[token] = client.post("/detokenize", json={"tokens": [token]}).json()["prompt"]
        yield client


def sample(client, **options):
    """Texts of the choices."""
    body = {"prompt": [D], "max_tokens": 1, **options}
    answer = client.post(COMPLETIONS, json=body)
    assert answer.status_code == 200, answer.text
    return [choice["text"] for choice in answer.json()["choices"]]


def best(client, **options):
    (text,) = sample(client, temperature=0, **options)
    return {name: token for token, name in NAMES.items()}.get(text, text)


# ---- smp-tiny-temperature ----


@pytest.mark.parametrize("temperature", [0, 1e-300, 5e-324, 1e-12, 1e-5, 0.0001, 0.01])
def test_tiny_temperatures_are_greedy(client, temperature):
    assert sample(client, temperature=temperature, max_tokens=20, n=4) == [NAMES[A] * 20] * 4


@pytest.mark.parametrize(
    "options",
    [{"top_p": 1e-9}, {"top_p": 5e-324}, {"top_k": 1}, {"min_p": 1}, {"top_k": 1, "top_p": 1e-9},
     {"min_p": 1, "top_k": 1, "top_p": 1e-9}],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("temperature", [0.5, 2, 100, 1e300])
def test_filters_keep_the_best(client, options, temperature):
    expected = [NAMES[A]] * 16
    if temperature == 1e300 and "top_k" not in options:
        # All are as likely as the best, to the last bit: any of them may stay.
        assert len(sample(client, temperature=temperature, n=16, **options)) == 16
    else:
        assert sample(client, temperature=temperature, n=16, **options) == expected


@pytest.mark.parametrize("top_k", [0, -1, 310, 2**31 - 1])
def test_filters_that_are_off(client, top_k):
    plain = sample(client, seed=3, n=32, temperature=2)
    assert sample(client, seed=3, n=32, temperature=2, top_k=top_k, min_p=0, top_p=1) == plain
    assert len(set(plain)) > 3


def test_top_k_keeps_k(client):
    texts = set(sample(client, temperature=5, top_k=3, n=128, seed=1))
    assert texts == {NAMES[A], NAMES[B], NAMES[C]}


# ---- smp-logit-bias-range ----


def test_logit_bias(client):
    assert best(client, logit_bias={str(C): 100}) == C
    assert best(client, logit_bias={str(A): -100}) == B
    assert best(client, logit_bias={str(A): -100, str(B): -100.0}) == C
    assert best(client, logit_bias={str(B): 1.5}) == B
    for nothing in ({}, None, {str(B): 0}, {str(B): 0.5}):
        assert best(client, logit_bias=nothing) == A
    every = {str(token): 0 for token in range(259)} | {str(D): 50}
    assert best(client, logit_bias=every) == D


# ---- smp-penalty-scope ----


def test_presence_and_frequency_count_the_output_alone(client):
    prompt = [A] * 10
    assert best(client, prompt=prompt, presence_penalty=2) == A
    assert best(client, prompt=prompt, frequency_penalty=2) == A

    def chain(**options):
        (text,) = sample(client, prompt=prompt, temperature=0, max_tokens=4, **options)
        return text

    names = {NAMES[token]: letter for token, letter in ((A, "A"), (B, "B"), (C, "C"))}
    read = lambda text: "".join(names.get(c, "?") for c in text)  # noqa: E731
    # A 5, B 4 -> A; A 3, B 4 -> B; A 3, B 2, C 3 -> A (of equals the lowest id); once only.
    assert read(chain(presence_penalty=2)) == "ABAA"
    # A 5 -> 3 -> B 4 -> 2 -> A 3 (before C 3) -> 1 -> C 3.
    assert read(chain(frequency_penalty=2)) == "ABAC"
    assert read(chain(presence_penalty=-2)) == "AAAA"


def test_repetition_counts_prompt_and_output_once(client):
    # A 5 / 1.5 = 3.3 < B 4, however often it occurs.
    for prompt in ([A], [A] * 10):
        assert best(client, prompt=prompt, repetition_penalty=1.5) == B
        assert best(client, prompt=prompt, repetition_penalty=1.2) == A
    # A negative logit is multiplied: D -1 becomes -4, behind the zeros.
    options = {"prompt": [A, B, C, D], "repetition_penalty": 4.0, "allowed_token_ids": [A, D]}
    assert best(client, **options) == A
    # All three. A 3.3, B 4 -> B; A 3.3, B 2.7 - 4, C 3 -> A; A 3.3 - 4, C 3 -> C.
    body = {"prompt": [A], "repetition_penalty": 1.5, "presence_penalty": 2, "temperature": 0,
            "frequency_penalty": 2, "max_tokens": 3}  # fmt: skip
    assert sample(client, **body) == [NAMES[B] + NAMES[A] + NAMES[C]]


def test_choices_have_their_own_counts(client):
    texts = sample(client, temperature=0, n=4, max_tokens=4, frequency_penalty=2)
    assert len(set(texts)) == 1
    again = sample(client, temperature=0, n=4, max_tokens=4, frequency_penalty=2)
    assert again == texts


def test_logprobs_come_before_penalties_and_biases(client):
    options = {"temperature": 0, "max_tokens": 3, "logprobs": 4}

    def logprobs(**more):
        body = {"prompt": [D], **options, **more}
        return client.post(COMPLETIONS, json=body).json()["choices"][0]["logprobs"]

    plain, changed = logprobs(), logprobs(frequency_penalty=2, logit_bias={str(C): 50})
    assert changed["top_logprobs"] == plain["top_logprobs"]
    top = plain["top_logprobs"][0]
    assert top[NAMES[A]] - top[NAMES[B]] == pytest.approx(1, abs=1e-4)
    assert top[NAMES[B]] - top[NAMES[C]] == pytest.approx(1, abs=1e-4)
    total = sum(math.exp(v) for v in LOGITS.values())
    possible = [5 - math.log(total + count) for count in (255, 296)]
    assert any(top[NAMES[A]] == pytest.approx(value, abs=1e-3) for value in possible)
    assert changed["token_logprobs"][0] == pytest.approx(top[NAMES[C]])


# ---- smp-seed-rules ----


def test_no_seed_is_random(client):
    one_by_one = {sample(client, max_tokens=12, temperature=1)[0] for _ in range(20)}
    assert len(one_by_one) > 15
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = pool.map(lambda _: sample(client, max_tokens=12, temperature=1)[0], range(20))
        assert len(set(answers)) > 15


@pytest.mark.parametrize("seed", [0, -1, 7, 2**63 - 1, -(2**63)])
def test_seeds_alone_and_under_load(client, seed):
    alone = sample(client, seed=seed, n=4, max_tokens=12, temperature=1)
    assert len(set(alone)) == 4
    (first,) = sample(client, seed=seed, max_tokens=12, temperature=1)
    assert first == alone[0]
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        jobs = [
            pool.submit(sample, client, seed=seed, n=4, max_tokens=12, temperature=1)
            if i % 2 else pool.submit(sample, client, max_tokens=40, n=8)
            for i in range(20)
        ]  # fmt: skip
        assert all(job.result() == alone for job in jobs[1::2])
    assert sample(client, seed=seed ^ 1, n=4, max_tokens=12, temperature=1) != alone


def test_seeds_over_restarts(serve, bundles, client):
    options = {"seed": 7, "n": 3, "max_tokens": 12, "temperature": 1}
    expected = sample(client, **options)
    random = sample(client, max_tokens=30, temperature=1)
    with serve(fixed_model(bundles)) as server, client_of(server) as other:
        assert sample(other, **options) == expected
        assert sample(other, max_tokens=30, temperature=1) != random


# ---- bans, and -inf ----


def test_bans_and_bad_words(client):
    assert best(client, allowed_token_ids=[B, C]) == B
    assert best(client, bad_words=[NAMES[A]]) == B
    assert best(client, bad_words=[NAMES[A]], allowed_token_ids=[A, C]) == C
    body = {"prompt": [D], "max_tokens": 1, "logprobs": 5, "temperature": 1, "top_k": 1,
            "logit_bias": {str(A): -100}}  # fmt: skip
    answer = client.post(COMPLETIONS, json=body)
    assert "Infinity" not in answer.text and "NaN" not in answer.text
    logprobs = answer.json()["choices"][0]["logprobs"]
    assert logprobs["tokens"] == [NAMES[B]]
    assert len(logprobs["top_logprobs"][0]) == 5


def test_ids_without_a_token_never_come(client):
    texts = sample(client, temperature=50, n=128, max_tokens=8, logprobs=5, seed=2)
    assert len(texts) == 128
    body = {"prompt": "a", "max_tokens": 1, "logprobs": True, "top_logprobs": 20}
    chat = {**body, "messages": [{"role": "user", "content": "a"}], "temperature": 50, "n": 64}
    answer = client.post("/v1/chat/completions", json=chat).json()
    for choice in answer["choices"]:
        for entry in choice["logprobs"]["content"]:
            assert len(entry["top_logprobs"]) == 20
            assert all(isinstance(top["bytes"], list) for top in entry["top_logprobs"])


# ---- requests whose logits are broken ----


def test_broken_logits_end_their_request_alone(serve, bundles):
    with serve(broken_model(bundles)) as server, client_of(server) as client:
        for stream in (False, True):
            body = {"prompt": "a", "max_tokens": 3, "stream": stream}
            for _ in range(3):
                answer = client.post(COMPLETIONS, json=body)
                if answer.status_code == 200:  # a stream that had begun
                    assert '"error"' in answer.text and "[DONE]" not in answer.text
                else:
                    assert "finite" in assert_error(answer, 500)
        assert server.metric("vllm:request_success_total", finished_reason="error") == 6
        assert server.metric("vllm:num_requests_running") == 0
        assert server.metric("vllm:kv_cache_usage_perc") == 0
        assert client.get("/health").status_code == 200
        assert "finish_reason=error" in server.log()
        # Such blocks are no prefix of others.
        assert server.metric("vllm:prefix_cache_hits_total") == 0
