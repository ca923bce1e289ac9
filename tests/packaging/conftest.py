"""What a user has: an installed tree, and a bundle to run."""

import fcntl
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import tiny_models

# Shows where messages begin and end, and whose they are.
CHAT_TEMPLATE = (
    "{% for m in messages %}<s>{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant:{% endif %}"
)


def succeed(*command, **options) -> subprocess.CompletedProcess:
    """Runs a command; AssertionError with what it said if it fails."""
    result = subprocess.run(command, capture_output=True, text=True, **options)
    assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"
    return result


@pytest.fixture(scope="session")
def run():
    return succeed


@pytest.fixture(scope="session")
def chat_bundle(tmp_path_factory):
    """A random model of two layers, context 256, with a chat template."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:  # made once for all workers
        folder = folder.parent
    bundle = folder / "packaged-bundle"
    with (folder / "packaged.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not bundle.exists():
            checkpoint = tiny_models.make_checkpoint("tied", folder / "packaged")
            (checkpoint / "chat_template.jinja").write_text(CHAT_TEMPLATE)
            tiny_models.export(checkpoint, bundle, "--dtype", "float32")
    return bundle


@pytest.fixture(scope="session")
def prefix(build_dir, tmp_path_factory):
    """A tree as `cmake --install` makes it, and then moved elsewhere."""
    made = tmp_path_factory.mktemp("installed") / "first"
    for component in ("Runtime", "Development"):
        succeed("cmake", "--install", build_dir, "--prefix", made, "--component", component,
                "--strip", env={**os.environ, "DESTDIR": ""})  # fmt: skip
    return made.rename(made.with_name("moved elsewhere"))


@pytest.fixture
def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="session")
def packages(build_dir, tmp_path_factory):
    """What packaging/package.py makes of the built tree."""
    if shutil.which("dpkg-shlibdeps") is None:
        pytest.skip("no dpkg-shlibdeps here (Debian: dpkg-dev)")
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:  # made once for all workers
        folder = folder.parent
    script = Path(__file__).parents[2] / "packaging" / "package.py"
    with (folder / "packages.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "packages" / "SHA256SUMS").exists():
            succeed(sys.executable, script, build_dir, folder / "packages")
    return folder / "packages"
