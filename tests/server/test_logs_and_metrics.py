"""What the server says of itself: log lines and Prometheus metrics."""

import json
import re
import time

import pytest
from prometheus_client.parser import text_string_to_metric_families
from raw_http import RawClient, client_of, post_bytes
from served_models import fixed_model

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
SECRET = "SECRETWORD"
BODY = {"prompt": SECRET, "max_tokens": 2, "temperature": 0}


@pytest.fixture(scope="module")
def json_server(serve, bundles):
    with serve(fixed_model(bundles), "--log-format", "json", "--log-level", "debug") as server:
        yield server


@pytest.fixture(scope="module")
def client(json_server):
    with client_of(json_server) as client:
        yield client


def log_lines(server) -> list[dict]:
    lines = [json.loads(line) for line in server.log().splitlines()]
    for line in lines:
        assert {"time", "level"} <= set(line)
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"])
        assert line["level"] in ("debug", "info", "warning", "error")
    return lines


def wait_for_lines(server, count: int) -> list[str]:
    """Lines of requests come after their answers."""
    end = time.monotonic() + 10
    while len(lines := server.log().splitlines()) < count:
        assert time.monotonic() < end, lines
        time.sleep(0.01)
    return lines


def line_of(server, request_id: str) -> dict:
    end = time.monotonic() + 10
    while True:
        found = [line for line in log_lines(server) if line.get("request_id") == request_id]
        if found:
            assert len(found) == 1
            return found[0]
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("stream", [False, True])
def test_a_log_line_says_what_was_done(json_server, client, stream):
    name = f"done-{stream}"
    body = {**BODY, "stream": stream}
    client.post(COMPLETIONS, json=body, headers={"X-Request-Id": name})
    line = line_of(json_server, name)
    assert line["method"] == "POST" and line["path"] == COMPLETIONS and line["status"] == 200
    assert line["prompt_tokens"] == len(SECRET) and line["output_tokens"] == 2
    assert line["finish_reason"] == "length" and line["level"] == "info"
    for time_name in ("total_ms", "queue_ms", "prefill_ms", "decode_ms"):
        assert 0 <= line[time_name] < 60_000
    assert line["total_ms"] >= line["prefill_ms"] + line["decode_ms"] - 1


def test_log_lines_of_what_failed(json_server, client):
    for name, path, body, status in (
        ("f1", COMPLETIONS, b"{", 400), ("f2", "/nothing", b"", 404),
        ("f3", COMPLETIONS, b'{"model":"x"}', 404), ("f4", "/health", b"", 405),
    ):  # fmt: skip
        client.post(path, content=body, headers={"X-Request-Id": name})
        line = line_of(json_server, name)
        assert line["status"] == status and line["path"] == path
        assert "finish_reason" not in line


@pytest.mark.parametrize("lines", [b"Content-Length: 99999999", b"X: " + b"a" * 20_000, b"bad"],
                         ids=["413", "431", "400"])  # fmt: skip
