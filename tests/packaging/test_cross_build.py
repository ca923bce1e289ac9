"""64-bit Arm: csrc and the engine are cross-built (preset cross-aarch64), tests pass under qemu.

The build tree is kept, build/cross-aarch64."""

import shutil
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "cross-aarch64"
# Kernels and threads, and the parts of the engine that know memory layouts and byte orders. (There
# are no vector functions for Arm: vector_math_test has nothing to run.)
TESTS = (
    "thread_pool_test",
    "openmp_test",
    "cpu_count_test",
    "ops_test",
    "moe_test",
    "linear_kernel_test",
    "attention_kernel_test",
    "quantized_kernel_test",
    "moe_kernel_test",
    "core_test",
    "bundle_test",
    "kv_cache_test",
    "scheduler_test",
    "sampler_test",
    "tokenizer_test",
)


@pytest.fixture(scope="module")
def built(run):
    for program in ("aarch64-linux-gnu-g++", "qemu-aarch64-static"):
        if shutil.which(program) is None:
            pytest.skip(f"no {program} here (packaging/debian_packages.sh slow)")
    if not (BUILD / "sysroot").exists():
        run(ROOT / "packaging" / "cross_sysroot.sh", "arm64", BUILD / "sysroot", timeout=600)
    run("cmake", "--preset", "cross-aarch64", cwd=ROOT)
    run("cmake", "--build", "--preset", "cross-aarch64", "--target", *TESTS, "pinfer_shared",
        cwd=ROOT, timeout=7200)  # fmt: skip
    return BUILD


def test_they_are_for_arm(run, built):
    header = run("aarch64-linux-gnu-readelf", "-h", built / "engine_cpp" / "libpinfer.so.1").stdout
    assert "AArch64" in header


@pytest.mark.parametrize("name", TESTS)
def test_passes(run, built, name):
    [program] = [path for path in (built / "tests").rglob(name) if path.is_file()]
    said = run("qemu-aarch64-static", "-L", "/usr/aarch64-linux-gnu", program, "--gtest_brief=1",
               "--gtest_filter=-*Slow.*", timeout=1800).stdout  # fmt: skip
    assert "[  PASSED  ]" in said and "0 tests from 0" not in said
