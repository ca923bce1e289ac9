"""The Debian package in a system that has nothing else: made by debootstrap, from this machine's
mirror. What a chroot cannot have is a service manager: the unit's restrictions are applied by
confined.py, which says which ones."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from manual_commands import commands_for, run_block
from unit_checks import MODEL, check_answers, confined, needs_systemd_analyze

pytestmark = pytest.mark.slow


def in_root(root: Path, *command: str) -> str:
    """Runs a command there as root, with /proc for as long; AssertionError with what it said."""
    code = 'mount -t proc proc "$0/proc" && exec chroot "$0" "$@"'
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive"}
    result = subprocess.run(
        ["unshare", "--mount", "bash", "-c", code, root, *command],
        capture_output=True, text=True, env=environment,
    )  # fmt: skip
    assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"
    return result.stdout


def mirror_and_suite(run) -> tuple[str, str]:
    """Of this machine's apt: its first Debian archive with a suite that is a release's name."""
    codename = ""
    for line in Path("/etc/os-release").read_text().splitlines():
        if line.startswith("VERSION_CODENAME="):
            codename = line.split("=", 1)[1].strip('"')
    targets = run(
        "apt-get", "indextargets", "--format", "$(SITE) $(RELEASE)", "Created-By: Packages"
    )
    for line in targets.stdout.splitlines():
        site, release = line.split()
        if release == codename:
            return site, release
    pytest.skip("apt has no archive of this system's release")


@pytest.fixture(scope="module")
def root(run, packages, tmp_path_factory):
    """A minimal Debian with the package and what it depends on; and which packages came with it."""
    if os.geteuid() != 0:
        pytest.skip("debootstrap and chroot need root")
    if shutil.which("debootstrap") is None:
        pytest.skip("no debootstrap here (packaging/debian_packages.sh slow)")
    mirror, suite = mirror_and_suite(run)
    folder = tmp_path_factory.mktemp("debian")
    root = folder / "root"
    run("debootstrap", "--variant=minbase", suite, root, mirror, timeout=1800)
    for parent in (folder, *folder.parents):
        if parent != Path("/") and parent.stat().st_uid == os.geteuid() and parent != Path("/tmp"):
            parent.chmod(parent.stat().st_mode | 0o111)  # a normal user goes through
    shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
    before = set(in_root(root, "dpkg-query", "-W", "-f", "${Package}\n").split())
    [package] = packages.glob("pinfer_*.deb")
    shutil.copy(package, root / "root" / package.name)
    in_root(root, "apt-get", "update")
    for lines in commands_for("deploy", "debian-root"):
        in_root(root, "bash", "-ec", "\n".join(["cd /root", *lines]))
    after = set(in_root(root, "dpkg-query", "-W", "-f", "${Package}\n").split())
    yield root, after - before
    in_root(root, "apt-get", "purge", "-y", "pinfer")
    assert not (root / "usr/bin/pinfer").exists() and not (root / "usr/share/doc/pinfer").exists()


@pytest.fixture(scope="module")
def answer(run, pinfer, chat_bundle):
    return run(pinfer, "run", chat_bundle, *MODEL).stdout


def test_nothing_else_comes_with_it(root):
    folder, new = root
    assert new == {"pinfer", "libonig5"}
    assert not list((folder / "usr/bin").glob("python*"))


def test_it_is_installed(root):
    folder, _ = root
    assert in_root(folder, "pinfer", "--version").startswith("pinfer ")
    assert "libpinfer.so.1" in in_root(folder, "ldconfig", "-p")
    assert in_root(folder, "dpkg", "--verify", "pinfer") == ""


def test_a_normal_user_runs_and_serves_within_the_unit(root, chat_bundle, answer, free_port):
    needs_systemd_analyze()
    folder, _ = root
    shutil.copytree(chat_bundle, folder / "var/lib/pinfer/model", dirs_exist_ok=True)
    check_answers(
        lambda *command: confined(*command, root=folder, env={}),
        Path("/usr/bin/pinfer"), Path("/var/lib/pinfer/model"), answer,
        f"http://127.0.0.1:{free_port}",
    )  # fmt: skip


def test_commands_of_the_manual(root, chat_bundle):
    """docs/deploy.md: what a user does, in the root; clients come from outside."""
    needs_systemd_analyze()
    folder, _ = root
    shutil.copytree(chat_bundle, folder / "srv/bundle", dirs_exist_ok=True)

    def start(command: str) -> subprocess.Popen:
        if command.startswith("curl"):
            return subprocess.Popen(["bash", "-c", command], stdout=-1, stderr=-1, text=True)
        return confined("/usr/bin/bash", "-c", f"cd /srv; {command}", root=folder, env={})

    for lines in commands_for("deploy", "debian-user"):
        assert '"object":"list"' in run_block(lines, start)[-1]
    for lines in commands_for("deploy", "systemd"):
        for line in lines:
            if line.startswith(("systemctl", "journalctl")):
                print(f"not run, there is no service manager in a chroot: {line}")
            else:
                in_root(folder, "bash", "-ec", f"cd /srv; {line}")
    assert (folder / "var/lib/pinfer/smollm2/manifest.json").is_file()
    assert (folder / "etc/pinfer/smollm2.env").read_text() == "PINFER_PORT=8001\n"
