"""A running `pinfer serve` for tests."""

import json
import os
import re
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import httpx


class ServerProcess:
    """Starts on a free port and is ready when the constructor returns. A context manager: on exit
    it must end by itself, with code 0, after SIGTERM."""

    def __init__(
        self,
        program: Path,
        bundle: Path,
        *flags: str,
        scheme: str = "http",
        wait: bool = True,
        env: dict[str, str] | None = None,
    ) -> None:
        self._log = tempfile.NamedTemporaryFile("w+b", suffix=".log")
        command = [program, "serve", bundle, "--threads", "1", "--port", "0", *flags]
        self.process = subprocess.Popen(
            [str(part) for part in command],
            stderr=self._log,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **(env or {})},
        )
        self.scheme = scheme
        try:
            self.url = self.wait_until_listening() if wait else ""
        except BaseException:
            self.process.kill()
            raise

    def wait_until_listening(self, seconds: float = 20) -> str:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = re.search(r"listening on (https?://[^\s\"]+|unix:[^\s\"]+)", self.log())
            if found:
                return found[1]
            assert self.process.poll() is None, f"the server has ended:\n{self.log()}"
            time.sleep(0.005)
        raise AssertionError(f"the server does not listen:\n{self.log()}")

    def log(self) -> str:
        return Path(self._log.name).read_bytes().decode(errors="replace")

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])

    def get(self, path: str, **options) -> httpx.Response:
        return httpx.get(self.url + path, timeout=60, **options)

    def post(self, path: str, body: dict | bytes | str, **options) -> httpx.Response:
        content = json.dumps(body) if isinstance(body, dict) else body
        return httpx.post(self.url + path, content=content, timeout=60, **options)

    def events(self, path: str, body: dict) -> list[dict]:
        """The events of a stream; asserts the framing and the [DONE] at the end."""
        answer = self.post(path, {**body, "stream": True})
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"].startswith("text/event-stream")
        return parse_events(answer.text)

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's values that have these labels."""
        total, found = 0.0, False
        for line in self.get("/metrics").text.splitlines():
            if re.match(re.escape(name) + r"[{ ]", line) and all(
                f'{key}="{value}"' in line for key, value in labels.items()
            ):
                total, found = total + float(line.rsplit(" ", 1)[1]), True
        assert found, f"no metric {name} {labels}"
        return total

    def wait_until_idle(self, seconds: float = 20) -> None:
        end = time.monotonic() + seconds
        names = ("vllm:num_requests_running", "vllm:num_requests_waiting")
        while any(self.metric(name) for name in names):
            assert time.monotonic() < end, "requests are still running"
            time.sleep(0.01)

    def stop(self, sent: int = signal.SIGTERM, seconds: float = 20) -> int:
        """The exit code."""
        if self.process.poll() is None:
            self.process.send_signal(sent)
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"the server did not end:\n{self.log()}") from None

    def __enter__(self) -> "ServerProcess":
        return self

    def __exit__(self, kind: type | None, *_: object) -> None:
        code = self.stop()
        if kind is None:
            assert code == 0, self.log()


def parse_events(text: str) -> list[dict]:
    events = []
    assert text.endswith("\n\n")
    for block in text.split("\n\n")[:-1]:
        if block.startswith(":"):  # a ping
            continue
        assert block.startswith("data: ") and "\n" not in block, block
        events.append(block[len("data: ") :])
    assert events and events[-1] == "[DONE]", events[-1:]
    return [json.loads(event) for event in events[:-1]]


def content_of(events: list[dict], index: int = 0) -> str:
    """The text of one choice of a chat or completions stream."""
    text = ""
    for event in events:
        for choice in event["choices"]:
            if choice["index"] == index:
                delta = choice.get("delta")
                text += choice["text"] if delta is None else delta.get("content", "")
    return text
