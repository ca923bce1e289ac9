"""/v1/embeddings, from the official client and by hand; and what else such a server answers."""

import base64
import json
import threading

import embedding_models
import numpy as np
import openai
import pytest
from raw_http import assert_error, client_of

EMBEDDINGS = "/v1/embeddings"
HIDDEN, CONTEXT = 64, 256
TEXTS = ["a", "hello world", " white space ", "", "x" * 100]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """(reference, bundle)"""
    return embedding_models.make_bundle("last", tmp_path_factory.mktemp("embedding"))


@pytest.fixture(scope="module")
def embedder(serve, model):
    with serve(model[1]) as started:
        yield started


@pytest.fixture(scope="module")
def client(embedder):
    with client_of(embedder) as opened:
        yield opened


def vectors(answer):
    assert answer.status_code == 200, answer.text
    return [entry["embedding"] for entry in answer.json()["data"]]


def test_the_official_client(embedder, model):
    reference, _ = model
    client = openai.OpenAI(base_url=embedder.url + "/v1", api_key="unused", max_retries=0)
    name = client.models.list().data[0].id
    for options in ({}, {"encoding_format": "float"}):  # base64 unless asked otherwise
        answer = client.embeddings.create(model=name, input=TEXTS, **options)
        assert answer.object == "list" and answer.model == name
        assert [entry.index for entry in answer.data] == list(range(len(TEXTS)))
        for text, entry in zip(TEXTS, answer.data, strict=True):
            assert entry.object == "embedding"
            assert np.abs(np.array(entry.embedding) - reference.embed(text)).max() <= 1e-5
        tokens = sum(len(reference.tokenize(text)) for text in TEXTS)
        assert answer.usage.prompt_tokens == answer.usage.total_tokens == tokens
    short = client.embeddings.create(model=name, input="hello", dimensions=20)
    expected = reference.embed_ids(reference.tokenize("hello"), dimensions=20)
    assert np.abs(np.array(short.data[0].embedding) - expected).max() <= 1e-5
    with pytest.raises(openai.BadRequestError, match="dimensions"):
        client.embeddings.create(model=name, input="hello", dimensions=HIDDEN + 1)
    with pytest.raises(openai.BadRequestError, match="generates no text"):
        client.chat.completions.create(model=name, messages=[{"role": "user", "content": "a"}])


def test_every_kind_of_input(client, model):
    reference, _ = model
    ids = reference.tokenize("hello")
    (expected,) = vectors(client.post(EMBEDDINGS, json={"input": "hello"}))
    for same in (["hello"], ids, [ids]):
        assert vectors(client.post(EMBEDDINGS, json={"input": same})) == [expected]
    body = {"input": "hello", "encoding_format": "base64"}
    (encoded,) = vectors(client.post(EMBEDDINGS, json=body))
    decoded = np.frombuffer(base64.b64decode(encoded, validate=True), dtype="<f4")
    assert decoded.tolist() == np.array(expected, dtype=np.float32).tolist()
    (query,) = vectors(client.post(EMBEDDINGS, json={"input": "hello", "prompt_name": "query"}))
    wanted = reference.embed("hello", embedding_models.PROMPTS["query"])
    assert np.abs(np.array(query) - wanted).max() <= 1e-5


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "input"),
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": {}}, "input"),
        ({"input": 5}, "input"),
        ({"input": [[]]}, "input"),
        ({"input": ["a", 5]}, "input[1]"),
        ({"input": [[5], "a"]}, "input[1]"),
        ({"input": [5, -1]}, "input[1]"),
        ({"input": [5, 100_000]}, "input"),
        ({"input": ["a"] * 1025}, "input"),  # --max-queue
        ({"input": "a", "encoding_format": "hex"}, "encoding_format"),
        ({"input": "a", "dimensions": 0}, "dimensions"),
        ({"input": "a", "dimensions": HIDDEN + 1}, "dimensions"),
        ({"input": "a", "prompt_name": "nothing"}, "prompt_name"),
        ({"input": "a", "prompt_name": 3}, "prompt_name"),
    ],
)
def test_bad_requests_name_the_field(client, body, param):
    assert_error(client.post(EMBEDDINGS, json=body), 400, param)


def test_bounds(client):
    ids = [5] * CONTEXT
    assert len(vectors(client.post(EMBEDDINGS, json={"input": ids}))[0]) == HIDDEN
    for too_long in ([*ids, 5], [[5], [*ids, 5]], "a" * CONTEXT, ["a", "a" * CONTEXT]):
        answer = client.post(EMBEDDINGS, json={"input": too_long})
        message = assert_error(answer, 400, "input")
        assert answer.json()["error"]["code"] == "context_length_exceeded"
        assert str(CONTEXT) in message and str(CONTEXT + 1) in message
    answer = client.post(EMBEDDINGS, json={"input": "a", "model": "another"})
    assert_error(answer, 404, "model")
    assert client.get(EMBEDDINGS).status_code == 405


def test_other_endpoints_name_the_right_one(client, server):
    for path, body in (
        ("/v1/completions", {"prompt": "a"}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}),
    ):
        assert EMBEDDINGS in assert_error(client.post(path, json=body), 400, "model")
    with client_of(server) as generator:
        message = assert_error(generator.post(EMBEDDINGS, json={"input": "a"}), 400, "model")
        assert "/v1/completions" in message
    tokens = client.post("/tokenize", json={"prompt": "a"}).json()
    assert tokens["count"] == 2  # with the end that every text has
    assert client.get("/health").status_code == 200


def test_many_clients_get_what_each_asked_for(embedder, client):
    cases = [[f"text {i}", "x" * (i + 1)] for i in range(12)]
    expected = [vectors(client.post(EMBEDDINGS, json={"input": case})) for case in cases]
    found = [None] * len(cases)

    def ask(i):
        found[i] = vectors(embedder.post(EMBEDDINGS, {"input": cases[i]}))

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(cases))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == expected


def test_metrics_and_log(embedder):
    before = embedder.metric("vllm:request_success_total", finished_reason="stop")
    tokens = embedder.metric("vllm:prompt_tokens_total")
    answer = embedder.post(EMBEDDINGS, {"input": [[5, 6, 7], [8, 9]]})
    assert answer.json()["usage"] == {"prompt_tokens": 5, "total_tokens": 5}
    assert embedder.metric("vllm:request_success_total", finished_reason="stop") == before + 2
    assert embedder.metric("vllm:prompt_tokens_total") == tokens + 5
    assert embedder.metric("vllm:generation_tokens_total") == 0
    assert embedder.metric("vllm:request_prefill_time_seconds_count") >= 2
    assert embedder.metric("http_requests_total", handler=EMBEDDINGS, status="200") >= 1


def test_an_answer_is_as_described(client):
    schemas = client.get("/openapi.json").json()["components"]["schemas"]
    answer = client.post(EMBEDDINGS, json={"input": "a"}).json()
    assert set(answer) == set(schemas["EmbeddingResponse"]["required"])
    assert json.loads(json.dumps(answer)) == answer
