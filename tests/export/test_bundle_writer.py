"""How a bundle takes the place of an old one where the file system cannot exchange the two."""

import ctypes
import os
import signal
import subprocess
import sys

import pytest

from pinfer.export import bundle_writer
from pinfer.export.bundle_writer import BundleWriter
from pinfer.export.errors import ExportError

# Writes a bundle, and is killed at the given rename of its last step (0: not at all).
KILLED = """
import ctypes, os, signal, sys
from pathlib import Path
from pinfer.export import bundle_writer

output, content, last = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
ctypes.CDLL = lambda *_, **__: object()  # no renameat2
rename, count = os.rename, 0

def counted(source, target):
    global count
    if ".pinfer-tmp-" in str(source) + str(target):
        count += 1
        if count == last:
            os.kill(os.getpid(), signal.SIGKILL)
    rename(source, target)

os.rename = counted
with bundle_writer.BundleWriter(output, force=True) as writer:
    writer.add_bytes("content", content.encode())
    writer.commit({})
"""


def write(output, content, force=False):
    with BundleWriter(output, force) as writer:
        writer.add_bytes("content", content.encode())
        writer.commit({})


def write_in_two_steps(output, content, last=0):
    command = [sys.executable, "-c", KILLED, str(output), content, str(last)]
    return subprocess.run(command, capture_output=True, text=True)


def found(output):
    return (output / "content").read_text()


@pytest.fixture
def output(tmp_path):
    write(tmp_path / "bundle", "old")
    return tmp_path / "bundle"


def names(output):
    return [path.name for path in output.parent.iterdir()]


def test_two_steps_replace_and_clean(output):
    result = write_in_two_steps(output, "new")
    assert result.returncode == 0, result.stderr
    assert found(output) == "new" and names(output) == ["bundle"]


# Renames: 1 finds the old bundle in the way, 2 puts it aside, 3 puts the new one into its place.
@pytest.mark.parametrize("last", [1, 2])
def test_killed_before_the_old_bundle_stands_aside(output, last):
    assert write_in_two_steps(output, "new", last).returncode == -signal.SIGKILL
    assert found(output) == "old"
    write(output, "third", force=True)
    assert found(output) == "third" and names(output) == ["bundle"]


def test_killed_between_the_two_steps(output):
    assert write_in_two_steps(output, "new", 3).returncode == -signal.SIGKILL
    assert not output.exists()
    assert sum(name.endswith(".old") for name in names(output)) == 1
    # The next export finds the old bundle in its place again: it is replaced only if that is asked.
    with pytest.raises(ExportError, match="exists already"):
        write(output, "third")
    assert found(output) == "old" and names(output) == ["bundle"]
    write(output, "third", force=True)
    assert found(output) == "third" and names(output) == ["bundle"]


def test_an_old_bundle_whose_place_is_taken_goes(output):
    """The process was killed after the second step, before it removed the old bundle."""
    aside = output.parent / ".bundle.pinfer-tmp-4194999-0a.old"  # above the largest process id
    write(aside, "older")
    assert sorted(names(output)) == [aside.name, "bundle"]
    write(output, "new", force=True)
    assert found(output) == "new" and names(output) == ["bundle"]


def test_leftovers_of_running_exporters_and_other_bundles_stay(output):
    others = [
        f".bundle.pinfer-tmp-{os.getpid()}-0a",
        f".bundle.pinfer-tmp-{os.getpid()}-0b.old",
        ".other.pinfer-tmp-4194999-0a",
        ".other.pinfer-tmp-4194999-0a.old",
        ".bundle.pinfer-tmp-4194999-0a.older",
    ]
    for name in others:
        (output.parent / name).mkdir()
    write(output, "new", force=True)
    assert sorted(names(output)) == sorted([*others, "bundle"])


@pytest.mark.parametrize("error", [OSError("no"), KeyboardInterrupt()])
def test_an_interrupt_between_the_two_steps(output, monkeypatch, error):
    """What raises in this process brings the old bundle back at once."""
    rename = os.rename

    def interrupted(source, target):
        if target == output and not output.exists() and not str(source).endswith(".old"):
            raise error
        rename(source, target)

    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: object())
    monkeypatch.setattr(bundle_writer.os, "rename", interrupted)
    with pytest.raises(type(error)):
        write(output, "new", force=True)
    assert found(output) == "old" and names(output) == ["bundle"]
