"""Many clients at once, some of which vanish or talk nonsense: nothing leaks, nothing is wrong."""

import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time

import httpx
import pytest
from server_process import ServerProcess, content_of, parse_events

NONSENSE = [b"", b"{", b'{"prompt": 5}', b'{"prompt": "a", "max_tokens": "ten"}', b"\xff\xfe",
            b'{"messages": {}}', b"[" * 5000]  # fmt: skip


WATCH_HEALTH = """
import http.client, sys, time
from urllib.parse import urlsplit
end = time.monotonic() + float(sys.argv[2])
connection = http.client.HTTPConnection(urlsplit(sys.argv[1]).netloc, timeout=10)
while time.monotonic() < end:
    begin = time.perf_counter()
    connection.request("GET", "/health")
    answer = connection.getresponse()
    answer.read()
    assert answer.status == 200
    print((time.perf_counter() - begin) * 1000)
    time.sleep(0.02)
"""


def request_of(random_number: random.Random, most_tokens: int) -> dict:
    """One of 64 requests, each of which has one right answer."""
    key = random_number.randrange(64)
    own = random.Random(key)
    prompt = [own.randrange(3, 259) for _ in range(own.randint(1, 100))]
    body = {"prompt": prompt, "max_tokens": own.randint(1, most_tokens), "ignore_eos": True}
    body |= {"temperature": 0.0} if key % 2 else {"temperature": 1.5, "seed": key, "top_p": 0.9}
    return body


class Clients:
    """Threads that ask until the time is over; what they saw."""

    def __init__(self, server: ServerProcess, seconds: float, most_tokens: int) -> None:
        self.server, self.most_tokens = server, most_tokens
        self.end = time.monotonic() + seconds
        self.answers: dict[str, set[str]] = {}
        self.failures: list[str] = []
        self.health_ms: list[float] = []
        self.counts = {"answered": 0, "vanished": 0, "nonsense": 0, "shed": 0}
        self._lock = threading.Lock()

    def run(self, num_clients: int) -> None:
        # In a process of its own: the clients' threads would hold it up. Into a file: ten minutes
        # of lines do not fit a pipe.
        watch = [sys.executable, "-c", WATCH_HEALTH]
        with tempfile.TemporaryFile("w+") as lines:
            health = subprocess.Popen(
                [*watch, self.server.url, str(self.end - time.monotonic())], stdout=lines
            )
            threads = [threading.Thread(target=self._client, args=(i,)) for i in range(num_clients)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert health.wait(timeout=60) == 0
            lines.seek(0)
            self.health_ms = [float(line) for line in lines]

    def _client(self, seed: int) -> None:
        numbers = random.Random(seed)
        with httpx.Client(base_url=self.server.url, timeout=120) as client:
            while time.monotonic() < self.end:
                try:
                    kind = numbers.random()
                    if kind < 0.2:
                        self._vanish(numbers)
                    elif kind < 0.25:
                        self._talk_nonsense(client, numbers)
                    else:
                        self._ask(client, numbers)
                except Exception as error:
                    self.failures.append(repr(error))

    def _count(self, what: str) -> None:
        with self._lock:
            self.counts[what] += 1

    def _ask(self, client: httpx.Client, numbers: random.Random) -> None:
        body = request_of(numbers, self.most_tokens)
        stream = numbers.random() < 0.5
        answer = client.post("/v1/completions", json={**body, "stream": stream})
        if answer.status_code == 503:
            assert answer.headers["retry-after"]
            self._count("shed")
            return
        assert answer.status_code == 200, answer.text
        if stream:
            text = content_of(parse_events(answer.text))
        else:
            text = answer.json()["choices"][0]["text"]
        with self._lock:
            self.answers.setdefault(json.dumps(body), set()).add(text)
        self._count("answered")

    def _vanish(self, numbers: random.Random) -> None:
        body = json.dumps({**request_of(numbers, self.most_tokens), "stream": True}).encode()
        with socket.create_connection(("127.0.0.1", self.server.port)) as connection:
            head = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"
            connection.sendall(head % len(body) + body)
            if numbers.random() < 0.5:
                connection.recv(numbers.randint(1, 500))
        self._count("vanished")

    def _talk_nonsense(self, client: httpx.Client, numbers: random.Random) -> None:
        answer = client.post("/v1/completions", content=numbers.choice(NONSENSE))
        assert answer.status_code == 400 and answer.json()["error"]["message"]
        self._count("nonsense")


def own_kib(server: ServerProcess) -> int:
    with open(f"/proc/{server.process.pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon"))


def check_load(server: ServerProcess, seconds: float, num_clients: int, most_tokens: int) -> float:
    """The 99th percentile of the milliseconds that /health took meanwhile."""
    warm_up = Clients(server, min(seconds / 10, 10), most_tokens)
    warm_up.run(num_clients)
    server.wait_until_idle()
    before = own_kib(server)
    clients = Clients(server, seconds, most_tokens)
    clients.run(num_clients)
    server.wait_until_idle()
    assert not clients.failures, clients.failures[:3]
    assert min(clients.counts[what] for what in ("answered", "vanished", "nonsense")) > 0
    for body, texts in clients.answers.items():
        alone = server.post("/v1/completions", json.loads(body)).json()["choices"][0]["text"]
        assert texts == {alone}, body
    server.wait_until_idle()
    assert server.metric("vllm:kv_cache_usage_perc") == 0
    assert server.metric("vllm:request_success_total", finished_reason="error") == 0
    health = sorted(clients.health_ms)
    p99 = health[int(len(health) * 0.99)]
    print(
        f"{clients.counts}, health p50 {health[len(health) // 2]:.1f} p99 {p99:.1f} ms, "
        f"own memory {before} -> {own_kib(server)} KiB, load {os.getloadavg()[0]:.1f}"
    )
    assert own_kib(server) - before < 16384
    return p99


def test_clients_that_come_and_go(serve, chat_bundle):
    with serve(chat_bundle, "--num-blocks", "64") as server:
        check_load(server, seconds=4, num_clients=16, most_tokens=30)


@pytest.mark.slow
def test_clients_that_come_and_go_for_ten_minutes(serve, chat_bundle):
    with serve(chat_bundle, "--num-blocks", "64") as server:
        assert check_load(server, seconds=600, num_clients=64, most_tokens=60) < 50


def test_idle_connections_are_cheap(serve, chat_bundle):
    """Keep-alive connections between requests, and streams whose requests wait in the queue."""
    count = 2000
    with serve(chat_bundle) as server:
        server.get("/health")
        before = own_kib(server)
        connections = []
        try:
            for _ in range(count):
                connection = socket.create_connection(("127.0.0.1", server.port))
                connection.sendall(b"GET /version HTTP/1.1\r\nHost: a\r\n\r\n")
                connections.append(connection)
            for connection in connections:
                assert connection.recv(9) == b"HTTP/1.1 "
            grown = own_kib(server) - before
            with httpx.Client(base_url=server.url) as client:
                client.get("/health")
                begin = time.perf_counter()
                for _ in range(50):
                    assert client.get("/health").status_code == 200
                each_ms = (time.perf_counter() - begin) * 20
            print(f"{count} connections: {grown} KiB, then {each_ms:.1f} ms for a request")
            assert grown < 100 * 1024
        finally:
            for connection in connections:
                connection.close()
