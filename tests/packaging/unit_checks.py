"""Programs within what the systemd unit allows, and whether they answer there."""

import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

UNIT = Path(__file__).parents[2] / "packaging" / "systemd" / "pinfer@.service"
CONFINED = Path(__file__).parent / "confined.py"
MODEL = ["-p", "hello", "-n", "12", "--temperature", "0", "--ignore-eos"]
USER = 65532  # in a root directory


def needs_systemd_analyze() -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze here, which knows the groups of system calls")


def confined(*command, root=None, **options) -> subprocess.Popen:
    """Starts a command within what the unit allows (confined.py)."""
    flags = [] if root is None else ["--root", root, "--user", USER]
    arguments = [sys.executable, CONFINED, UNIT, *flags, "--", *command]
    return subprocess.Popen(list(map(str, arguments)), stdout=-1, stderr=-1, text=True, **options)


def wait_until_healthy(server: subprocess.Popen, url: str, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while True:
        assert server.poll() is None, server.communicate()
        try:
            if httpx.get(f"{url}/health").status_code == 200:
                return
        except httpx.TransportError:
            pass
        assert time.monotonic() < end, "the server is not healthy"
        time.sleep(0.02)


def check_answers(
    start: Callable[..., subprocess.Popen], program: Path, bundle: Path, answer: str, url: str
) -> None:
    """The command and the server, started by start(program, arguments...)."""
    with start(program, "run", bundle, *MODEL) as command:
        output, errors = command.communicate(timeout=60)
        assert command.returncode == 0 and output == answer, errors
    port = url.rsplit(":", 1)[1]
    with start(program, "serve", bundle, "--port", port) as server:
        wait_until_healthy(server, url)
        body = {"prompt": "hello", "max_tokens": 12, "temperature": 0, "ignore_eos": True}
        got = httpx.post(f"{url}/v1/completions", json=body, timeout=60).json()
        assert got["choices"][0]["text"] + "\n" == answer
        server.terminate()
        _, errors = server.communicate(timeout=30)
        assert server.returncode == 0, errors
