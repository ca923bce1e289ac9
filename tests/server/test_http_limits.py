"""The HTTP layer: framing, sizes, slow clients, versions, ids."""

import json
import time

import pytest
from raw_http import HEALTH, RawClient, assert_error, client_of, post_bytes
from served_models import ENDLESS, long_model

COMPLETIONS = "/v1/completions"
BODY = {"prompt": "a", "max_tokens": 1}
CONTENT = json.dumps(BODY).encode()
POST = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\n"
MB = 1 << 20


@pytest.fixture(scope="module")
def impatient(serve, bundles):
    """Short timeouts, and an answer that does not end."""
    flags = ("--header-timeout", "0.4", "--body-timeout", "0.5", "--write-timeout", "0.5")
    with serve(long_model(bundles), *flags, "--keep-alive-timeout", "0.6") as server:
        yield server


def seconds_until_closed(raw: RawClient) -> float:
    begin = time.monotonic()
    raw.read_all()
    return time.monotonic() - begin


# ---- requests in a row ----


def test_pipelined_requests_are_answered_in_order(server):
    bodies = [{"prompt": "a", "max_tokens": 5 - i} for i in range(4)]
    with RawClient(server) as raw:
        raw.send(b"".join(post_bytes(COMPLETIONS, body) for body in bodies) + HEALTH)
        for body in bodies:
            usage = raw.read_answer().json()["usage"]
            assert usage["completion_tokens"] <= body["max_tokens"]
        assert raw.read_answer().json() == {"status": "ok"}


def test_pipelined_requests_behind_a_stream(server):
    stream = {**BODY, "max_tokens": 20, "stream": True}
    with RawClient(server) as raw:
        raw.send(post_bytes(COMPLETIONS, stream) + HEALTH + post_bytes(COMPLETIONS, b"{"))
        assert raw.read_answer().body.endswith(b"data: [DONE]\n\n")
        assert raw.read_answer().status == 200
        assert_error(raw.read_answer(), 400)
        raw.send(HEALTH)  # an error of the body leaves the connection open
        assert raw.read_answer().status == 200


def test_a_request_in_single_bytes(server):
    with RawClient(server) as raw:
        for byte in post_bytes(COMPLETIONS, BODY):
            raw.send(bytes([byte]))
        assert raw.read_answer().status == 200


def test_half_closed_clients_get_all_answers(server):
    with RawClient(server) as raw:
        raw.send(post_bytes(COMPLETIONS, {**BODY, "max_tokens": 200}) * 3 + HEALTH).half_close()
        for _ in range(4):
            assert raw.read_answer().status == 200
        assert raw.read_all() == b""


# ---- framing ----


@pytest.mark.parametrize(
    "chunks",
    [
        [CONTENT], [CONTENT[i : i + 1] for i in range(len(CONTENT))],
        [CONTENT[:5], CONTENT[5:]],
    ],
    ids=len,
)  # fmt: skip
@pytest.mark.parametrize("extension", [b"", b";name=value", b';name="quo;ted"'])
def test_chunked_bodies(server, chunks, extension):
    body = b"".join(b"%x%b\r\n%b\r\n" % (len(chunk), extension, chunk) for chunk in chunks)
    with RawClient(server) as raw:
        raw.send(POST + b"Transfer-Encoding: chunked\r\n\r\n" + body + b"0\r\nX-Trailer: a\r\n\r\n")
        assert raw.read_answer().status == 200
        raw.send(HEALTH)
        assert raw.read_answer().status == 200


@pytest.mark.parametrize(
    "lines",
    [
        b"Content-Length: -1", b"Content-Length: +29", b"Content-Length: 0x1d",
        b"Content-Length: ", b"Content-Length: 2 9", b"Content-Length: 2.9e1",
        b"Content-Length: 99999999999999999999", b"Content-Length : 29",
        b"Content-Length: 29\r\nContent-Length: 5",
        b"Content-Length: 29\r\nTransfer-Encoding: chunked",
        b"Transfer-Encoding: chunked\r\nContent-Length: 29",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        b"No colon", b": no name", b"X: \0", b"X y: a",
    ],
)  # fmt: skip
def test_doubtful_framing_is_refused(server, lines):
    with RawClient(server) as raw:
        raw.send(POST + lines + b"\r\n\r\n" + HEALTH)
        assert_error(raw.read_answer(), 400)
        assert raw.read_all() == b""  # nothing behind it is taken for a request


