"""Version 1 of the C interface: the header, what the library exports, what it promises to keep."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pinfer.runtime.binding import c_api

ROOT = Path(__file__).parents[2]
INCLUDE = ROOT / "engine_cpp" / "include"
HEADER = (INCLUDE / "pinfer" / "pinfer.h").read_text()
DECLARATION = re.compile(r"PINFER_EXPORT ([^;(]*?)(pinfer_\w+)\(([^;]*)\);")
FUNCTIONS = {name: (result.strip(), text) for result, name, text in DECLARATION.findall(HEADER)}


@pytest.fixture(scope="module")
def library(build_dir):
    return build_dir / "engine_cpp" / "libpinfer.so.1"


@pytest.mark.parametrize(
    ("compiler", "language", "standard"),
    [("gcc", "c", "c11"), ("gcc", "c", "c17"), ("g++", "c++", "c++11"), ("g++", "c++", "c++20")],
)
def test_header_compiles_alone(run, compiler, language, standard):
    run(compiler, f"-std={standard}", "-x", language, "-Wall", "-Wextra", "-Wpedantic", "-Werror",
        "-fsyntax-only", INCLUDE / "pinfer" / "pinfer.h")  # fmt: skip


def test_only_the_interface_leaves_the_library(run, library):
    """`name@@VERSION` of everything defined, but for the versions' own entries."""
    symbols = run("nm", "-D", "--defined-only", library).stdout.split("\n")
    exported = dict(line.split()[2].split("@@") for line in symbols if " A " not in line and line)
    assert all(name.startswith("pinfer_") for name in exported)
    assert {name for name, node in exported.items() if node == "PINFER_1"} == set(FUNCTIONS)
    assert set(exported.values()) == {"PINFER_1", "PINFER_PRIVATE"}


def test_soname_and_needs(run, library):
    dynamic = run("readelf", "-d", "-W", library).stdout
    assert re.search(r"SONAME.*\[libpinfer\.so\.1\]", dynamic)
    needed = set(re.findall(r"NEEDED.*\[(.*)\]", dynamic))
    assert needed <= {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2"}, needed
    version = int(re.search(r"#define PINFER_ABI_VERSION (\d+)", HEADER)[1])
    assert version == c_api.ABI_VERSION == c_api.library().pinfer_abi_version() == 1


def test_binary_interface_is_the_frozen_one(run, library):
    assert shutil.which("abidiff"), (
        "install Debian's abigail-tools (packaging/debian_packages.sh test)"
    )
    run(sys.executable, ROOT / "packaging" / "abi" / "check_abi.py", library)


def test_every_function_says_which_threads_may_call_it():
    """The header is the manual: a comment stands before each function, or before its neighbour."""
    for comment, block in re.findall(r"/\*((?:[^*]|\*(?!/))*)\*/\n(PINFER_EXPORT[^/]*)", HEADER):
        for _, name, _ in DECLARATION.findall(block):
            assert re.search(
                r"[Aa]ny\s+thread|[Oo]ne thread|REQUIRES", re.sub(r"\s\*", " ", comment)
            ), name


def test_null_everywhere_never_crashes(run, library):
    """In one process, which says how far it has come."""
    code = ["import ctypes, sys", "library = ctypes.CDLL(sys.argv[1])"]
    for name, (result, parameters) in FUNCTIONS.items():
        count = 0 if parameters == "void" else parameters.count(",") + 1
        code += [
            f"library.{name}.restype = ctypes.{'c_void_p' if '*' in result else 'c_int'}",
            f"print('{name}', library.{name}(*[ctypes.c_void_p(None)] * {count}), flush=True)",
        ]
    said = run(sys.executable, "-c", "\n".join(code), library).stdout.split("\n")
    results = dict(line.rsplit(" ", 1) for line in said if line)
    assert set(results) == set(FUNCTIONS)
    for name, (result, _) in FUNCTIONS.items():
        if result == "pinfer_status" and name != "pinfer_error_status":
            assert c_api.STATUS_NAMES[int(results[name])] == "invalid_argument", name


def test_binding_declares_what_the_header_has():
    """Functions by number of parameters, statuses by name, structs by their fields in order."""
    for name, (_, parameters) in c_api._FUNCTIONS.items():
        declared = [] if FUNCTIONS[name][1] == "void" else FUNCTIONS[name][1].split(",")
        assert len(parameters) == len(declared), name
    library = c_api.library()
    for number, name in enumerate(c_api.STATUS_NAMES):
        assert library.pinfer_status_name(number).decode() == name
    assert library.pinfer_status_name(len(c_api.STATUS_NAMES)) == b"unknown"
    structs = re.findall(r"typedef struct pinfer_(\w+) \{(.*?)\n\}", HEADER, re.S)
    assert len(structs) == 7
    for name, body in structs:
        body = re.sub(r"/\*.*?\*/", "", body, flags=re.S)
        fields = re.findall(r"(\w+);", body)
        struct = getattr(c_api, "".join(part.title() for part in name.split("_")))
        assert [field for field, *_ in struct._fields_] == fields, name


def test_a_library_of_another_version_is_refused(monkeypatch):
    monkeypatch.setattr(c_api, "ABI_VERSION", 2)
    c_api.library.cache_clear()
    with pytest.raises(ImportError, match="expected version 2 of the interface, found 1"):
        c_api.library()
    c_api.library.cache_clear()


def test_import_without_torch_or_anything_else(build_dir):
    """The binding needs the standard library alone: an interpreter without site-packages."""
    package = Path(c_api.__file__).parents[2]
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import pinfer; "
        "engine_error = pinfer.Error; "
        "print(sorted(m for m in ('torch', 'numpy', 'safetensors') if m in sys.modules))\n"
        "try: pinfer.Engine('/no/such/bundle')\n"
        "except pinfer.Error as error: print(error.status)"
    )
    command = [sys.executable, "-I", "-S", "-c", code, str(package.parent)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.stdout.split("\n")[:2] == ["[]", "not_found"], result.stderr