def test_refusals_of_the_http_layer_are_logged(json_server, client, lines):
    before = len(json_server.log().splitlines())
    with RawClient(json_server) as raw:
        raw.send(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\n" + lines + b"\r\n\r\n")
        status = raw.read_answer().status
    client.get("/version")
    while len(json_server.log().splitlines()) == before:
        time.sleep(0.01)
    assert status in [line.get("status") for line in log_lines(json_server)[before:]]


def test_unknown_fields_are_logged_at_debug_level(json_server, client):
    client.post(COMPLETIONS, json={**BODY, "surprising_field": 1})
    assert "surprising_field" in json_server.log()


def test_logs_hold_no_content(json_server, client):
    messages = [{"role": "user", "content": SECRET}]
    for path, body in (
        (COMPLETIONS, BODY), (CHAT, {"messages": messages, "max_tokens": 1}),
        (COMPLETIONS, {**BODY, "stop": SECRET, "stream": True}), (COMPLETIONS, {**BODY, "n": -1}),
        ("/tokenize", {"prompt": SECRET}), (CHAT, {"messages": messages, "user": SECRET}),
        (COMPLETIONS, {"prompt": SECRET * 100}), (COMPLETIONS, {"model": SECRET}),
    ):  # fmt: skip
        client.post(path, json=body)
    client.get(f"/health?key={SECRET}", headers={"X-Other": SECRET})
    client.post(COMPLETIONS, content=b'{"prompt":"' + SECRET.encode() + b"\xff")
    client.post(COMPLETIONS, json=BODY, headers={"X-Request-Id": "last-one"})
    line_of(json_server, "last-one")
    assert SECRET not in json_server.log()


def test_requests_are_logged_if_asked(serve, bundles):
    flags = ("--log-requests", "--log-level", "debug")
    with serve(fixed_model(bundles), *flags) as server:
        server.post(COMPLETIONS, BODY)
        assert SECRET in server.log()
    with serve(fixed_model(bundles), "--log-requests") as server:  # not at level info
        server.post(COMPLETIONS, BODY)
        assert SECRET not in server.log()


def test_hostile_ids_and_paths_stay_on_one_line(serve, bundles):
    for flags in ((), ("--log-format", "json")):
        with serve(fixed_model(bundles), *flags) as server:
            before = len(server.log().splitlines())
            with RawClient(server) as raw:
                raw.send(b"GET /\xff\x80%0a" + b"a" * 5000 + b' HTTP/1.1\r\nHost: a\r\n'
                         b'X-Request-Id: "}\\n{\r\n\r\n')  # fmt: skip
                assert raw.read_answer().status == 404
            server.get("/version")
            lines = wait_for_lines(server, before + 2)[before:]
            assert len(lines) == 2 and all(len(line) < 1000 for line in lines)
            if flags:
                assert json.loads(lines[0])["request_id"] == '"}\\n{'


def test_text_lines(serve, bundles):
    with serve(fixed_model(bundles)) as server:
        before = len(server.log().splitlines())
        server.post(COMPLETIONS, BODY, headers={"X-Request-Id": "mine"})
        lines = wait_for_lines(server, before + 1)
    (line,) = [line for line in lines if "request_id=mine" in line]
    fields = dict(part.split("=", 1) for part in line.split() if "=" in part)
    assert fields["status"] == "200" and fields["output_tokens"] == "2"
    assert fields["finish_reason"] == "length" and float(fields["total_ms"]) > 0


# ---- metrics ----

SAMPLE = re.compile(
    r'([a-zA-Z_:][\w:]*)(?:\{((?:[a-zA-Z_]\w*="(?:[^"\\\n]|\\[\\"n])*",?)*)\})? (\S+)'
)


def parse_metrics(text: str) -> dict[str, list[tuple[dict, float]]]:
    """A strict reader of the text format; checks types, order and histograms."""
    assert text.endswith("\n")
    samples: dict[str, list] = {}
    kind, family = {}, None
    for line in text.splitlines():
        if line.startswith("# HELP "):
            family = line.split(" ")[2]
            assert family not in kind, f"{family} comes twice"
        elif line.startswith("# TYPE "):
            _, _, name, kind_name = line.split(" ")
            assert name == family and kind_name in ("counter", "gauge", "histogram")
            kind[name] = kind_name
        else:
            found = SAMPLE.fullmatch(line)
            assert found, line
            name, labels, value = found.groups()
            base = re.sub("_(bucket|sum|count)$", "", name) if kind[family] == "histogram" else name
            assert base == family, line
            if kind[family] == "counter":
                assert name.endswith("_total")
            pairs = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels or ""))
            samples.setdefault(name, []).append((pairs, float(value)))
    for name, kind_name in kind.items():
        if kind_name == "histogram":
            buckets = samples[f"{name}_bucket"]
            values = [value for _, value in buckets]
            assert values == sorted(values) and buckets[-1][0]["le"] == "+Inf"
            bounds = [float(labels["le"]) for labels, _ in buckets]
            assert bounds == sorted(set(bounds))
            assert samples[f"{name}_count"][0][1] == values[-1]
            assert samples[f"{name}_sum"][0][1] >= 0
    return samples


