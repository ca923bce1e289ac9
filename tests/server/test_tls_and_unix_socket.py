"""TLS and unix sockets."""

import os
import signal
import socket
import ssl
import stat
import subprocess
import time

import httpx
import pytest
from raw_http import HEALTH, RawClient, post_bytes
from served_models import ENDLESS, long_model
from server_process import parse_events

COMPLETIONS = "/v1/completions"
BODY = {"prompt": "a", "max_tokens": 1}


def make_certificate(folder, name: str):
    """(certificate, key) for 127.0.0.1, signed by itself."""
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
               "-nodes", "-days", "2", "-subj", f"/CN={name}", "-addext",
               "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    return make_certificate(folder, "first"), make_certificate(folder, "second")


@pytest.fixture(scope="module")
def tls_server(serve, bundles, certificates):
    certificate, key = certificates[0]
    flags = ("--tls-cert", str(certificate), "--tls-key", str(key), "--header-timeout", "0.5")
    with serve(long_model(bundles), *flags) as server:
        assert server.url.startswith("https://")
        yield server


@pytest.fixture(scope="module")
def trusting(certificates):
    return ssl.create_default_context(cafile=str(certificates[0][0]))


@pytest.fixture
def client(tls_server, trusting):
    with httpx.Client(base_url=tls_server.url, verify=trusting, timeout=30) as client:
        yield client


def test_requests_over_tls(client):
    assert client.get("/health").json() == {"status": "ok"}
    body = {"prompt": "a", "max_tokens": 20, "temperature": 0}
    text = client.post(COMPLETIONS, json=body).json()["choices"][0]["text"]
    events = parse_events(client.post(COMPLETIONS, json={**body, "stream": True}).text)
    assert "".join(event["choices"][0]["text"] for event in events) == text
    large = client.post(COMPLETIONS, json={**BODY, "foo": "x" * 3_000_000})
    assert large.status_code == 200


def wait_for(condition, seconds: float = 10):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("way", ["FIN", "RST"])
@pytest.mark.parametrize("stream", [False, True])
def test_vanished_clients(tls_server, trusting, client, way, stream):
    raw = RawClient(tls_server)
    raw.socket = trusting.wrap_socket(raw.socket, server_hostname="127.0.0.1")
    raw.send(post_bytes(COMPLETIONS, {**ENDLESS, "stream": stream}))

    def running():
        return 'engine="0"} 1\n' in next(
            line + "\n" for line in client.get("/metrics").text.splitlines()
            if line.startswith("vllm:num_requests_running{")
        )  # fmt: skip

    wait_for(running)
    raw.close() if way == "FIN" else raw.reset()
    wait_for(lambda: not running(), 3)


@pytest.mark.parametrize("data", [b"", HEALTH, b"\x16\x03\x01", b"\0" * 500])
def test_what_is_no_tls(tls_server, client, data):
    with RawClient(tls_server) as raw:
        raw.send(data)
        begin = time.monotonic()
        raw.read_all()
        assert time.monotonic() - begin < 5 and b"ok" not in raw.pending
    assert client.get("/health").status_code == 200


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
def test_old_versions_are_refused(tls_server, version):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = version
    with socket.create_connection(("127.0.0.1", tls_server.port), timeout=10) as plain:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            context.wrap_socket(plain)


def test_certificates_are_read_again(serve, chat_bundle, certificates, tmp_path):
    (first, first_key), (second, second_key) = certificates
    certificate, key = tmp_path / "cert", tmp_path / "key"
    certificate.write_bytes(first.read_bytes())
    key.write_bytes(first_key.read_bytes())

    def shown():
        text = ssl.get_server_certificate(("127.0.0.1", server.port))
        return text.strip()

    with serve(chat_bundle, "--tls-cert", str(certificate), "--tls-key", str(key)) as server:
        assert shown() == first.read_text().strip()
        certificate.write_bytes(second.read_bytes())  # the key is still the other one's
        server.process.send_signal(signal.SIGHUP)
        wait_for(lambda: "the old ones stay" in server.log())
        assert shown() == first.read_text().strip()
        key.write_bytes(second_key.read_bytes())
        server.process.send_signal(signal.SIGHUP)
        wait_for(lambda: "read again" in server.log())
        assert shown() == second.read_text().strip()


