"""Start, health, shutdown."""

import ctypes
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import httpx
import pytest
import tiny_models
from raw_http import HEALTH, RawClient, assert_error, client_of, post_bytes
from served_models import ENDLESS, long_model
from server_process import ServerProcess

from pinfer.export.config import ExportConfig
from pinfer.export.exporter import export

COMPLETIONS = "/v1/completions"
BODY = {"prompt": "a", "max_tokens": 1}
STREAM = {**ENDLESS, "stream": True}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(condition, seconds: float = 20):
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "the condition does not come true"
        time.sleep(0.005)
    return found


class PortServer(ServerProcess):
    """On a given port; ready when wait_until_listening() returns."""

    def __init__(self, program: Path, bundle: Path, port: int, env: dict | None = None) -> None:
        self._log = tempfile.NamedTemporaryFile("w+b", suffix=".log")
        command = [program, "serve", bundle, "--threads", "1", "--port", str(port)]
        self.process = subprocess.Popen(
            command, stderr=self._log, stdin=subprocess.DEVNULL, env={**os.environ, **(env or {})}
        )
        self.url = f"http://127.0.0.1:{port}"


def start_stream(server: ServerProcess, body: dict = STREAM) -> RawClient:
    raw = RawClient(server, timeout=30).send(post_bytes(COMPLETIONS, body))
    raw.read_until(b"data: ")
    return raw


# ---- start ----


def test_flags_are_printed(pinfer, chat_bundle):
    flags = [
        "--port",
        "0",
        "--max-queue",
        "7",
        "--api-key",
        "secret-key",
        "--header-timeout",
        "1.5",
    ]
    result = subprocess.run(
        [pinfer, "serve", chat_bundle, *flags, "--print-config"], capture_output=True, text=True,
        timeout=20, env={**os.environ, "PINFER_MAX_NUM_SEQS": "5", "PINFER_MAX_QUEUE": "9"},
    )  # fmt: skip
    assert result.returncode == 0
    settings = json.loads(result.stdout)
    assert settings["port"] == 0 and settings["header_timeout_s"] == 1.5
    assert settings["max_queue"] == 7 and settings["max_num_seqs"] == 5  # flags beat environment
    assert settings["max_body_mb"] == 32 and settings["host"] == "127.0.0.1"
    assert settings["drain_timeout_s"] == 30 and settings["write_timeout_s"] == 60
    assert "secret-key" not in result.stdout + result.stderr


def failed_start(pinfer, *arguments: str, code: int = 1) -> str:
    command = [str(part) for part in (pinfer, "serve", *arguments)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=20)
    assert result.returncode == code, result.stderr
    last = result.stderr.splitlines()[-1]
    assert last.startswith("pinfer: error: ") and "listening" not in result.stderr
    assert "terminate called" not in result.stderr
    return last


def test_port_in_use(pinfer, chat_bundle, server):
    last = failed_start(pinfer, chat_bundle, "--port", server.port)
    assert str(server.port) in last and "in use" in last


@pytest.mark.parametrize("host", ["no.such.host.invalid", "256.1.1.1", "192.0.2.1"])
def test_hosts_that_cannot_be_had(pinfer, chat_bundle, host):
    failed_start(pinfer, chat_bundle, "--port", "0", "--host", host)


@pytest.mark.parametrize(
    "flags",
    [
        ("--port", "65536"), ("--port", "x"), ("--max-body", "0"), ("--header-timeout", "0"),
        ("--log-format", "xml"), ("--no-such-flag",), ("--drain-timeout", "-1"),
    ],
    ids=str,
)  # fmt: skip
def test_wrong_flags(pinfer, chat_bundle, flags):
    failed_start(pinfer, chat_bundle, *flags, code=2)


@pytest.mark.parametrize("value", ["-1", "0"])
def test_a_server_without_connections_is_refused(serve, chat_bundle, value):
    server = serve(chat_bundle, "--max-connections", value, wait=False)
    wait_for(lambda: server.process.poll() is not None or "listening" in server.log())
    listened = "listening" in server.log()
    assert server.stop() in (1, 2) and not listened


@pytest.mark.parametrize("flag", ["--max-queue", "--max-queue-tokens"])
def test_negative_bounds_are_refused(serve, chat_bundle, flag):
    server = serve(chat_bundle, flag, "-1", wait=False)
    wait_for(lambda: server.process.poll() is not None or "listening" in server.log())
    listened = "listening" in server.log()
    assert server.stop() in (1, 2) and not listened