EXPECTED = """
vllm:num_requests_running vllm:num_requests_waiting vllm:kv_cache_usage_perc
vllm:num_preemptions_total vllm:prompt_tokens_total vllm:generation_tokens_total
vllm:prefix_cache_queries_total vllm:prefix_cache_hits_total vllm:request_success_total
vllm:time_to_first_token_seconds_count vllm:e2e_request_latency_seconds_count
vllm:request_queue_time_seconds_count vllm:request_prefill_time_seconds_count
vllm:request_decode_time_seconds_count vllm:request_inference_time_seconds_count
vllm:request_prompt_tokens_count vllm:request_generation_tokens_count
vllm:request_params_n_count vllm:request_params_max_tokens_count http_requests_total
""".split()


def test_metrics_are_well_formed(client):
    client.post(COMPLETIONS, json=BODY)
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    samples = parse_metrics(answer.text)
    assert set(EXPECTED) <= set(samples)
    for name, listed in samples.items():
        if name.startswith("vllm:"):
            for labels, _ in listed:
                assert labels["model_name"] == "fixed" and labels["engine"] == "0"


def test_metrics_by_prometheus_own_parser(client):
    families = {f.name: f for f in text_string_to_metric_families(client.get("/metrics").text)}
    assert families["vllm:num_requests_running"].type == "gauge"


def test_metrics_count(serve, bundles):
    with serve(fixed_model(bundles)) as server, client_of(server) as client:

        def value(name, **labels):
            listed = parse_metrics(client.get("/metrics").text).get(name, [])
            return sum(v for found, v in listed if labels.items() <= found.items())

        client.post(COMPLETIONS, json={"prompt": [5] * 40, "max_tokens": 3, "n": 2})
        assert value("vllm:generation_tokens_total") == 6
        assert value("vllm:request_success_total", finished_reason="length") == 2
        assert value("vllm:request_generation_tokens_sum") == 6
        assert value("vllm:request_params_n_sum") == 4  # 2 for each choice
        assert value("vllm:request_params_max_tokens_sum") == 6
        assert value("vllm:time_to_first_token_seconds_count") == 2
        assert value("vllm:prefix_cache_queries_total") >= 40
        client.post(COMPLETIONS, json={"prompt": [5] * 40, "max_tokens": 1})
        assert value("vllm:prefix_cache_hits_total") >= 32
        for _ in range(3):
            client.post(COMPLETIONS, content=b"{")
        http = {"method": "POST", "handler": COMPLETIONS}
        assert value("http_requests_total", **http, status="400") == 3
        assert value("http_requests_total", **http, status="200") == 2
        for i in range(50):  # labels are bounded, whatever is asked for
            client.request(f"M{i}", f"/path{i}")
        listed = parse_metrics(client.get("/metrics").text)["http_requests_total"]
        assert len(listed) < 10
        assert value("http_requests_total", method="other", handler="other", status="404") == 50


def test_hostile_names_in_labels(serve, bundles):
    name = 'a"b\\c}'
    with serve(fixed_model(bundles), "--served-model-name", name) as server:
        samples = parse_metrics(server.get("/metrics").text)
    assert samples["vllm:num_requests_running"][0][0]["model_name"] == 'a\\"b\\\\c}'


def test_finished_requests_are_answered_to_those_who_stay(client, json_server):
    """A stream's line comes when it ends, with the bytes that went out."""
    with RawClient(json_server) as raw:
        raw.send(post_bytes(COMPLETIONS, {**BODY, "stream": True}, "X-Request-Id: sized"))
        raw.read_answer()
    assert line_of(json_server, "sized")["bytes"] > 300
