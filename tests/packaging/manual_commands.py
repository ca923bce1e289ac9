"""Commands of docs/deploy.md, run as a reader would.

A block of them stands behind a line `<!-- run: PLACE -->`; the places are the tests'. A command
that serves runs in the background until the block ends, on a free port in place of its own.
"""

import re
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

from unit_checks import wait_until_healthy

MANUAL = Path(__file__).parents[2] / "docs" / "deploy.md"
BLOCK = re.compile(r"^<!-- run: ([\w-]+) -->\n```sh\n(.*?)^```", re.M | re.S)
SERVES = re.compile(r" serve\b.*--port (\d+)")


def blocks() -> list[tuple[str, list[str]]]:
    """(place, commands) of every block, in order."""
    return [(place, text.splitlines()) for place, text in BLOCK.findall(MANUAL.read_text())]


def commands_for(place: str) -> list[list[str]]:
    found = [lines for name, lines in blocks() if name == place]
    assert found, f"{MANUAL} has no commands for {place}"
    return found


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
