"""Packages of the built tree: what is in them, that it works, that they are reproducible."""

import gzip
import importlib.util
import io
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from unit_checks import MODEL, USER, check_answers, confined, needs_systemd_analyze

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "packaging" / "package.py"
MEGA = 10**6


def unpacked_deb(run, packages, pattern, folder):
    [file] = packages.glob(pattern)
    run("dpkg-deb", "--raw-extract", file, folder)
    return folder


@pytest.fixture(scope="module")
def deb(run, packages, tmp_path_factory):
    """The tree of the package pinfer, its control files below DEBIAN/."""
    return unpacked_deb(run, packages, "pinfer_*.deb", tmp_path_factory.mktemp("deb") / "root")


@pytest.fixture(scope="module")
def archive(run, packages, tmp_path_factory):
    """The archive, unpacked in a folder with a space in its name, and moved."""
    folder = tmp_path_factory.mktemp("archive") / "some where"
    folder.mkdir()
    [file] = packages.glob("pinfer-*-linux-*.tar.gz")
    run("tar", "-xzf", file, "-C", folder)
    [tree] = folder.iterdir()
    return tree.rename(folder / "moved")


@pytest.fixture(scope="module")
def answer(run, pinfer, chat_bundle):
    return run(pinfer, "run", chat_bundle, *MODEL).stdout


def names_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}


# ---- what is in them ----


def test_runtime_package(deb):
    names = names_in(deb)
    assert {
        "usr/bin/pinfer",
        "usr/lib/libpinfer.so.1",
        "usr/lib/systemd/system/pinfer@.service",
        "usr/share/man/man1/pinfer.1.gz",
        "usr/share/bash-completion/completions/pinfer",
        "usr/share/zsh/vendor-completions/_pinfer",
        "usr/share/doc/pinfer/copyright",
        "usr/share/doc/pinfer/changelog.gz",
        "usr/share/doc/pinfer/sbom.spdx.json",
    } <= names
    assert not [name for name in names if name.endswith((".h", ".hpp", ".a", ".so", ".py"))]
    assert (deb / "var/lib/pinfer").is_dir() and (deb / "etc/pinfer").is_dir()
    for path in deb.rglob("*"):
        mode = path.lstat().st_mode
        assert not mode & (stat.S_ISUID | stat.S_ISGID | stat.S_IWOTH) or path.is_symlink(), path


def test_development_package(run, packages, tmp_path):
    tree = unpacked_deb(run, packages, "libpinfer-dev_*.deb", tmp_path / "dev")
    assert {
        "usr/include/pinfer/pinfer.h",
        "usr/include/pinfer/pinfer.hpp",
        "usr/lib/libpinfer.so",
        "usr/lib/libpinfer.a",
        "usr/lib/cmake/pinfer/pinferConfig.cmake",
        "usr/lib/pkgconfig/pinfer.pc",
        "usr/share/doc/libpinfer-dev/copyright",
    } <= names_in(tree)
    assert os.readlink(tree / "usr/lib/libpinfer.so") == "libpinfer.so.1"


def test_control_files(run, packages, deb):
    for file in packages.glob("*.deb"):
        owners = {
            line.split()[1]
            for line in run("dpkg-deb", "--contents", file).stdout.split("\n")
            if line
        }
        assert owners == {"root/root"}
    fields = run("dpkg-deb", "--field", next(packages.glob("pinfer_*.deb"))).stdout
    assert re.search(r"^Depends: libc6 \(>= 2\.\d+\), libonig5$", fields, re.M)
    size = int(re.search(r"^Installed-Size: (\d+)$", fields, re.M)[1])
    real = sum(p.stat().st_size for p in deb.rglob("*") if p.is_file() and "DEBIAN" not in p.parts)
    assert real / 1024 <= size <= real / 1024 + len(list(deb.rglob("*")))
    run("md5sum", "--check", "--quiet", "DEBIAN/md5sums", cwd=deb)
    listed = {line.split("  ")[1] for line in (deb / "DEBIAN/md5sums").read_text().splitlines()}
    assert listed == {n for n in names_in(deb) if not n.startswith("DEBIAN/")}
    for script in ("postinst", "prerm", "postrm"):
        run("sh", "-n", deb / "DEBIAN" / script)
        assert os.access(deb / "DEBIAN" / script, os.X_OK)


def test_manual_has_the_version(run, deb):
    version = re.search(r'^version = "(.*)"', (ROOT / "pyproject.toml").read_text(), re.M)[1]
    page = run("gzip", "-dc", deb / "usr/share/man/man1/pinfer.1.gz").stdout
    assert f'"pinfer {version}"' in page and "@PROJECT" not in page


