"""Makes packages of a build: .deb files, a relocatable archive, the root of a container.

Usage: python packaging/package.py BUILD_DIR OUTPUT_DIR   (of a build: build/cpu-release)

OUTPUT_DIR gets, for version V and Debian architecture A,
  pinfer_V_A.deb            program, libpinfer.so.1, manual page, completion, systemd unit
  libpinfer-dev_V_A.deb     headers, libpinfer.a, CMake package, pkg-config files
  pinfer-V-linux-M.tar.gz   both in one folder that can lie anywhere, with libonig (M: the machine)
  pinfer-container-root.tar.gz, Containerfile   what an image holds
  SHA256SUMS
What a package holds is what `cmake --install` installs of its components (packaging/cmake/
install.cmake), and the licences that sbom.py finds. Equal builds give equal packages, byte for
byte: file times are SOURCE_DATE_EPOCH, by default the commit's time. Needs dpkg-dev.
"""

from __future__ import annotations

import argparse
import email.utils
import gzip
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import sbom
import tomllib

PACKAGING = Path(__file__).resolve().parent
ROOT = PACKAGING.parent
Foreign = dict[str, set[str]]  # Debian packages of what a build holds (sbom.packages_in_build)
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
# Where Debian wants what the install rules put elsewhere.
DEBIAN_PLACES = {"usr/share/zsh/site-functions": "usr/share/zsh/vendor-completions"}


def run(*command: str | Path, **options: Any) -> str:
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True, **options)
    if result.returncode != 0:
        said = (result.stdout + result.stderr).strip()
        sys.exit(f"package: {' '.join(map(str, command))}\n{said}")
    return result.stdout


def source_time() -> str:
    """SOURCE_DATE_EPOCH, the commit's time, or that of the version's file."""
    if "SOURCE_DATE_EPOCH" in os.environ:
        return os.environ["SOURCE_DATE_EPOCH"]
    log = subprocess.run(
        ["git", "-C", ROOT, "log", "-1", "--format=%ct"], capture_output=True, text=True
    )
    if log.returncode == 0 and log.stdout.strip():
        return log.stdout.strip()
    return str(int((ROOT / "pyproject.toml").stat().st_mtime))


def install(build: Path, prefix: Path, *components: str) -> None:
    environment = {**os.environ, "DESTDIR": ""}
    for component in components:
        run("cmake", "--install", build, "--prefix", prefix, "--component", component, "--strip",
            env=environment)  # fmt: skip


def set_modes(folder: Path) -> None:
    """The same for whoever builds: programs and directories 755, files 644."""
    for path in folder.rglob("*"):
        if not path.is_symlink():
            executable = path.is_dir() or path.stat().st_mode & 0o100
            path.chmod(0o755 if executable else 0o644)
    folder.chmod(0o755)


def find_oniguruma(program: Path) -> Path:
    """The library that the program opens for a few tokenizers, as this system has it."""
    # Not on the path of every user.
    for line in run(shutil.which("ldconfig") or "/sbin/ldconfig", "-p").splitlines():
        name, _, path = line.strip().partition(" => ")
        if name.startswith("libonig.so.5 ") and is_same_machine(Path(path), program):
            return Path(path)
    sys.exit("package: libonig.so.5 is missing (Debian: libonig5)")


def is_same_machine(first: Path, second: Path) -> bool:
    """By the class and machine in the ELF headers."""

    def kind(path: Path) -> bytes:
        header = path.read_bytes()[:20]
        return header[4:6] + header[18:20]

    return kind(first) == kind(second)


# ---- archives ----


def write_archive(folder: Path, file: Path, *arguments: str) -> None:
    """folder/* as a .tar.gz whose bytes depend on nothing but names, modes and contents."""
    tar = ["tar", "--create", "--sort=name", "--format=gnu", "--owner=0", "--group=0",
           "--numeric-owner", f"--mtime=@{os.environ['SOURCE_DATE_EPOCH']}",
           f"--directory={folder}", *arguments]  # fmt: skip
    with file.open("wb") as output:
        packed = subprocess.Popen(tar, stdout=subprocess.PIPE)
        subprocess.run(["gzip", "-9n"], stdin=packed.stdout, stdout=output, check=True)
        if packed.wait() != 0:
            sys.exit(f"package: {file} could not be written")


def make_archive(build: Path, output: Path, work: Path, foreign: Foreign) -> Path:
    name = f"pinfer-{VERSION}-linux-{platform.machine()}"
    folder = work / "archive" / name
    install(build, folder, "Runtime", "Development")
    oniguruma = find_oniguruma(folder / "bin" / "pinfer")
    shutil.copyfile(oniguruma, folder / "lib" / "libonig.so.5")
    sbom.write(foreign, [oniguruma], work / "archive-licences")
    document = folder / "share" / "doc" / "pinfer"
    shutil.copytree(work / "archive-licences", document, dirs_exist_ok=True)
    set_modes(folder)
    file = output / f"{name}.tar.gz"
    write_archive(folder.parent, file, name)
    return file


def make_container_root(
    build: Path, output: Path, work: Path, foreign: Foreign, archive: Path
) -> None:
    root = work / "container-root"
    program = build / "engine_cpp" / "cli" / "pinfer"
    system = [word for line in run("ldd", program).splitlines() for word in line.split()]
    libraries = [Path(word) for word in system if word.startswith("/")]
    documents = work / "container-licences"
    sbom.write(foreign, [find_oniguruma(program), *libraries], documents)
    run(PACKAGING / "container" / "make_root.sh", archive, root, documents)
    names = sorted(path.name for path in root.iterdir())
    write_archive(root, output / "pinfer-container-root.tar.gz", *names)
    shutil.copyfile(PACKAGING / "container" / "Containerfile", output / "Containerfile")


