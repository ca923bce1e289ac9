"""Commands of the pages in docs/, run as a reader would.

A block of them stands behind a line `<!-- run: PLACE -->`; the places are the tests'. A command
that serves runs in the background until the block ends, on a free port in place of its own. A block
of Python is one command.
"""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from unit_checks import wait_until_healthy

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^<!-- run: ([\w-]+) -->\n```(sh|python)\n(.*?)^```", re.M | re.S)
SERVES = re.compile(r" serve\b.*--port (\d+)")


def blocks(page: str) -> list[tuple[str, list[str]]]:
    """(place, commands) of every block of docs/PAGE.md, in order."""
    found = BLOCK.findall((DOCS / f"{page}.md").read_text())
    return [
        (place, text.splitlines() if language == "sh" else [f"python - <<'END'\n{text}END"])
        for place, language, text in found
    ]


def commands_for(page: str, place: str) -> list[list[str]]:
    found = [lines for name, lines in blocks(page) if name == place]
    assert found, f"docs/{page}.md has no commands for {place}"
    return found


def check_places(page: str, places: set[str]) -> None:
    """Every block of commands says where it runs, and these places have a test."""
    assert {place for place, _ in blocks(page)} == places
    marks = re.findall(r"^```\w", (DOCS / f"{page}.md").read_text(), re.M)
    assert len(marks) == len(blocks(page))


def shell_in(folder: Path) -> Callable[[str], subprocess.Popen]:
    """Starts commands in a folder, the exporter and the program on the path."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"

    def start(command: str) -> subprocess.Popen:
        return subprocess.Popen(
            ["bash", "-c", command], cwd=folder, stdin=subprocess.DEVNULL, stdout=-1, stderr=-1,
            text=True, env={**os.environ, "PATH": path},
        )  # fmt: skip

    return start


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def run_block(lines: list[str], start: Callable[[str], subprocess.Popen]) -> list[str]:
    """What each command said on standard output; start(command) starts one. AssertionError if a
    command fails, or a server does not end well."""
    said, servers, ports = [], [], {}
    try:
        for line in lines:
            for port, free in ports.items():
                line = line.replace(port, free)
            serves = SERVES.search(line)
            if serves is None:
                with start(line) as command:
                    output, errors = command.communicate(timeout=600)
                assert command.returncode == 0, f"{line}\n{output}\n{errors}"
                said.append(output)
            else:
                ports[serves[1]] = free_port()
                line = line.replace(serves[1], ports[serves[1]])
                servers.append(start(f"exec {line}"))
                wait_until_healthy(servers[-1], f"http://127.0.0.1:{ports[serves[1]]}")
                said.append("")
    finally:
        for server in servers:
            server.send_signal(signal.SIGTERM)
            _, errors = server.communicate(timeout=60)
            assert server.returncode == 0, errors
    return said
