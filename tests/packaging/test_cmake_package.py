"""Products that embed pinfer: with an installed tree, the Python package, the source tree."""

import ctypes
import os
import re
from pathlib import Path

import pytest

import pinfer as package

ROOT = Path(__file__).parents[2]
CONSUMER = Path(__file__).parent / "consumer"
CONSUMER_C = Path(__file__).parent / "consumer_c"
LIBRARIES = ("pinfer", "pinfer_static")


@pytest.fixture(scope="module")
def expected(run, pinfer, chat_bundle):
    command = [pinfer, "run", chat_bundle, "-n", "8", "--temperature", "0", "-p", "hello"]
    return run(*command).stdout.removesuffix("\n")


def configure(run, source, build, *arguments):
    return run("cmake", "-G", "Ninja", "-S", source, "-B", build, *arguments)


def check_programs(run, folder, names, bundle, expected):
    for name in names:
        assert run(folder / name, bundle, "hello").stdout == expected, name


def test_installed_tree(run, prefix, tmp_path, chat_bundle, expected):
    """Moved after it was installed; all four programs give the command's answer."""
    configure(run, CONSUMER, tmp_path, f"-DCMAKE_PREFIX_PATH={prefix}",
              "-DPINFER_COMPONENTS=shared;static")  # fmt: skip
    run("cmake", "--build", tmp_path)
    names = [f"{language}_with_{library}" for language in ("c", "cpp") for library in LIBRARIES]
    check_programs(run, tmp_path, names, chat_bundle, expected)
    needed = run("readelf", "-d", "-W", tmp_path / "cpp_with_pinfer_static").stdout
    assert "libpinfer" not in needed and "libcrypto" not in needed


def test_project_in_c_alone(run, prefix, tmp_path, chat_bundle, expected):
    configure(run, CONSUMER_C, tmp_path, f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", tmp_path)
    check_programs(run, tmp_path, [f"with_{name}" for name in LIBRARIES], chat_bundle, expected)


def test_pkg_config(run, prefix, tmp_path, chat_bundle, expected):
    """Without CMake; the tree has a space in its path, which pkg-config escapes for the shell."""
    [folder] = prefix.rglob("pkgconfig")
    environment = {**os.environ, "PKG_CONFIG_PATH": str(folder)}
    for package_name in ("pinfer", "pinfer-static"):
        program = tmp_path / package_name
        flags = f"$(pkg-config --cflags --libs {package_name})"
        line = f"""eval gcc -std=c11 "'$1'" -o "'$2'" "{flags}\""""
        run("sh", "-c", line, "sh", CONSUMER / "main.c", program, env=environment)
        found = {**os.environ, "LD_LIBRARY_PATH": str(folder.parent)}
        assert run(program, chat_bundle, "hello", env=found).stdout == expected
    version = run("pkg-config", "--modversion", "pinfer", env=environment).stdout.strip()
    assert f'version = "{version}"' in (ROOT / "pyproject.toml").read_text()


def test_versions_and_components_are_checked(run, prefix, tmp_path):
    project = "cmake_minimum_required(VERSION 3.25)\nproject(p LANGUAGES C)\n"
    for number, (wanted, message) in enumerate(
        {
            "9.0": "9.0",
            "0.1 COMPONENTS shared no_such_part": "has no component no_such_part",
        }.items()
    ):
        source = tmp_path / str(number)
        source.mkdir()
        (source / "CMakeLists.txt").write_text(f"{project}find_package(pinfer {wanted} REQUIRED)")
        with pytest.raises(AssertionError, match=re.escape(message)):
            configure(run, source, source / "build", f"-DCMAKE_PREFIX_PATH={prefix}")


def test_static_library_has_no_other_names(run, prefix):
    """It can be linked beside other copies of what it contains."""
    [library] = prefix.rglob("libpinfer.a")
    symbols = run("nm", "--defined-only", "--extern-only", library).stdout.split("\n")
    names = {line.split()[2] for line in symbols if len(line.split()) == 3}
    header = (prefix / "include" / "pinfer" / "pinfer.h").read_text()
    assert names == set(re.findall(r"PINFER_EXPORT [^;(]*?(pinfer_\w+)\(", header))


def test_python_package(run, tmp_path, chat_bundle, expected):
    """The wheel's files: shared library only."""
    [prefix] = package.__path__
    if not (Path(prefix) / "lib" / "cmake").is_dir():
        pytest.skip("pinfer does not run from an installed wheel")
    configure(run, CONSUMER, tmp_path, f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", tmp_path)
    check_programs(run, tmp_path, ["c_with_pinfer", "cpp_with_pinfer"], chat_bundle, expected)
    assert not (tmp_path / "c_with_pinfer_static").exists()
    # The plain name opens it, for who loads it by hand.
    assert ctypes.CDLL(Path(prefix) / "lib" / "libpinfer.so").pinfer_abi_version() == 1


def test_source_tree_configures(run, tmp_path):
    """As a part of another project, pinfer asks for what the library needs, and brings no tests."""
    result = configure(run, CONSUMER, tmp_path, f"-DPINFER_SOURCE={ROOT}")
    assert "CMake Warning" not in result.stderr
    assert not re.search("Boost_DIR|OPENSSL_", (tmp_path / "CMakeCache.txt").read_text())
    targets = run("ninja", "-C", tmp_path, "-t", "targets", "all").stdout
    for library in LIBRARIES:
        assert f"c_with_{library}: phony" in targets or f"c_with_{library}: C_EXECUTABLE" in targets
    assert "c_api_test" not in targets and "pinfer_cli" not in targets


@pytest.mark.slow
def test_source_tree(run, tmp_path, chat_bundle, expected):
    """The whole of it, which compiles everything again."""
    configure(run, CONSUMER, tmp_path, f"-DPINFER_SOURCE={ROOT}", "-DCMAKE_BUILD_TYPE=Release")
    run("cmake", "--build", tmp_path, "-j", "2")
    names = [f"{language}_with_{library}" for language in ("c", "cpp") for library in LIBRARIES]
    check_programs(run, tmp_path, names, chat_bundle, expected)


@pytest.mark.slow
def test_examples_with_the_installed_tree(run, prefix, tmp_path, chat_bundle):
    configure(run, ROOT / "packaging" / "examples", tmp_path, f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", tmp_path)
    run("sh", "-c", 'echo hello | "$0" "$1"', tmp_path / "pinfer_batch", chat_bundle)
