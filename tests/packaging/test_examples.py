"""packaging/examples/, built with the tree: they run, and end as they should."""

import re
import signal
import socket
import subprocess
import time

import pytest


@pytest.fixture(scope="module")
def examples(build_dir):
    return build_dir / "packaging" / "examples"


@pytest.mark.parametrize("program", ["pinfer_chat", "pinfer_chat_static"])
def test_chat(examples, chat_bundle, program):
    """Two questions: the second prompt holds the first answer, and ends within the context."""
    result = subprocess.run(
        [examples / program, chat_bundle],
        input=b'say "hi"\\\nand again\n', capture_output=True, timeout=60,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith(b"> ") and result.stdout.count(b"> ") >= 3
    nothing = subprocess.run([examples / program, chat_bundle / "none"], capture_output=True)
    assert nothing.returncode == 1 and nothing.stderr.startswith(b"error: ")


def test_chat_is_interrupted(examples, chat_bundle):
    """An interrupt between questions or while it answers ends no more than the answer."""
    command = [examples / "pinfer_chat", chat_bundle]
    with subprocess.Popen(command, stdin=-1, stdout=-1, stderr=-1) as chat:
        chat.stdin.write(b"hello\n")
        chat.stdin.flush()
        assert chat.stdout.read(2) == b"> "
        chat.send_signal(signal.SIGINT)
        _, errors = chat.communicate(b"still there\n", timeout=60)
    assert chat.returncode == 0, errors


@pytest.mark.parametrize("program", ["pinfer_batch", "pinfer_batch_static"])
def test_batch(examples, chat_bundle, pinfer, program):
    prompts = ["hello", "a", "x" * 300, "once upon a time"]  # the third does not fit the context
    result = subprocess.run(
        [examples / program, chat_bundle, "6"],
        input="\n".join(prompts).encode(), capture_output=True, timeout=60,
    )  # fmt: skip
    assert result.returncode == 1
    assert b"context_length_exceeded" in result.stderr and b"4 prompts" in result.stderr
    answers = result.stdout.decode()
    command = [pinfer, "run", chat_bundle, "-n", "6", "--temperature", "0", "-p"]
    for prompt in ("hello", "once upon a time"):
        alone = subprocess.run([*command, prompt], capture_output=True, check=True)
        assert alone.stdout.decode().removesuffix("\n") in answers


class Client:
    """One connection to the example server."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.file = self.socket.makefile("rb")

    def send(self, text):
        self.socket.sendall(text.encode() + b"\n")

    def line(self):
        return self.file.readline().decode().strip()

    def answer(self):
        """(text, reason, pongs that came between its pieces)."""
        text, pongs = b"", 0
        while True:
            kind, _, rest = self.line().partition(" ")
            if kind == "data":
                text += self.file.read(int(rest))
            elif kind == "pong":
                pongs += 1
            else:
                return text.decode(), f"{kind} {rest}", pongs

    def close(self):
        self.file.close()
        self.socket.close()


@pytest.fixture
def server(examples, chat_bundle):
    command = [examples / "pinfer_asio_server", chat_bundle, "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            process.port = int(re.match(r"listening on (\d+)", process.stdout.readline())[1])
            yield process
        finally:
            process.kill()


def test_server_answers_many_at_once(server):
    clients = [Client(server.port) for _ in range(4)]
    for client in clients:
        client.send("generate hello")
        client.send("ping")  # the loop has time for it while the model computes
    for client in clients:
        text, reason, pongs = client.answer()
        assert reason in ("done length", "done stop") and (text or reason == "done stop")
        assert pongs == 1 or client.line() == "pong"
        client.send("generate again")
        assert client.answer()[1] in ("done length", "done stop")
    clients[0].send("generate " + "x" * 300)
    assert clients[0].line().startswith("error context_length_exceeded")
    clients[0].send("what")
    assert clients[0].line() == "error unknown command"
    for client in clients:
        client.close()


def test_server_survives_clients_that_leave(server):
    for _ in range(10):
        client = Client(server.port)
        client.send("generate hello")
        client.close()
    client = Client(server.port)
    client.send("ping")
    assert client.line() == "pong"
    client.close()


def test_server_ends_after_its_answers(server):
    idle, busy = Client(server.port), Client(server.port)
    for client in (idle, busy):
        client.send("ping")
        assert client.line() == "pong"
    busy.send("generate hello")
    server.send_signal(signal.SIGTERM)
    assert busy.answer()[1].startswith("done")
    assert idle.line() == "" and busy.line() == ""
    assert server.wait(timeout=60) == 0
    assert "stopped" in server.stdout.read()


def test_second_signal_aborts(server):
    client = Client(server.port)
    client.send("generate hello")
    for _ in range(2):
        server.send_signal(signal.SIGINT)
        time.sleep(0.02)
    assert client.answer()[1] in ("done abort", "done length", "done stop")
    assert server.wait(timeout=60) == 0