@pytest.mark.parametrize("coding", [b"gzip", b"identity", b"chunked, gzip", b"xchunked"])
def test_unknown_codings_cannot_smuggle_requests(server, coding):
    with RawClient(server) as raw:
        raw.send(POST + b"Transfer-Encoding: " + coding + b"\r\n\r\n" + HEALTH)
        answer = raw.read_answer()
        assert answer.status in (400, 501) and answer.headers["connection"] == "close"
        assert raw.read_all() == b""


@pytest.mark.parametrize(
    "chunk",
    [b"zz\r\n", b"-1\r\n", b"\r\n", b"0x5\r\nhello", b"f" * 17 + b"\r\n", b"5\r\nhelloX\r\n"],
)
def test_broken_chunks(server, chunk):
    with RawClient(server) as raw:
        raw.send(POST + b"Transfer-Encoding: chunked\r\n\r\n" + chunk + b"0\r\n\r\n")
        assert_error(raw.read_answer(), 400)
        assert raw.read_all() == b""


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"\0" * 100, b"GET\r\n\r\n",
        b"GET /health\r\n\r\n", b"GET  /health HTTP/1.1\r\n\r\n", b"GET /a b HTTP/1.1\r\n\r\n",
        b"GET /health HTTP/9.9\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /health http/1.1\r\n\r\n", b"\xff\xff / HTTP/1.1\r\n\r\n", b"/ GET HTTP/1.1\r\n\r\n",
    ],
)  # fmt: skip
def test_what_is_no_http(server, data):
    with RawClient(server) as raw:
        raw.send(data)
        assert_error(raw.read_answer(), 400)
        assert raw.read_all() == b""


@pytest.mark.parametrize("lines", [b"", b"Host: a\r\nHost: b\r\n"], ids=["none", "two"])
def test_one_host_line(server, lines):
    with RawClient(server) as raw:
        raw.send(b"GET /health HTTP/1.1\r\n" + lines + b"\r\n")
        assert_error(raw.read_answer(), 400)


def test_absolute_targets(server):
    with RawClient(server) as raw:
        raw.send(b"GET http://a:80/health HTTP/1.1\r\nHost: a\r\n\r\n")
        assert raw.read_answer().status == 200


def test_an_empty_line_before_a_request(server):
    with RawClient(server) as raw:
        raw.send(b"\r\n" + HEALTH)
        assert raw.read_answer().status == 200


# ---- sizes ----