def broken_bundles(chat_bundle: Path, folder: Path) -> dict[str, Path]:
    def copy(name: str) -> Path:
        target = folder / name
        target.mkdir(parents=True)
        for file in chat_bundle.iterdir():
            if file.is_file():
                (target / file.name).write_bytes(file.read_bytes())
        return target

    made = {"absent": folder / "absent", "empty": folder / "empty"}
    made["empty"].mkdir()
    made["no-manifest"] = copy("no-manifest")
    (made["no-manifest"] / "manifest.json").unlink()
    made["torn-manifest"] = copy("torn-manifest")
    (made["torn-manifest"] / "manifest.json").write_text("{")
    made["short"] = copy("short")
    largest = max(made["short"].iterdir(), key=lambda file: file.stat().st_size)
    largest.write_bytes(largest.read_bytes()[:-1])
    return made


def test_bundles_that_do_not_load(pinfer, chat_bundle, tmp_path):
    for bundle in broken_bundles(chat_bundle, tmp_path).values():
        port = free_port()
        last = failed_start(pinfer, bundle, "--port", port)
        assert bundle.name in last or "manifest" in last
        with pytest.raises(ConnectionRefusedError):
            RawClient(port)


def test_text_bundles_are_refused(pinfer, tmp_path):
    checkpoint = tiny_models.make_checkpoint("tied", tmp_path)
    export(ExportConfig(model=checkpoint, output=tmp_path / "text", only="text"), lambda *_: None)
    assert "no model" in failed_start(pinfer, tmp_path / "text", "--port", "0")


def test_too_small_a_pool_is_refused(pinfer, chat_bundle):
    last = failed_start(pinfer, chat_bundle, "--port", "0", "--num-blocks", "3")
    assert "256" in last and "--num-blocks" in last and "--max-model-len" in last


@pytest.fixture(scope="module")
def slow_loader(tmp_path_factory):
    """A library for LD_PRELOAD whose dlopen() of a bundle's code waits for a file."""
    folder = tmp_path_factory.mktemp("preload")
    source = r"""
    #define _GNU_SOURCE
    #include <dlfcn.h>
    #include <stdlib.h>
    #include <string.h>
    #include <unistd.h>
    #include <sys/mman.h>
    static void wait_for_gate(void) {
      const char* gate = getenv("TEST_GATE");
      while (gate != NULL && access(gate, F_OK) != 0) usleep(1000);
    }
    void* dlopen(const char* name, int flags) {
      static void* (*real)(const char*, int);
      if (real == NULL) real = dlsym(RTLD_NEXT, "dlopen");
      if (name != NULL && strstr(name, "bundle") != NULL) wait_for_gate();
      return real(name, flags);
    }
    void* mmap(void* address, size_t size, int protection, int flags, int file, off_t offset) {
      static void* (*real)(void*, size_t, int, int, int, off_t);
      if (real == NULL) real = dlsym(RTLD_NEXT, "mmap");
      if (file >= 0) {
        char link[64], path[4096] = {0};
        strcpy(link, "/proc/self/fd/");
        char digits[16]; int n = 0;
        for (int f = file; f > 0 || n == 0; f /= 10) digits[n++] = '0' + f % 10;
        size_t end = strlen(link);
        while (n > 0) link[end++] = digits[--n];
        link[end] = 0;
        if (readlink(link, path, sizeof(path) - 1) > 0 && strstr(path, "bundle") != NULL)
          wait_for_gate();
      }
      return real(address, size, protection, flags, file, offset);
    }
    """
    (folder / "preload.c").write_text(source)
    library = folder / "preload.so"
    command = ["gcc", "-shared", "-fPIC", "-O1", "-w", "-o", library, folder / "preload.c", "-ldl"]
    subprocess.run(command, check=True)
    return library


@pytest.fixture
def loading(pinfer, chat_bundle, slow_loader, tmp_path):
    """(server that still loads, the file that lets it go on)"""
    port, gate = free_port(), tmp_path / "gate"
    env = {"LD_PRELOAD": str(slow_loader), "TEST_GATE": str(gate)}
    server = PortServer(pinfer, chat_bundle, port, env)

    def is_open():
        assert server.process.poll() is None, server.log()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    wait_for(is_open)
    yield server, gate
    if server.process.poll() is None:
        server.process.kill()
        server.process.wait()