def test_packages_hold_no_place_of_their_build(packages, deb, archive, build_dir):
    """Neither the source tree nor the build tree is named in any file."""
    for tree in (deb, archive):
        for path in tree.rglob("*"):
            if path.is_file() and not path.is_symlink():
                content = path.read_bytes()
                for place in (ROOT, build_dir.resolve(), Path.home()):
                    assert str(place).encode() not in content, path


def test_sizes(deb, archive, chat_bundle):
    """The program, and all that a server needs but weights."""
    program = (deb / "usr/bin/pinfer").stat().st_size
    runtime = sum(path.stat().st_size for path in deb.rglob("*") if path.is_file())
    oniguruma = (archive / "lib/libonig.so.5").stat().st_size
    compiled = sum(path.stat().st_size for path in (chat_bundle / "artifacts").iterdir())
    print(
        f"program {program:,}; package {runtime:,}; libonig {oniguruma:,}; artifacts {compiled:,}"
    )
    assert program <= 8 * MEGA
    assert runtime + oniguruma + compiled <= 15 * MEGA


def test_lintian_finds_no_error(packages):
    if shutil.which("lintian") is None:
        pytest.skip("no lintian here (Debian: lintian)")
    # No address: the packages are not Debian's.
    ignored = "bogus-mail-host,bogus-mail-host-in-debian-changelog"
    result = subprocess.run(
        ["lintian", "--fail-on", "error", "--allow-root", "--suppress-tags", ignored,
         *map(str, packages.glob("*.deb"))], capture_output=True, text=True,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr


# ---- reproducible ----


def test_two_packagings_are_the_same(run, packages, build_dir, tmp_path):
    """Made again by somebody with other habits."""
    environment = {**os.environ, "TZ": "Pacific/Auckland", "LC_ALL": "C", "TMPDIR": str(tmp_path)}
    code = f"umask 077; exec {sys.executable} {PACKAGE} {build_dir} {tmp_path / 'again'}"
    run("sh", "-c", code, env=environment)
    assert (tmp_path / "again/SHA256SUMS").read_text() == (packages / "SHA256SUMS").read_text()
    run("sha256sum", "--check", "--quiet", "SHA256SUMS", cwd=packages)


def test_archives_are_in_order(packages):
    files = {path.name: path.read_bytes() for path in packages.glob("*.tar.gz")}
    for path in packages.glob("*.deb"):
        command = ["dpkg-deb", "--fsys-tarfile", path]
        files[path.name] = subprocess.run(command, capture_output=True, check=True).stdout
    assert len(files) == 4
    for content in files.values():
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            members = archive.getmembers()
        assert {(m.uid, m.gid) for m in members} == {(0, 0)}
        assert {(m.uname, m.gname) for m in members} in ({("", "")}, {("root", "root")})
        assert len({m.mtime for m in members}) == 1
        assert len({m.name for m in members}) == len(members)


@pytest.mark.slow
def test_two_builds_are_the_same(run, packages, build_dir, tmp_path):
    """The sources somewhere else, compiled again without a cache of objects."""
    source = tmp_path / "elsewhere" / "source"
    source.mkdir(parents=True)
    for name in (
        "CMakeLists.txt",
        "CMakePresets.json",
        "pyproject.toml",
        "LICENSE",
        "CHANGELOG.md",
    ):
        shutil.copy(ROOT / name, source / name)
    for name in ("csrc", "engine_cpp", "packaging", "runtime"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    with tarfile.open(next(packages.glob("pinfer-*-linux-*.tar.gz"))) as archive:
        epoch = str(archive.next().mtime)
    environment = {**os.environ, "CCACHE_DISABLE": "1", "SOURCE_DATE_EPOCH": epoch}
    build = tmp_path / "elsewhere" / "other build"
    run("cmake", "-G", "Ninja", "-S", source, "-B", build, "-DCMAKE_BUILD_TYPE=RelWithDebInfo",
        "-DCMAKE_CXX_COMPILER_LAUNCHER=", env=environment)  # fmt: skip
    run("cmake", "--build", build, "--target", "pinfer_cli", "pinfer_shared", "pinfer_static",
        env=environment)  # fmt: skip
    run(sys.executable, source / "packaging/package.py", build, tmp_path / "again", env=environment)
    assert (tmp_path / "again/SHA256SUMS").read_text() == (packages / "SHA256SUMS").read_text()


# ---- components and licences ----


@pytest.fixture(scope="module")
def sbom(deb):
    return json.loads((deb / "usr/share/doc/pinfer/sbom.spdx.json").read_text())


def sources_in(document: dict) -> dict[str, str]:
    """Licence by Debian source package."""
    found = {}
    for package in document["packages"]:
        for reference in package.get("externalRefs", []):
            source = re.match(r"pkg:deb/debian/([^@]+)@", reference["referenceLocator"])[1]
            found[source] = package["licenseDeclared"]
    return found


def test_sbom_is_spdx(sbom):
    assert sbom["spdxVersion"] == "SPDX-2.3" and sbom["SPDXID"] == "SPDXRef-DOCUMENT"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", sbom["creationInfo"]["created"])
    identifiers = [package["SPDXID"] for package in sbom["packages"]]
    assert len(set(identifiers)) == len(identifiers)
    assert all(re.fullmatch(r"SPDXRef-[A-Za-z0-9.-]+", name) for name in identifiers)
    related = {r["relatedSpdxElement"] for r in sbom["relationships"]}
    assert related == set(identifiers)
    for package in sbom["packages"]:
        assert package["versionInfo"] and package["licenseDeclared"] != "NOASSERTION"


# Who is known by which names in the program. A library with a namespace of its own is found by the
# test below before somebody writes it here.
NAMESPACES = {
    "boost": r"boost1\.\d+", "nlohmann": "nlohmann-json3", "CLI": "cli11", "std": r"gcc-\d+",
    "__gnu_cxx": r"gcc-\d+", "__cxxabiv1": r"gcc-\d+", "pinfer": None,
}  # fmt: skip


def test_sbom_names_what_the_symbols_show(run, sbom, build_dir):
    """Evidence that the list was not made from: names of functions in the unstripped program."""
    symbols = run("nm", "--demangle", build_dir / "engine_cpp" / "cli" / "pinfer").stdout
    functions = re.findall(r"^[0-9a-f]+ [tTwWVu] (.*)$", symbols, re.M)
    spaces = {
        match[1]
        for name in functions
        if (match := re.match(r"(?:typeinfo \w+ for |vtable for )?([A-Za-z_]\w*)::", name))
    }
    spaces -= {space for space in spaces if space.startswith("pinfer_")}
    assert spaces <= set(NAMESPACES), "who is this? see packaging/components.toml"
    listed = sources_in(sbom)
    for space in spaces:
        if NAMESPACES[space] is not None:
            assert any(re.fullmatch(NAMESPACES[space], source) for source in listed), space
    assert ("SSL_new" in functions) == ("openssl" in listed)
    assert "libonig" not in listed  # opened, not linked


def test_sbom_of_the_archive_and_the_container(packages, archive, tmp_path):
    document = json.loads((archive / "share/doc/pinfer/sbom.spdx.json").read_text())
    assert sources_in(document)["libonig"] == "BSD-2-Clause"
    with tarfile.open(packages / "pinfer-container-root.tar.gz") as root:
        inside = json.load(root.extractfile("usr/share/doc/pinfer/sbom.spdx.json"))
    assert {"libonig", "glibc"} <= set(sources_in(inside))
    for package in inside["packages"]:
        if package["name"] == "GNU C Library":
            assert "shipped beside" in package["comment"]


def test_licences_are_there(deb, sbom):
    document = deb / "usr/share/doc/pinfer"
    texts = {}
    for path in (document / "licenses").iterdir():
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
        texts[path.name.removesuffix(".gz")] = content.decode(errors="replace")
    everything = "\n".join(texts.values())
    signs = (
        "Boost Software License",
        "Niels Lohmann",
        "OpenSSL",
        "GCC Runtime Library Exception",
        "University of Cincinnati",
    )
    for sign in signs:
        assert sign.lower() in everything.lower(), sign
    # Where a licence is only named, because every Debian has it, its text is there, too.
    for name in re.findall(r"/usr/share/common-licenses/([A-Za-z0-9.-]*[A-Za-z0-9])", everything):
        assert f"{name}.txt" in texts, name
    copyright_file = (document / "copyright").read_text()
    assert copyright_file.startswith("pinfer is licensed under the Apache License")
    for package in sbom["packages"]:
        assert f"{package['name']} {package['versionInfo']}" in copyright_file or (
            package["name"] == "pinfer"
        )
    for name in re.findall(r"^  licenses/(\S+)$", copyright_file, re.M):
        assert (document / "licenses" / name).is_file(), name


def test_an_unknown_component_stops_the_packaging():
    spec = importlib.util.spec_from_file_location("sbom", ROOT / "packaging" / "sbom.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["sbom"] = module
    spec.loader.exec_module(module)
    with pytest.raises(SystemExit, match=r"dpkg .* look at its licence"):
        module.describe({"dpkg": {"static"}})
    with pytest.raises(SystemExit, match="no Debian package has"):
        module.owners({Path(__file__)})


# ---- they work ----


def test_archive_works_where_it_lies(run, archive, chat_bundle, answer, tmp_path):
    assert run(archive / "bin/pinfer", "run", chat_bundle, *MODEL).stdout == answer
    link = tmp_path / "link"
    link.symlink_to(archive / "bin/pinfer")
    assert run(link, "run", chat_bundle, *MODEL, env={}).stdout == answer


def test_archive_brings_oniguruma(run, archive, chat_bundle):
    """Program and library look for it in the archive first: no run path, no environment."""
    assert (archive / "lib/libonig.so.5").is_file()
    for file in ("bin/pinfer", "lib/libpinfer.so.1", "lib/libonig.so.5"):
        dynamic = run("readelf", "-d", "-W", archive / file).stdout
        assert "RPATH" not in dynamic and "RUNPATH" not in dynamic
        needed = set(re.findall(r"NEEDED.*\[(.*)\]", dynamic))
        assert needed <= {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2"}, (file, needed)


def newest_glibc(run, file: Path) -> tuple[int, ...]:
    symbols = run("objdump", "-T", file).stdout
    found = re.findall(r"GLIBC_([\d.]+)", symbols)
    return max(tuple(map(int, version.split("."))) for version in found)


def test_oldest_glibc_is_the_documented_one(run, archive):
    documented = re.search(r"glibc (\d+)\.(\d+)", (ROOT / "docs" / "deploy.md").read_text())
    least = tuple(map(int, documented.groups()))
    for file in ("bin/pinfer", "lib/libpinfer.so.1", "lib/libonig.so.5"):
        assert newest_glibc(run, archive / file) <= least, file


def test_program_lives_within_the_unit(deb, chat_bundle, answer, free_port):
    needs_systemd_analyze()
    check_answers(confined, deb / "usr/bin/pinfer", chat_bundle, answer,
                  f"http://127.0.0.1:{free_port}")  # fmt: skip


def test_one_file_lives_within_the_unit(deb, chat_bundle, answer, tmp_path):
    """Its code lies in memory, which MemoryDenyWriteExecute must not mind."""
    needs_systemd_analyze()
    standalone = pytest.importorskip("pinfer.export.standalone")
    program = tmp_path / "program"
    standalone.append_bundle(deb / "usr/bin/pinfer", chat_bundle, program)
    with confined(program, *MODEL) as command:
        output, errors = command.communicate(timeout=60)
        assert command.returncode == 0 and output == answer, errors


def test_confinement_confines(tmp_path):
    """The tests above would notice a program that needs more."""
    needs_systemd_analyze()
    code = (
        "import mmap; mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)"
    )
    with confined(sys.executable, "-c", code) as command:
        _, errors = command.communicate(timeout=60)
        assert command.returncode == 1 and "PermissionError" in errors
    with confined(
        sys.executable, "-c", "import socket; socket.socket(socket.AF_NETLINK)"
    ) as command:
        _, errors = command.communicate(timeout=60)
        assert command.returncode == 1 and "not supported" in errors


@pytest.fixture
def container_root(run, packages, tmp_path, chat_bundle):
    """The image's root directory with a bundle in it."""
    if os.geteuid() != 0:
        pytest.skip("chroot needs root")
    root = tmp_path / "root"
    root.mkdir()
    run("tar", "-xzf", packages / "pinfer-container-root.tar.gz", "-C", root)
    shutil.copytree(chat_bundle, root / "bundle", dirs_exist_ok=True)
    tmp_path.chmod(0o755)
    return root


def test_container_holds_nothing_else(packages):
    with tarfile.open(packages / "pinfer-container-root.tar.gz") as root:
        files = {member.name for member in root.getmembers() if member.isfile()}
    outside = {name for name in files if not name.startswith("usr/share/doc/pinfer/")}
    libraries = {name for name in outside if re.search(r"/(ld-linux|libc|libm)[\w.-]*\.so", name)}
    assert {Path(name).name.split(".")[0] for name in libraries} == {
        "ld-linux-x86-64",
        "libc",
        "libm",
    }
    assert outside - libraries == {
        "usr/bin/pinfer", "usr/lib/libonig.so.5", "etc/passwd", "etc/group", "etc/nsswitch.conf",
    }  # fmt: skip


def test_container_works(container_root, answer, free_port):
    """As its user, on a read-only root, without /proc's mount point or anything else."""
    needs_systemd_analyze()
    check_answers(
        lambda *command: confined(*command, root=container_root, env={}),
        Path("/usr/bin/pinfer"), Path("/bundle"), answer, f"http://127.0.0.1:{free_port}",
    )  # fmt: skip


def test_container_recipe_fits(packages, run):
    """Every path that the recipe names is in the archive, and its user, too."""
    recipe = (packages / "Containerfile").read_text()
    [archive_name] = re.findall(r"^ADD (\S+) /$", recipe, re.M)
    with tarfile.open(packages / archive_name) as root:
        names = {member.name for member in root.getmembers()}
        users = root.extractfile("etc/passwd").read().decode()
    assert f"pinfer:x:{USER}:{USER}:" in users and f"USER {USER}:{USER}" in recipe
    assert "usr/bin/pinfer" in names and "bundle" in names and "FROM scratch" in recipe
