"""Keys and cross-origin access."""

import signal
import subprocess
import time
from pathlib import Path

import pytest
from raw_http import RawClient, assert_error, client_of

KEY, OTHER_KEY = "k-example", "k-other-0123456789"
ORIGIN = "https://app.example"
CHAT = "/v1/chat/completions"
BODY = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
PREFLIGHT = {
    "Origin": ORIGIN,
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization,content-type",
}
KEYED = [
    ("POST", "/v1/completions"), ("POST", CHAT), ("GET", "/v1/models"), ("POST", "/tokenize"),
    ("POST", "/detokenize"),
]  # fmt: skip
OPEN = ["/health", "/ready", "/version", "/metrics", "/", "/openapi.json"]


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


@pytest.fixture(scope="module")
def keyed(serve, chat_bundle):
    with serve(chat_bundle, "--api-key", KEY, f"--api-key={OTHER_KEY}", "--cors-origin", ORIGIN,
               "--log-level", "debug") as server:  # fmt: skip
        yield server


@pytest.fixture(scope="module")
def client(keyed):
    with client_of(keyed) as client:
        yield client


@pytest.mark.parametrize("key", [KEY, OTHER_KEY])
@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "Bearer  "])
def test_right_keys(client, key, scheme):
    headers = {"Authorization": f"{scheme} {key}"}
    assert client.post(CHAT, json=BODY, headers=headers).status_code == 200
    assert client.get("/v1/models", headers=headers).status_code == 200


@pytest.mark.parametrize(
    "authorization",
    [
        None, "", "Bearer", KEY, f"Basic {KEY}", f"Token {KEY}", f"Bearer{KEY}",
        f"Bearer {KEY[:-1]}", f"Bearer {KEY}x", f"Bearer {KEY.upper()}", f"Bearer {KEY},{KEY}",
        f"Bearer {KEY} {KEY}", f'Bearer "{KEY}"', f"Bearer Bearer {KEY}", "Bearer wrong",
        f"Bearer {KEY}\xa0", "Bearer " + "x" * 10_000,
    ],
    ids=lambda value: str(value)[:20],
)  # fmt: skip
def test_wrong_keys(client, authorization):
    headers = {} if authorization is None else {"Authorization": authorization.encode("latin-1")}
    for method, path in KEYED:
        answer = client.request(method, path, headers={**headers, "Origin": ORIGIN}, json=BODY)
        assert_error(answer, 401)
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert answer.headers["access-control-allow-origin"] == ORIGIN
        assert KEY not in answer.text


@pytest.mark.parametrize("lines", [
    [f"Bearer {KEY}", f"Bearer {KEY}"], [f"Bearer {KEY}", "Bearer wrong"],
    ["Bearer wrong", f"Bearer {KEY}"],
])  # fmt: skip
def test_two_authorization_lines(client, lines):
    answer = client.get("/v1/models", headers=[("Authorization", line) for line in lines])
    assert_error(answer, 401)


def test_a_key_of_a_megabyte(keyed):
    with RawClient(keyed) as raw:
        raw.send(b"GET /v1/models HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ")
        try:
            raw.send(b"x" * 1_000_000 + b"\r\n\r\n")
        except OSError:
            pass  # closed while it was sent; the answer is there all the same
        assert_error(raw.read_answer(), 431)
    assert keyed.get("/health").status_code == 200


@pytest.mark.parametrize("path", OPEN)
def test_open_paths(client, path):
    for headers in ({}, bearer("wrong")):
        assert client.get(path, headers=headers).status_code == 200
        assert client.head(path, headers=headers).status_code == 200


def test_neither_paths_nor_models_are_told_without_a_key(client):
    answer = client.post("/v1/completions", json={"model": "another", "prompt": "a"})
    assert_error(answer, 401)
    assert_error(client.get("/v1/nothing"), 404)


@pytest.mark.parametrize("path", [CHAT, "/v1/models", "/tokenize"])
def test_preflight_needs_no_key(client, path):
    answer = client.options(path, headers=PREFLIGHT)
    assert answer.status_code in (200, 204) and answer.content == b""
    assert answer.headers["access-control-allow-origin"] == ORIGIN
    method = "GET" if path == "/v1/models" else "POST"
    assert method in answer.headers["access-control-allow-methods"].split(", ")
    allowed = answer.headers["access-control-allow-headers"].lower().split(", ")
    assert {"authorization", "content-type"} <= set(allowed)
    assert "access-control-allow-credentials" not in answer.headers
    assert "origin" in answer.headers["vary"].lower()


def test_preflight_of_the_official_browser_client(client):
    asked = "authorization,content-type,x-stainless-arch,x-stainless-lang,x-stainless-os"
    answer = client.options(CHAT, headers={**PREFLIGHT, "Access-Control-Request-Headers": asked})
    allowed = answer.headers["access-control-allow-headers"].lower().replace(" ", "").split(",")
    assert set(asked.split(",")) <= set(allowed) or "*" in allowed


@pytest.mark.parametrize("origin", ["https://evil.example", "null", ORIGIN + ".evil.example",
                                    ORIGIN[:-1], ORIGIN.upper(), "*"])  # fmt: skip
def test_other_origins_are_not_allowed(client, origin):
    answers = [
        client.options(CHAT, headers={**PREFLIGHT, "Origin": origin}),
        client.post(CHAT, json=BODY, headers={**bearer(KEY), "Origin": origin}),
        client.get("/health", headers={"Origin": origin}),
    ]
    for answer in answers:
        assert "access-control-allow-origin" not in answer.headers
        assert "access-control-allow-credentials" not in answer.headers


