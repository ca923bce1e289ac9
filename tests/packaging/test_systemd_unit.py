"""The systemd unit: valid, hardened, and the program lives within what it allows."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "packaging" / "systemd" / "pinfer@.service"
# systemd-analyze's exposure of the unit: 0 (nothing) to 10.
MOST_EXPOSED = 1.5


def settings() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in UNIT.read_text().splitlines():
        if "=" in line and not line.startswith("#"):
            name, value = line.split("=", 1)
            found.setdefault(name, []).append(value)
    return found


@pytest.fixture(scope="module")
def analyze():
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze here (Debian: systemd)")

    def call(*arguments):
        command = ["systemd-analyze", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True)

    return call


def test_unit_is_valid(analyze, pinfer, tmp_path):
    """In a root with the program where the package puts it."""
    units = tmp_path / "usr/lib/systemd/system"
    units.mkdir(parents=True)
    for name in ("usr/bin", "bin", "etc", "run"):
        (tmp_path / name).mkdir(exist_ok=True)
    shutil.copy(UNIT, units / "pinfer@name.service")
    shutil.copy(pinfer, tmp_path / "usr/bin/pinfer")
    shutil.copy("/bin/true", tmp_path / "bin/kill")
    for target in ("sysinit", "basic", "shutdown", "multi-user", "network-online"):
        (units / f"{target}.target").write_text("[Unit]\nDescription=empty\n")
    result = analyze("verify", f"--root={tmp_path}", "--man=no", units / "pinfer@name.service")
    # What else it says is of units that this root does not have.
    said = [line for line in result.stderr.splitlines() if "pinfer" in line]
    assert said == []
    bad = units / "pinfer@bad.service"
    bad.write_text(UNIT.read_text().replace("Type=notify", "Type=notify\nNoSuchSetting=1"))
    assert "NoSuchSetting" in analyze("verify", f"--root={tmp_path}", "--man=no", bad).stderr


def test_unit_is_hardened(analyze, tmp_path):
    unit = tmp_path / "pinfer@name.service"
    shutil.copy(UNIT, unit)
    arguments = ["security", "--offline=true", f"--threshold={int(MOST_EXPOSED * 10)}"]
    result = analyze(*arguments, unit)
    if "Unknown" in result.stderr or "unrecognized" in result.stderr:
        pytest.skip("this systemd-analyze cannot look at a unit file")
    found = re.search(r"exposure level[^:]*: ([\d.]+)", result.stdout)
    assert found is not None, result.stdout + result.stderr
    print(found[0])
    assert result.returncode == 0 and float(found[1]) <= MOST_EXPOSED, result.stdout


def test_unit_waits_as_long_as_the_server_drains(run, pinfer, chat_bundle):
    drain = re.search(r'"drain_timeout_s": ([\d.]+)',
                      run(pinfer, "serve", chat_bundle, "--print-config").stdout)  # fmt: skip
    assert drain is not None and int(settings()["TimeoutStopSec"][0]) > float(drain[1])