def test_a_body_at_the_limit(server):
    """32 MB are read; one byte more is not, and is told before it is sent."""
    start = b'{"foo":"' + b"a" * (32 * MB - 40)
    body = start + b'","prompt":"a"}'
    body += b" " * (32 * MB - len(body))
    with client_of(server) as client:
        assert client.post(COMPLETIONS, content=body).status_code == 200
        assert_error(client.post(COMPLETIONS, content=body + b" "), 413)
        chunks = (body[i : i + MB] for i in range(0, 40 * MB, MB))
        answer = client.post(COMPLETIONS, content=(chunk or b" " * MB for chunk in chunks))
        assert_error(answer, 413)
    for length in (32 * MB + 1, 2**63, 2**64 - 1):
        with RawClient(server) as raw:
            raw.send(POST + f"Content-Length: {length}\r\n\r\n".encode())
            assert_error(raw.read_answer(), 413)
    with RawClient(server) as raw:
        raw.send(POST + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffff\r\n")
        assert_error(raw.read_answer(), 413)
    assert server.get("/health").status_code == 200


def test_smaller_limit_of_bodies(serve, chat_bundle):
    with serve(chat_bundle, "--max-body", "1") as server:
        fill = b" " * (MB - len(CONTENT))
        assert server.post(COMPLETIONS, CONTENT + fill).status_code == 200
        assert_error(server.post(COMPLETIONS, CONTENT + fill + b" "), 413)


@pytest.mark.parametrize(
    "lines",
    [b"X: " + b"a" * 20_000, b"a" * 20_000 + b": x", b"\r\n".join([b"X: a"] * 300_000)],
    ids=["value", "name", "lines"],
)
def test_long_headers(server, lines):
    with RawClient(server) as raw:
        raw.send(b"GET /health HTTP/1.1\r\nHost: a\r\n" + lines + b"\r\n\r\n")
        assert_error(raw.read_answer(), 431)
        assert raw.read_all() == b""


def test_the_limit_of_headers_is_exact(server):
    """Of many short lines 18 kB pass where 16 kB are the limit."""
    with RawClient(server) as raw:
        raw.send(b"GET /health HTTP/1.1\r\nHost: a\r\n" + b"X: a\r\n" * 3000 + b"\r\n")
        assert_error(raw.read_answer(), 431)


def test_headers_that_come_slowly_are_bounded(server):
    with RawClient(server) as raw:
        raw.send(b"GET /health HTTP/1.1\r\nHost: a\r\n")
        for _ in range(40):
            try:
                raw.send(b"X: " + b"a" * 1000 + b"\r\n")
            except OSError:
                break
        assert_error(raw.read_answer(), 431)


def test_long_urls(server):
    with RawClient(server) as raw:
        raw.send(b"GET /health?" + b"a" * 8000 + b" HTTP/1.1\r\nHost: a\r\n\r\n")
        assert raw.read_answer().status == 200
    with RawClient(server) as raw:
        raw.send(b"GET /health?" + b"a" * 8192 + b" HTTP/1.1\r\nHost: a\r\n\r\n")
        assert_error(raw.read_answer(), 414)
        assert raw.read_all() == b""
    with RawClient(server) as raw:
        raw.send(b"GET /" + b"a" * 100_000)
        assert raw.read_answer().status in (414, 431)


# ---- methods, paths, versions ----


@pytest.mark.parametrize("path", [COMPLETIONS, "/v1/chat/completions", "/tokenize", "/detokenize"])
def test_wrong_methods_of_endpoints(server, path):
    with client_of(server) as client:
        for method in ("GET", "HEAD", "PUT", "DELETE", "PATCH", "TRACE", "FOO"):
            answer = client.request(method, path)
            assert answer.status_code == 405 and "POST" in answer.headers["allow"].split(", ")
            if method == "HEAD":
                assert answer.content == b""
            else:
                assert_error(answer, 405)


def test_wrong_methods_and_paths(server):
    with client_of(server) as client:
        for path in ("/v1/models", "/health", "/ready", "/metrics", "/version", "/"):
            answer = client.post(path, json={})
            assert_error(answer, 405)
            assert answer.headers["allow"].split(", ")[:2] == ["GET", "HEAD"]
        for path in ("/nothing", "/v1", "/v1/completion", "/health/", "/HEALTH"):
            assert_error(client.get(path), 404)
            assert_error(client.post(path, json=BODY), 404)
        assert client.get("/health?a=b&c").status_code == 200


def test_head(server):
    with RawClient(server) as raw, client_of(server) as client:
        for path in ("/health", "/v1/models", "/metrics", "/openapi.json", "/"):
            raw.send(f"HEAD {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            head = raw.read_head()
            assert head.status == 200
            if path != "/metrics":
                length = len(client.get(path).content)
                assert int(head.headers["content-length"]) == length
        raw.send(HEALTH)  # no body came in between
        assert raw.read_answer().json() == {"status": "ok"}


def test_http_1_0(server):
    with RawClient(server) as raw:
        raw.send(b"GET /health HTTP/1.0\r\n\r\n")
        answer = raw.read_answer()
        assert answer.status == 200 and answer.headers["connection"] == "close"
        assert raw.read_all() == b""
    with RawClient(server) as raw:
        for _ in range(2):
            raw.send(b"GET /health HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
            assert raw.read_answer().headers["connection"] == "keep-alive"


def test_streams_of_http_1_0(server):
    """Chunks are unknown there: the stream ends with the connection."""
    with RawClient(server) as raw:
        raw.send(post_bytes(COMPLETIONS, {**BODY, "stream": True}, version="1.0"))
        head = raw.read_head()
        assert "transfer-encoding" not in head.headers and head.headers["connection"] == "close"
        text = raw.read_all()
        assert text.startswith(b"data: {") and text.endswith(b"data: [DONE]\n\n")


def test_connection_close(server):
    for body in (BODY, {**BODY, "stream": True}, b"{"):
        with RawClient(server) as raw:
            raw.send(post_bytes(COMPLETIONS, body, "Connection: close"))
            assert raw.read_answer().headers["connection"] == "close"
            assert raw.read_all() == b""


def test_expect_100_continue(server):
    with RawClient(server) as raw:
        for _ in range(2):
            raw.send(POST + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(CONTENT))
            assert raw.read_head().status == 100
            raw.send(CONTENT)
            assert raw.read_answer().status == 200
    with RawClient(server) as raw:
        raw.send(POST + b"Expect: 100-continue\r\nContent-Length: 99999999\r\n\r\n")
        assert_error(raw.read_first_answer(), 413)


def test_expect_100_continue_of_http_1_0(server):
    with RawClient(server) as raw:
        raw.send(post_bytes(COMPLETIONS, BODY, "Expect: 100-continue", version="1.0"))
        assert raw.read_head().status == 200


def test_bodies_of_strangers_are_not_waited_for(serve, chat_bundle):
    with serve(chat_bundle, "--api-key", "k") as server, RawClient(server, timeout=2) as raw:
        raw.send(POST + b"Content-Length: 30000000\r\nExpect: 100-continue\r\n\r\n")
        assert_error(raw.read_first_answer(), 401)


# ---- ids ----


def test_ids_are_echoed(server):
    with client_of(server) as client:
        for sent in ("a", "req-1", "a" * 128, '"\\{}<script>', "0"):
            for path in ("/health", "/nothing", "/v1/models"):
                headers = {"X-Request-Id": sent}
                assert client.get(path, headers=headers).headers["x-request-id"] == sent


@pytest.mark.parametrize(
    "sent", [b"", b"a" * 129, b"a b", b"a\tb", b"\xff", b"\xc3\xa9", b"a\r\n b"], ids=repr
)
def test_hostile_ids_are_replaced(server, sent):
    with RawClient(server) as raw:
        raw.send(b"GET /health HTTP/1.1\r\nHost: a\r\nX-Request-Id: " + sent + b"\r\n\r\n")
        answer = raw.read_answer()
    assert answer.status == 200
    assert len(answer.headers["x-request-id"]) == 32
    assert answer.headers["x-request-id"].isalnum()


def test_ids_differ(server):
    with client_of(server) as client:
        ids = [client.get("/health").headers["x-request-id"] for _ in range(50)]
        assert len(set(ids)) == 50
        streamed = client.post(COMPLETIONS, json={**BODY, "stream": True},
                               headers={"X-Request-Id": "mine"})  # fmt: skip
        assert streamed.headers["x-request-id"] == "mine"


def test_headers_of_proxies_change_nothing(server):
    headers = {
        "X-Forwarded-For": "1.2.3.4", "X-Forwarded-Proto": "https", "X-Forwarded-Host": "evil",
        "X-Forwarded-Prefix": "/v1", "Forwarded": "for=1.2.3.4", "X-Original-URL": "/metrics",
        "X-Rewrite-URL": "/metrics", "X-HTTP-Method-Override": "POST", "Accept-Encoding": "gzip",
        "Cookie": "a=b", "Range": "bytes=0-1", "If-None-Match": "*", "Upgrade": "h2c",
    }  # fmt: skip
    with client_of(server) as client:
        answer = client.get("/health", headers=headers)
    assert answer.status_code == 200 and answer.json() == {"status": "ok"}
    assert "content-encoding" not in answer.headers


# ---- slow clients ----


@pytest.mark.parametrize("sent", [b"", b"G", HEALTH[:-2]])
def test_slow_headers(impatient, sent):
    with RawClient(impatient) as raw:
        raw.send(sent)
        assert seconds_until_closed(raw) < 4
        assert raw.pending == b"" or b" 408 " in raw.pending.splitlines()[0]


def test_headers_in_drops(impatient):
    """The time is for the whole header: bytes do not extend it."""
    with RawClient(impatient) as raw:
        end = time.monotonic() + 4
        try:
            while time.monotonic() < end:
                raw.send(b"X")
                time.sleep(0.05)
            raise AssertionError("the connection is still open")
        except OSError:
            pass


@pytest.mark.parametrize("lines", [b"Content-Length: 1000", b"Transfer-Encoding: chunked"])
def test_slow_bodies(impatient, lines):
    with RawClient(impatient) as raw:
        raw.send(POST + lines + b"\r\n\r\n")
        end = time.monotonic() + 4
        try:
            while time.monotonic() < end:
                raw.send(b"1\r\n{\r\n" if b"chunked" in lines else b"{")
                time.sleep(0.05)
            raise AssertionError("the connection is still open")
        except OSError:
            pass


def test_silent_connections_are_closed(impatient):
    with RawClient(impatient) as raw:
        raw.send(HEALTH)
        assert raw.read_answer().status == 200
        assert seconds_until_closed(raw) < 4
        assert raw.pending == b""


def test_many_slow_clients_do_not_disturb_others(server):
    raws = [RawClient(server).send(b"GET /health HT") for _ in range(200)]
    raws += [RawClient(server).send(POST + b"Content-Length: 1000\r\n\r\n{") for _ in range(200)]
    with client_of(server) as client:
        client.get("/health")
        for _ in range(20):
            begin = time.monotonic()
            assert client.post(COMPLETIONS, json=BODY).status_code == 200
            assert time.monotonic() - begin < 2
    for raw in raws:
        raw.close()


def test_clients_that_do_not_read_are_cut_off(impatient):
    """Full socket buffers, and a write that does not end in time."""
    body = {**ENDLESS, "n": 8, "stream": True, "logprobs": 5}
    with RawClient(impatient, receive_buffer=4096) as raw:
        raw.send(post_bytes(COMPLETIONS, body))
        raw.read_head()
        end = time.monotonic() + 30
        while "status=499" not in impatient.log():
            assert time.monotonic() < end, "still connected"
            assert impatient.get("/health").elapsed.total_seconds() < 2
            time.sleep(0.1)
        impatient.wait_until_idle()
    assert "cancelled" in impatient.log()
    assert impatient.post(COMPLETIONS, BODY).status_code == 200


@pytest.mark.slow
def test_memory_of_unread_streams_is_bounded(serve, bundles):
    with serve(long_model(bundles), "--write-timeout", "60") as server:
        status = f"/proc/{server.process.pid}/status"

        def rss_mb():
            with open(status) as file:
                return next(int(line.split()[1]) for line in file if "VmRSS" in line) / 1024

        server.post(COMPLETIONS, BODY)
        before = rss_mb()
        body = {**ENDLESS, "n": 16, "stream": True, "logprobs": 5}
        with RawClient(server, receive_buffer=4096) as raw:
            raw.send(post_bytes(COMPLETIONS, body))
            raw.read_head()
            end = time.monotonic() + 50
            highest = before
            while (
                server.metric("vllm:num_requests_running")
                or not server.metric("vllm:generation_tokens_total") > 100
            ):
                highest = max(highest, rss_mb())
                assert time.monotonic() < end, "not cut off at the size of what is unread"
                time.sleep(0.2)
        assert highest - before < 300