# ---- Debian packages ----


def dependencies(root: Path, work: Path) -> str:
    """ "libc6 (>= 2.36)", from the symbols that program and library use."""
    folder = work / "shlibdeps" / "debian"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "control").write_text("Source: pinfer\n\nPackage: pinfer\nArchitecture: any\n")
    files = [root / "usr/bin/pinfer", *sorted((root / "usr/lib").glob("libpinfer.so.*"))]
    said = run("dpkg-shlibdeps", "-O", *files, cwd=folder.parent)
    return said.strip().removeprefix("shlibs:Depends=")


def write_control(package: str, architecture: str, root: Path, work: Path) -> None:
    control = (PACKAGING / "deb" / f"{package}.control").read_text()
    values = {"VERSION": VERSION, "ARCHITECTURE": architecture}
    if "@DEPENDS@" in control:
        values["DEPENDS"] = dependencies(root, work)
    folder = root / "DEBIAN"
    folder.mkdir()
    files = sorted(
        path for path in root.rglob("*") if path.is_file() and folder not in path.parents
    )
    sums = [
        f"{hashlib.md5(path.read_bytes()).hexdigest()}  {path.relative_to(root)}\n"
        for path in files
        if not path.is_symlink()
    ]
    (folder / "md5sums").write_text("".join(sums))
    # In KiB, every file and directory at least one, as dpkg-gencontrol counts.
    size = sum(-(-path.stat().st_size // 1024) for path in files if not path.is_symlink())
    size += sum(1 for path in root.rglob("*") if path.is_dir() or path.is_symlink())
    values["INSTALLED_SIZE"] = str(size)
    for file in sorted((PACKAGING / "deb").glob(f"{package}.*")):
        text = file.read_text()
        for name, value in values.items():
            text = text.replace(f"@{name}@", value)
        (folder / file.suffix[1:]).write_text(text)
        (folder / file.suffix[1:]).chmod(0o755 if text.startswith("#!") else 0o644)


def debian_changelog(package: str) -> str:
    """In the one form that Debian's tools read; the changes themselves are in CHANGELOG.md."""
    control = (PACKAGING / "deb" / f"{package}.control").read_text()
    maintainer = re.search(r"^Maintainer: (.*)$", control, re.M)
    assert maintainer is not None
    date = email.utils.formatdate(int(os.environ["SOURCE_DATE_EPOCH"]))
    return (
        f"pinfer ({VERSION}) unstable; urgency=medium\n\n"
        f"  * Version {VERSION}; what has changed is in CHANGELOG.md.gz.\n\n"
        f" -- {maintainer[1]}  {date}\n"
    )


def write_gzip(file: Path, content: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(gzip.compress(content, 9, mtime=0))


def make_deb(
    package: str, component: str, build: Path, output: Path, work: Path, documents: Path
) -> None:
    root = work / package
    install(build, root / "usr", component)
    for place, debian in DEBIAN_PLACES.items():
        if (root / place).exists():
            (root / debian).parent.mkdir(parents=True, exist_ok=True)
            (root / place).rename(root / debian)
    for page in root.glob("usr/share/man/man*/*"):
        write_gzip(page.with_name(page.name + ".gz"), page.read_bytes())
        page.unlink()
    document = root / "usr/share/doc" / package
    (document / "LICENSE").unlink(missing_ok=True)  # it is the first part of copyright
    if package == "pinfer":
        shutil.copytree(documents, document, dirs_exist_ok=True)
        for folder in ("etc/pinfer", "var/lib/pinfer"):
            (root / folder).mkdir(parents=True)
    else:
        document.mkdir(parents=True)
        shutil.copyfile(documents / "copyright", document / "copyright")
    write_gzip(document / "CHANGELOG.md.gz", (ROOT / "CHANGELOG.md").read_bytes())
    write_gzip(document / "changelog.gz", debian_changelog(package).encode())
    set_modes(root)
    architecture = run("dpkg", "--print-architecture").strip()
    write_control(package, architecture, root, work)
    # dpkg-deb only lowers times to it; files that CMake made earlier would keep theirs.
    seconds = int(os.environ["SOURCE_DATE_EPOCH"])
    for path in (root, *root.rglob("*")):
        os.utime(path, (seconds, seconds), follow_symlinks=False)
    # One thread: with several, xz cuts its input into blocks.
    run("dpkg-deb", "--root-owner-group", "-Zxz", "--threads-max=1", "--build", root,
        output / f"{package}_{VERSION}_{architecture}.deb")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description="makes packages of a build")
    parser.add_argument("build", type=Path)
    parser.add_argument("output", type=Path)
    arguments = parser.parse_args()
    build = arguments.build.resolve()
    if not (build / "build.ninja").exists():
        sys.exit(f"package: {build} is no build tree")
    os.environ["SOURCE_DATE_EPOCH"] = source_time()
    os.umask(0o022)
    shutil.rmtree(arguments.output, ignore_errors=True)
    arguments.output.mkdir(parents=True)
    output = arguments.output.resolve()
    with tempfile.TemporaryDirectory(prefix="pinfer-package-") as folder:
        work = Path(folder)
        foreign = sbom.packages_in_build(build)
        archive = make_archive(build, output, work, foreign)
        make_container_root(build, output, work, foreign, archive)
        documents = work / "licences"
        sbom.write(foreign, [], documents)
        make_deb("pinfer", "Runtime", build, output, work, documents)
        make_deb("libpinfer-dev", "Development", build, output, work, documents)
    files = sorted(path for path in output.iterdir() if path.is_file())
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (output / "SHA256SUMS").write_text("".join(sums))
    for path in files:
        print(f"{path.stat().st_size:>12,}  {path.name}")


if __name__ == "__main__":
    main()