def test_health_while_loading(loading):
    server, gate = loading
    with client_of(server) as client:
        for path in ("/health", "/ready"):
            assert "loading" in assert_error(client.get(path), 503)
        for path, body in ((COMPLETIONS, BODY), ("/tokenize", {"prompt": "a"})):
            answer = client.post(path, json=body)
            assert_error(answer, 503)
            assert int(answer.headers["retry-after"]) >= 1
        assert_error(client.get("/v1/models"), 503)
        for path in ("/version", "/metrics", "/", "/openapi.json"):
            assert client.get(path).status_code == 200
        assert "listening on" not in server.log()
        gate.touch()
        wait_for(lambda: client.get("/health").status_code == 200)
        # From the first healthy answer on, completions work.
        assert client.post(COMPLETIONS, json=BODY).status_code == 200
        assert client.get("/v1/models").status_code == 200
    assert server.stop() == 0


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_signals_while_loading(loading, sent):
    server, _ = loading
    begin = time.monotonic()
    assert server.stop(sent) == 0
    assert time.monotonic() - begin < 2


def busiest_thread(pid: int) -> int | None:
    """The one that computes: not the first one, which serves the sockets."""
    ticks = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        ticks[int(task.name)] = int((task / "stat").read_text().rsplit(")", 1)[1].split()[11])
    del ticks[pid]
    found = max(ticks, key=ticks.get)
    return found if ticks[found] > 20 else None


def test_health_of_an_engine_that_does_not_move(serve, bundles):
    """Its thread is stopped, as a debugger does it."""
    libc = ctypes.CDLL(None, use_errno=True)
    seize, interrupt, detach, wait_all = 0x4206, 0x4207, 17, 0x40000000
    with serve(long_model(bundles), "--stuck-after", "0.3") as server, client_of(server) as client:
        with start_stream(server):
            thread = wait_for(lambda: busiest_thread(server.process.pid))
            assert client.get("/health").status_code == 200
            if libc.ptrace(seize, thread, None, None) != 0:
                pytest.skip("no permission to trace")
            try:
                assert libc.ptrace(interrupt, thread, None, None) == 0
                os.waitpid(thread, wait_all)
                answer = wait_for(lambda: (a := client.get("/health")).status_code == 503 and a, 10)
                assert "move" in assert_error(answer, 503)
            finally:
                assert libc.ptrace(detach, thread, None, None) == 0
            wait_for(lambda: client.get("/health").status_code == 200, 10)


def test_fifty_rounds_on_one_port(pinfer, chat_bundle):
    port = free_port()
    for i in range(50):
        server = PortServer(pinfer, chat_bundle, port)
        server.wait_until_listening()
        with RawClient(port) as raw:
            raw.send(HEALTH)
            assert raw.read_answer().status == 200
            assert server.stop((signal.SIGTERM, signal.SIGINT)[i % 2]) == 0  # with a connection


# ---- shutdown ----


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_running_requests_may_end(serve, bundles, sent):
    """Four streams run and four requests wait; new ones are refused."""
    body = {**STREAM, "max_tokens": 4000, "stream_options": {"include_usage": True}}
    flags = ("--max-num-seqs", "4", "--drain-timeout", "60")
    with serve(long_model(bundles), *flags) as server:
        raws = [start_stream(server, body) for _ in range(4)]
        raws += [RawClient(server).send(post_bytes(COMPLETIONS, body)) for _ in range(4)]
        early = RawClient(server)  # connected, but silent
        wait_for(lambda: server.metric("vllm:num_requests_waiting") == 4)
        server.process.send_signal(sent)
        wait_for(lambda: "shutting down" in server.log())
        with client_of(server) as client:
            for path in ("/health", "/ready"):
                assert "shutting down" in assert_error(client.get(path), 503)
            answer = client.post(COMPLETIONS, json=BODY)
            assert_error(answer, 503)
            assert "retry-after" in answer.headers and answer.headers["connection"] == "close"
        assert_error(early.send(post_bytes(COMPLETIONS, BODY)).read_answer(), 503)
        for raw in raws:
            assert b'"completion_tokens":4000' in raw.read_until(b"data: [DONE]\n\n")
        assert server.process.wait(5) == 0