@pytest.mark.parametrize("wrong", ["cert", "key", "other-key", "no-key", "no-cert", "garbage"])
def test_wrong_files_are_refused(pinfer, chat_bundle, certificates, tmp_path, wrong):
    (first, first_key), (_, second_key) = certificates
    (tmp_path / "garbage").write_text("-----BEGIN CERTIFICATE-----\nx\n")
    flags = {
        "cert": ("--tls-cert", tmp_path / "none", "--tls-key", first_key),
        "key": ("--tls-cert", first, "--tls-key", tmp_path / "none"),
        "other-key": ("--tls-cert", first, "--tls-key", second_key),
        "no-key": ("--tls-cert", first),
        "no-cert": ("--tls-key", first_key),
        "garbage": ("--tls-cert", tmp_path / "garbage", "--tls-key", first_key),
    }[wrong]
    command = [str(part) for part in (pinfer, "serve", chat_bundle, "--port", "0", *flags)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=20)
    assert result.returncode == 1
    assert "--tls-" in result.stderr.splitlines()[-1]


# ---- unix sockets ----


def connect(path) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(10)
    client.connect(str(path))
    return client


def test_a_unix_socket(serve, bundles, tmp_path):
    path = tmp_path / "socket"
    with serve(long_model(bundles), "--unix-socket", str(path)) as server:
        assert f"unix:{path}" in server.log()
        assert stat.S_IMODE(os.stat(path).st_mode) & 0o077 == 0
        transport = httpx.HTTPTransport(uds=str(path))
        with httpx.Client(transport=transport, base_url="http://pinfer", timeout=30) as client:
            assert client.get("/health").status_code == 200
            text = client.post(COMPLETIONS, json={**BODY, "stream": True}).text
            assert parse_events(text)

            def running():
                lines = client.get("/metrics").text.splitlines()
                line = next(line for line in lines if "num_requests_running{" in line)
                return float(line.rsplit(" ", 1)[1])

            gone = connect(path)
            gone.sendall(post_bytes(COMPLETIONS, ENDLESS))
            wait_for(running)
            gone.close()
            wait_for(lambda: not running(), 3)
            half = connect(path)
            half.sendall(post_bytes(COMPLETIONS, {**ENDLESS, "max_tokens": 500}))
            half.shutdown(socket.SHUT_WR)
            answer = b""
            while data := half.recv(65536):
                answer += data
            assert b"200 OK" in answer and b'"completion_tokens":500' in answer
    assert not path.exists()


def test_a_stale_socket_is_taken_over(serve, chat_bundle, tmp_path):
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with serve(chat_bundle, "--unix-socket", str(path)):
        connect(path).close()
    assert not path.exists()


def refused(pinfer, bundle, path) -> str:
    command = [str(part) for part in (pinfer, "serve", bundle, "--unix-socket", path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=20)
    assert result.returncode == 1, result.stderr
    last = result.stderr.splitlines()[-1]
    assert last.startswith("pinfer: error: ") and "--unix-socket" in last
    return last


def test_a_live_socket_is_left_alone(pinfer, serve, chat_bundle, tmp_path):
    path = tmp_path / "socket"
    with serve(chat_bundle, "--unix-socket", str(path)):
        assert "another server" in refused(pinfer, chat_bundle, path)
        connect(path).close()


def test_paths_that_cannot_be_had(pinfer, chat_bundle, tmp_path):
    file = tmp_path / "file"
    file.write_text("precious")
    refused(pinfer, chat_bundle, file)
    assert file.read_text() == "precious"
    refused(pinfer, chat_bundle, tmp_path)
    refused(pinfer, chat_bundle, tmp_path / "none" / "socket")
    refused(pinfer, chat_bundle, tmp_path / ("x" * 200))
