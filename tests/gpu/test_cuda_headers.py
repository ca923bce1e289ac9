"""What we declare of CUDA in our own words, against NVIDIA's headers and library."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from cuda_wheels import ROOT, find_in_cuda

OURS = ROOT / "export" / "cuda_headers"
DRIVER = ROOT / "csrc" / "shim" / "cuda_driver.h"
FACTS = Path(__file__).with_name("cuda_facts.cc")


def facts(include, folder):
    """As the program prints them; it calls nothing, so no CUDA is linked."""
    program = folder / include.name
    command = ["g++", "-std=c++20", "-w", "-I", str(include), str(FACTS), "-o", str(program)]
    subprocess.run(
        [*command, "-Wl,--unresolved-symbols=ignore-all"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return subprocess.run([program], check=True, capture_output=True, text=True).stdout


def test_headers_for_artifacts_are_cudas(tmp_path):
    header = find_in_cuda("include/cuda_runtime_api.h")
    if header is None or not (header.parent / "cuda.h").exists():
        pytest.skip("CUDA's headers are not here (tests/gpu/cuda_wheels.py headers)")
    ours = facts(OURS, tmp_path)
    assert ours == facts(header.parent, tmp_path)
    assert ours.count("\n") > 35


def driver_functions():
    return re.findall(r'X\(\w+, "(cu\w+)"', DRIVER.read_text())


def test_driver_functions_are_of_the_headers_version(tmp_path):
    """cuda.h makes cuMemAlloc_v2 of cuMemAlloc: programs that are compiled with it ask for that."""
    header = find_in_cuda("include/cuda.h")
    if header is None:
        pytest.skip("CUDA's headers are not here (tests/gpu/cuda_wheels.py headers)")
    asked = driver_functions()
    assert len(asked) > 35
    plain = [re.sub(r"_v\d$", "", name) for name in asked]
    source = tmp_path / "names.cc"
    source.write_text("#include <cuda.h>\n" + "".join(f"{name} ;NAME\n" for name in plain))
    expanded = subprocess.run(
        ["g++", "-E", "-P", "-I", str(header.parent), str(source)],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    assert re.findall(r"(\w+) ;NAME", expanded) == asked
    declared = re.sub(r"\s+", " ", expanded)
    assert not [name for name in asked if f" {name}(" not in declared]


def test_the_fake_driver_has_the_same_names():
    fake = (ROOT / "tests" / "cuda" / "fake_driver.cc").read_text()
    defined = re.findall(r"^DRIVER (cu\w+)\(", fake, re.M)
    assert sorted(defined) == sorted(driver_functions())