def test_streams_beyond_the_deadline_get_an_error(serve, bundles):
    with serve(long_model(bundles), "--drain-timeout", "0.3") as server:
        raws = [start_stream(server) for _ in range(3)]
        whole = RawClient(server).send(post_bytes(COMPLETIONS, ENDLESS))
        wait_for(lambda: server.metric("vllm:num_requests_running") == 4)
        begin = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        for raw in raws:
            text = raw.read_all()
            assert b'data: {"error":' in text and b"[DONE]" not in text
            assert text.endswith(b"0\r\n\r\n"), text[-100:]
        assert_error(whole.read_answer(), 503)
        assert server.process.wait(5) == 0
        assert time.monotonic() - begin < 0.3 + 1


def test_the_second_signal_ends_at_once(serve, bundles):
    server = serve(long_model(bundles))
    raws = [start_stream(server) for _ in range(4)]
    server.process.send_signal(signal.SIGTERM)
    wait_for(lambda: "shutting down" in server.log())
    begin = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    code = server.process.wait(5)
    assert time.monotonic() - begin < 0.5
    assert code in (0, 1)  # not a crash
    for raw in raws:
        raw.close()


def test_clients_that_do_not_read_do_not_hold_up_the_end(serve, bundles):
    flags = ("--drain-timeout", "0.3", "--write-timeout", "60")
    with serve(long_model(bundles), *flags) as server:
        body = {**STREAM, "n": 8, "logprobs": 5}
        raw = RawClient(server, receive_buffer=4096).send(post_bytes(COMPLETIONS, body))
        raw.read_head()
        wait_for(lambda: server.metric("vllm:generation_tokens_total") > 8000)
        begin = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(10) == 0
        assert time.monotonic() - begin < 0.3 + 1.2
        raw.close()


def test_idle_connections_do_not_hold_up_the_end(serve, chat_bundle):
    with serve(chat_bundle) as server:
        raws = [RawClient(server) for _ in range(50)]
        for raw in raws[:25]:
            raw.send(HEALTH)
            raw.read_answer()
        begin = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - begin < 1
        for raw in raws:
            assert raw.read_all() == b""
            raw.close()


def test_a_long_text_does_not_hold_up_the_end(serve, chat_bundle):
    """Its client has gone, and nothing can break off the tokenizer."""
    text = json.dumps({"prompt": "a" * 40_000_000})
    with serve(chat_bundle, "--max-body", "64") as server, client_of(server) as client:
        with pytest.raises(httpx.TimeoutException):
            client.post("/tokenize", content=text, timeout=1)
        assert client.get("/health").status_code == 200
        begin = time.monotonic()
        assert server.stop(signal.SIGTERM) == 0
        assert time.monotonic() - begin < 5


def test_sighup_does_not_end_the_server(serve, bundles):
    with serve(long_model(bundles)) as server:
        raw = start_stream(server)
        for _ in range(3):
            server.process.send_signal(signal.SIGHUP)
        wait_for(lambda: "read again" in server.log())
        raw.read_until(b"data: ")
        raw.close()
        assert server.get("/health").status_code == 200


def test_first_process_of_a_container(pinfer, chat_bundle):
    """Process 1 has no default handlers of signals: they must be set."""
    probe = subprocess.run(["unshare", "--pid", "--fork", "true"], capture_output=True)
    if probe.returncode != 0:
        pytest.skip("no permission for a process namespace")
    port = free_port()
    command = ["unshare", "--pid", "--fork", "--kill-child", str(pinfer), "serve",
               str(chat_bundle), "--port", str(port), "--threads", "1"]  # fmt: skip
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as outer:

        def health():
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) != 0:
                    return False
            return httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200

        wait_for(health)
        children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
        begin = time.monotonic()
        os.kill(int(children[0]), signal.SIGTERM)
        assert outer.wait(10) == 0
        assert time.monotonic() - begin < 2


def test_liveness_and_readiness_differ(serve, bundles):
    """A server that sheds load lives and is not ready."""
    flags = ("--max-num-seqs", "1", "--max-queue", "1")
    with serve(long_model(bundles), *flags) as server:
        raws = [start_stream(server)]
        raws.append(RawClient(server).send(post_bytes(COMPLETIONS, STREAM)))
        wait_for(lambda: server.metric("vllm:num_requests_waiting") == 1)
        alive, ready = server.get("/health").status_code, server.get("/ready").status_code
        for raw in raws:
            raw.close()
    assert (alive, ready) == (200, 503)