def test_streams_and_errors_carry_the_origin(client):
    headers = {**bearer(KEY), "Origin": ORIGIN}
    for body, status in (({**BODY, "stream": True}, 200), ({}, 400), ({"model": "no"}, 404)):
        answer = client.post(CHAT, json=body, headers=headers)
        assert answer.status_code == status
        assert answer.headers["access-control-allow-origin"] == ORIGIN


def test_refusals_of_the_http_layer_carry_origin_and_id(keyed):
    with RawClient(keyed) as raw:
        lines = f"Origin: {ORIGIN}\r\nX-Request-Id: mine\r\nContent-Length: 99999999\r\n\r\n"
        raw.send(f"POST {CHAT} HTTP/1.1\r\nHost: a\r\n{lines}".encode())
        answer = raw.read_answer()
    assert_error(answer, 413)
    assert answer.headers["access-control-allow-origin"] == ORIGIN
    assert answer.headers["x-request-id"] == "mine"


def test_no_cross_origin_access_by_default(server):
    for method in ("OPTIONS", "GET"):
        with client_of(server) as client:
            answer = client.request(method, "/v1/models", headers=PREFLIGHT)
        assert answer.status_code in (200, 204)
        assert "access-control-allow-origin" not in answer.headers


def test_any_origin(serve, chat_bundle):
    with serve(chat_bundle, "--cors-origin", "*") as server:
        answer = server.get("/v1/models", headers={"Origin": "https://any.example"})
        assert answer.headers["access-control-allow-origin"] == "*"
        assert "access-control-allow-credentials" not in answer.headers


def test_keys_stay_secret(keyed, client):
    assert_error(client.get("/v1/models", headers=bearer("wrong-key-shown")), 401)
    command = Path(f"/proc/{keyed.process.pid}/cmdline").read_bytes().decode()
    shown = subprocess.run(
        ["ps", "-o", "args=", "-p", str(keyed.process.pid)], capture_output=True, text=True
    ).stdout
    for text in (command, shown, keyed.log(), client.get("/metrics").text):
        for key in (KEY, OTHER_KEY, "wrong-key-shown"):
            assert key not in text
    assert "serve" in command


def test_key_of_the_environment(serve, chat_bundle):
    with serve(chat_bundle, env={"PINFER_API_KEY": KEY}) as server:
        assert_error(server.get("/v1/models"), 401)
        assert server.get("/v1/models", headers=bearer(KEY)).status_code == 200


def run_serve(pinfer, bundle, *flags):
    command = [pinfer, "serve", bundle, "--port", "0", *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=20)


@pytest.mark.parametrize("key", ["", " ", "\t\n"])
def test_an_empty_key_is_refused(pinfer, chat_bundle, key):
    result = run_serve(pinfer, chat_bundle, "--api-key", key)
    assert result.returncode in (1, 2)
    assert result.stderr.splitlines()[-1].startswith("pinfer: error: ")
    assert "key" in result.stderr and "listening" not in result.stderr


def test_an_empty_key_beside_a_good_one_is_refused(pinfer, chat_bundle):
    result = run_serve(pinfer, chat_bundle, "--api-key", KEY, "--api-key", "")
    assert result.returncode in (1, 2) and "empty" in result.stderr
    assert KEY not in result.stderr


def test_an_empty_key_of_the_environment_is_refused(serve, chat_bundle):
    """A secret that was not filled in must not open the server."""
    server = serve(chat_bundle, wait=False, env={"PINFER_API_KEY": ""})
    while server.process.poll() is None and "listening" not in server.log():
        time.sleep(0.01)
    listened = "listening" in server.log()
    code = server.stop()
    assert not listened and code in (1, 2) and "key" in server.log()


@pytest.mark.parametrize("content", [None, "", "\n\n", "# only a comment\n"])
def test_key_files_without_a_key_are_refused(pinfer, chat_bundle, tmp_path, content):
    path = tmp_path / "keys"
    if content is not None:
        path.write_text(content)
    result = run_serve(pinfer, chat_bundle, "--api-key-file", str(path))
    assert result.returncode == 1
    assert str(path) in result.stderr.splitlines()[-1]


def wait_for_log(server, text: str, seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while text not in server.log():
        assert time.monotonic() < end, server.log()
        time.sleep(0.01)


def test_key_files_are_read_again(serve, chat_bundle, tmp_path):
    path = tmp_path / "keys"
    path.write_text(f"# team\n  first-key \r\n\n{OTHER_KEY}\n")
    flags = ("--api-key-file", str(path), "--api-key", KEY)
    with serve(chat_bundle, *flags) as server, client_of(server) as client:

        def status(key):
            return client.get("/v1/models", headers=bearer(key)).status_code

        assert [status(key) for key in ("first-key", OTHER_KEY, KEY)] == [200] * 3
        assert status("# team") == 401
        path.write_text("second-key\n")
        server.process.send_signal(signal.SIGHUP)
        wait_for_log(server, "read again")
        assert [status(key) for key in ("first-key", OTHER_KEY, KEY, "second-key")] == [
            401, 401, 200, 200,
        ]  # fmt: skip
        path.write_text("")  # half written: the old keys stay
        server.process.send_signal(signal.SIGHUP)
        wait_for_log(server, "the old ones stay")
        assert status("second-key") == 200 and status("wrong") == 401
        assert "second-key" not in server.log()


def test_a_warning_when_others_can_connect(serve, chat_bundle):
    with serve(chat_bundle, "--host", "0.0.0.0") as server:
        assert "WARNING" in server.log() and "API key" in server.log()
    with serve(chat_bundle, "--host", "0.0.0.0", "--api-key", KEY) as server:
        assert "WARNING" not in server.log()
    with serve(chat_bundle) as server:
        assert "WARNING" not in server.log()
