"""Every command of docs/deploy.md runs in the place it is meant for. (Those of the Debian package:
test_debian_root.py.)"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tiny_models

sys.path.insert(0, str(Path(__file__).parent))
from manual_commands import check_places, commands_for, run_block, shell_in

ROOT = Path(__file__).parents[2]
PLACES = {"build", "debian-root", "debian-user", "systemd", "archive", "container", "standalone"}


def test_no_command_stands_elsewhere():
    check_places("deploy", PLACES)


def test_build(run):
    """What it does is the fixture `packages`; here, that the target is there."""
    [[command]] = commands_for("deploy", "build")
    planned = run("make", "--dry-run", "--always-make", command.split()[1], cwd=ROOT).stdout
    assert "packaging/package.py build/cpu-release build/packages" in planned


def test_archive(packages, chat_bundle, tmp_path):
    for file in packages.iterdir():
        (tmp_path / file.name).symlink_to(file)
    (tmp_path / "bundle").symlink_to(chat_bundle)
    said = [run_block(lines, shell_in(tmp_path)) for lines in commands_for("deploy", "archive")]
    assert '"status":"ok"' in "".join(said[0])
    assert "FAILED" not in "".join(said[1]) and ": OK" in said[1][0]


def test_standalone(chat_bundle, tmp_path):
    if not (Path(sys.executable).parent / "pinfer-export").exists():
        pytest.skip("pinfer-export is not installed beside this Python")
    tiny_models.make_checkpoint("tied", tmp_path).rename(tmp_path / "model")
    [lines] = commands_for("deploy", "standalone")
    said = run_block(lines, shell_in(tmp_path))
    assert json.loads(said[-1]) == {"status": "ok"}


def test_container(packages):
    """Needs a container engine that runs; its root directory alone: test_packages.py."""
    engines = ("podman", "docker")
    engine = next((name for name in engines if shutil.which(name)), None)
    if engine is None:
        pytest.skip("no container engine here")
    if subprocess.run([engine, "info"], capture_output=True).returncode != 0:
        pytest.skip(f"{engine} is here, but cannot run containers")
    [lines] = commands_for("deploy", "container")
    build = lines[0].replace("podman", engine).replace("build/packages", str(packages))
    assert subprocess.run(["bash", "-c", build]).returncode == 0
    version = [engine, "run", "--rm", "--read-only", "pinfer", "--version"]
    result = subprocess.run(version, capture_output=True, text=True)
    assert result.returncode == 0 and result.stdout.startswith("pinfer ")
