"""`pip install` from a clean clone, for each Python that the package supports and this machine has;
without torch, and with an engine that answers."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
VERSIONS = ("3.10", "3.11", "3.12", "3.13")
ANSWER = """
import importlib.metadata, json, sys
import pinfer
with pinfer.Engine(sys.argv[1], threads=1) as engine:
    output = engine.generate("hello", max_tokens=8, temperature=0.0)
    print(json.dumps([output.text, importlib.metadata.version("pinfer"), "torch" in sys.modules]))
"""


def find_python(version: str) -> Path:
    """From the path, or one of pyenv's; skips if there is none."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [shutil.which(f"python{version}"), *sorted(pyenv.glob(f"{version}.*/bin/python"))]
    for candidate in filter(None, found):
        code = "import sys; print('%d.%d' % sys.version_info[:2])"
        result = subprocess.run([candidate, "-c", code], capture_output=True, text=True)
        if result.returncode == 0 and result.stdout.strip() == version:
            return Path(candidate)
    pytest.skip(f"this machine has no Python {version}")


@pytest.fixture(scope="module")
def clone(run, tmp_path_factory):
    """What is committed. Compiled once: pip builds in the tree."""
    folder = tmp_path_factory.mktemp("clone") / "pinfer"
    if not (ROOT / ".git").exists():
        pytest.skip("this tree is no git clone")
    run("git", "clone", "--quiet", ROOT, folder)
    return folder


def test_the_oldest_is_the_declared_one():
    declared = re.search(r'requires-python = ">=(.*)"', (ROOT / "pyproject.toml").read_text())
    assert declared is not None and declared[1] == VERSIONS[0]


@pytest.mark.parametrize("version", VERSIONS)
def test_install_from_a_clone(run, clone, chat_bundle, pinfer, tmp_path, version):
    expected = run(pinfer, "run", chat_bundle, "-p", "hello", "-n", "8", "--temperature", "0")
    run(find_python(version), "-m", "venv", tmp_path / "venv")
    python = tmp_path / "venv/bin/python"
    run(python, "-m", "pip", "install", "--quiet", clone, timeout=3000)
    [record] = (tmp_path / "venv").glob("lib/python*/site-packages/pinfer-*.dist-info/WHEEL")
    assert "Tag: py3-none-linux" in record.read_text()
    text, installed, has_torch = json.loads(run(python, "-c", ANSWER, chat_bundle).stdout)
    assert text + "\n" == expected.stdout and not has_torch
    assert f'version = "{installed}"' in (ROOT / "pyproject.toml").read_text()
    assert "pinfer" in run(tmp_path / "venv/bin/pinfer", "--version").stdout
    for page in ("pinfer.1", "pinfer-export.1"):
        assert (tmp_path / "venv/share/man/man1" / page).is_file()
    # The exporter asks for what it needs.
    program = tmp_path / "venv/bin/pinfer-export"
    result = subprocess.run([program, "--help"], capture_output=True, text=True)
    assert result.returncode != 0 and "pinfer[export]" in result.stderr
