"""A client that writes and reads bytes, for what proper clients never do."""

import json
import socket
import struct
from dataclasses import dataclass

import httpx
from server_process import ServerProcess

HEALTH = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"


def client_of(server: ServerProcess, **options) -> httpx.Client:
    """Keeps its connections, so a request costs a millisecond."""
    return httpx.Client(base_url=server.url, timeout=60, **options)


def post_bytes(path: str, body: bytes | dict, *headers: str, version: str = "1.1") -> bytes:
    """A whole POST."""
    content = json.dumps(body).encode() if isinstance(body, dict) else body
    lines = [f"POST {path} HTTP/{version}", "Host: a", f"Content-Length: {len(content)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + content


@dataclass
class RawAnswer:
    status: int
    headers: dict[str, str]  # names in lower case
    body: bytes

    def json(self) -> dict:
        return json.loads(self.body)


class RawClient:
    """One connection. Every wait ends after `timeout` seconds with an exception."""

    def __init__(self, server: ServerProcess | int, timeout: float = 20, **options) -> None:
        port = server if isinstance(server, int) else server.port
        self.socket = socket.socket()
        if "receive_buffer" in options:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, options["receive_buffer"])
        self.socket.settimeout(timeout)
        self.socket.connect(("127.0.0.1", port))
        self.pending = b""

    def send(self, data: bytes) -> "RawClient":
        self.socket.sendall(data)
        return self

    def _receive(self) -> bool:
        data = self.socket.recv(65536)
        self.pending += data
        return bool(data)

    def read_until(self, mark: bytes) -> bytes:
        while mark not in self.pending:
            assert self._receive(), f"closed before {mark!r}: {self.pending[-500:]!r}"
        found, _, self.pending = self.pending.partition(mark)
        return found + mark

    def read_all(self) -> bytes:
        """Up to the end of the connection, also if that is a reset."""
        try:
            while self._receive():
                pass
        except ConnectionResetError:
            pass
        return self.pending

    def _read_exactly(self, size: int) -> bytes:
        while len(self.pending) < size:
            assert self._receive(), "closed within a body"
        found, self.pending = self.pending[:size], self.pending[size:]
        return found

    def read_head(self) -> RawAnswer:
        lines = self.read_until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        protocol, status = lines[0].split(" ")[:2]
        assert protocol == "HTTP/1.1"
        fields = [line.split(": ", 1) for line in lines[1:] if line]
        return RawAnswer(int(status), {name.lower(): value for name, value in fields}, b"")

    def read_answer(self) -> RawAnswer:
        """The final answer: interim ones (1xx) are passed over."""
        while True:
            answer = self.read_first_answer()
            if answer.status >= 200:
                return answer

    def read_first_answer(self) -> RawAnswer:
        answer = self.read_head()
        if answer.headers.get("transfer-encoding") == "chunked":
            while size := int(self.read_until(b"\r\n"), 16):
                answer.body += self._read_exactly(size)
                assert self._read_exactly(2) == b"\r\n"
            assert self._read_exactly(2) == b"\r\n"
        elif "content-length" in answer.headers:
            answer.body = self._read_exactly(int(answer.headers["content-length"]))
        return answer

    def half_close(self) -> "RawClient":
        self.socket.shutdown(socket.SHUT_WR)
        return self

    def close(self) -> None:
        self.socket.close()

    def reset(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def __enter__(self) -> "RawClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def assert_error(answer: httpx.Response | RawAnswer, status: int, param: str | None = "any") -> str:
    """Checks that an answer is a small JSON error object; returns its message."""
    code = answer.status if isinstance(answer, RawAnswer) else answer.status_code
    content = answer.body if isinstance(answer, RawAnswer) else answer.content
    assert code == status, content[:600]
    assert answer.headers["content-type"] == "application/json"
    assert len(content) < 4096
    body = json.loads(content)
    assert list(body) == ["error"]
    error = body["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"] and isinstance(error["message"], str) and error["type"]
    if param != "any":
        assert error["param"] == param, error
    return error["message"]
