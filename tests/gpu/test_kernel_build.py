"""The CUDA kernels compile for every architecture, without warnings and without spills."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import build_kernels

ARCHS = ["80", "90", "100"]
LOG = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z4goodv' for 'sm_80'
ptxas info    : Function properties for _Z4goodv
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers
ptxas info    : Compiling entry function '_Z3badv' for 'sm_90'
ptxas info    : Function properties for _Z3badv
    16 bytes stack frame, 12 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 255 registers, used 0 barriers, 16 bytes cumulative stack size
"""


@pytest.fixture(scope="module")
def nvcc() -> Path:
    found = build_kernels.find_nvcc()
    if found is None:
        pytest.skip("no nvcc: `python tests/gpu/cuda_wheels.py nvcc` installs one")
    return found


def test_usage_is_read_and_spills_are_bad():
    good, bad = build_kernels.read_usage(LOG)
    assert good == build_kernels.Usage("_Z4goodv", "80", 40, 0, 0) and good.is_good
    assert bad == build_kernels.Usage("_Z3badv", "90", 255, 16, 20) and not bad.is_good
    assert "255 (20)" in build_kernels.table([bad], ["90"])


def test_a_warning_is_an_error(nvcc: Path, tmp_path: Path):
    source = tmp_path / "warning_cuda.cu"
    source.write_text("__global__ void kernel(int* out) { int unused; *out = 1; }\n")
    with pytest.raises(RuntimeError, match="unused"):
        build_kernels.build(nvcc, [source], ["90"], 1, tmp_path)


def test_one_kernel_compiles_for_every_architecture(nvcc: Path, tmp_path: Path):
    source = build_kernels.KERNELS / "argmax_cuda.cu"
    usages = build_kernels.build(nvcc, [source], ARCHS, 1, tmp_path)
    assert sorted(usage.arch for usage in usages) == sorted(ARCHS)
    assert all(usage.is_good for usage in usages)


@pytest.mark.slow
def test_all_kernels_compile_and_link_without_spills(nvcc: Path, tmp_path: Path):
    sources = build_kernels.kernel_sources() + build_kernels.host_sources()
    jobs = len(os.sched_getaffinity(0))
    usages = build_kernels.build(nvcc, sources, ARCHS, jobs, tmp_path)
    print(build_kernels.table(usages, ARCHS))
    print(build_kernels.link(nvcc, [tmp_path / f"{s.stem}.o" for s in sources], tmp_path))
    assert len({usage.kernel for usage in usages}) > 50
    assert [usage for usage in usages if not usage.is_good] == []
