"""Jinja2 in a child process with bounds: a template may be hostile, and Jinja2 has none of its own.

One child serves a whole export. It gets a JSON object a line and answers with one; where it does
not within the time, it is killed and the template is refused.
"""

from __future__ import annotations

import json
import os
import resource
import selectors
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from typing import Any

from pinfer.export.errors import ExportError
from pinfer.export.template_content import detect_content_parts
from pinfer.export.template_expected import expected_answer

MAX_SECONDS = 10  # for one conversation; published templates need milliseconds
START_SECONDS = 120  # of the child, on a busy machine
MAX_BYTES = 1 << 30  # of address space
_FUNCTIONS = {"content_parts": detect_content_parts, "expected_answer": expected_answer}


class BoundedReference:
    """The child process, started when it is first asked and again after it was killed."""

    def __init__(self, max_seconds: float = MAX_SECONDS) -> None:
        self._max_seconds = max_seconds
        self._child: subprocess.Popen[bytes] | None = None

    def content_parts(self, name: str, source: str, special_tokens: Mapping[str, str]) -> Any:
        """detect_content_parts; `name` is the template's, for messages."""
        return self._call(name, "content_parts", [source, dict(special_tokens)])

    def expected_answer(
        self, template: Mapping[str, Any], special_tokens: Mapping[str, str], request: Any
    ) -> dict[str, str]:
        """expected_answer of template_expected."""
        kept = {key: template[key] for key in ("name", "source", "content_parts")}
        arguments = [kept, dict(special_tokens), request]
        return self._call(template["name"], "expected_answer", arguments)

    def close(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.communicate()
            self._child = None

    def _call(self, name: str, function: str, arguments: list[Any]) -> Any:
        if self._child is None:
            self._child = _start()
            self._read_line(name, START_SECONDS)  # it is ready
        line = json.dumps({"function": function, "arguments": arguments}).encode() + b"\n"
        try:
            self._child.stdin.write(line)  # type: ignore[union-attr]
            self._child.stdin.flush()  # type: ignore[union-attr]
            answer = self._read_line(name, self._max_seconds)
        except BrokenPipeError:
            answer = b""
        if not answer.endswith(b"\n"):
            status = self._child.wait()
            self.close()
            raise ExportError(
                f"chat template {name!r}: Jinja2's process died of it (status {status});"
                " the template is not exported"
            )
        return json.loads(answer)

    def _read_line(self, name: str, max_seconds: float) -> bytes:
        assert self._child is not None and self._child.stdout is not None
        pieces: list[bytes] = []
        with selectors.DefaultSelector() as selector:
            selector.register(self._child.stdout, selectors.EVENT_READ)
            while not pieces or not pieces[-1].endswith(b"\n"):
                if not selector.select(max_seconds):
                    self.close()
                    raise ExportError(
                        f"chat template {name!r}: Jinja2 did not finish a short conversation within"
                        f" {max_seconds} s; the template is not exported"
                    )
                piece = os.read(self._child.stdout.fileno(), 1 << 20)
                if not piece:
                    break
                pieces.append(piece)
        return b"".join(pieces)


@cache
def bounded_reference() -> BoundedReference:
    """The one of this process."""
    return BoundedReference()


def _start() -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "pinfer.export.template_bounded"]
    # Its last words would be those of a template; what matters is in the answer.
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=quiet)


def _serve() -> None:
    """The child's side. It ends when its input does."""
    resource.setrlimit(resource.RLIMIT_AS, (MAX_BYTES, MAX_BYTES))
    _write_line(None)
    for line in sys.stdin.buffer:
        call = json.loads(line)
        _write_line(_FUNCTIONS[call["function"]](*call["arguments"]))


def _write_line(value: Any) -> None:
    sys.stdout.buffer.write(json.dumps(value).encode() + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    _serve()
