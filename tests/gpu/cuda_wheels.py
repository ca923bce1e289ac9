"""CUDA's headers, or headers and compiler, from registry packages, where no toolkit has them.

Usage: python cuda_wheels.py headers|nvcc   (5 MB, 105 MB to download; into build/cuda)
Exit status 0 even if nothing could be installed: what needs them says so and is passed over.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
INSTALLED = ROOT / "build" / "cuda"  # tests/ops/cuda/CMakeLists.txt looks there
WHEEL_HOME = INSTALLED / "nvidia" / "cu13"
HEADERS = ("nvidia-cuda-runtime==13.0.96", "nvidia-cuda-crt==13.0.88", "nvidia-cuda-cccl==13.0.85")
COMPILER = ("nvidia-cuda-nvcc==13.0.88", "nvidia-nvvm==13.0.88")


def cuda_homes() -> Iterator[Path]:
    """Where a toolkit may be, the best first."""
    if home := os.environ.get("CUDA_HOME"):
        yield Path(home)
    yield from sorted(Path("/usr/local").glob("cuda*"), reverse=True)
    yield WHEEL_HOME


def find_in_cuda(name: str) -> Path | None:
    """A file of a toolkit by its relative name: `bin/nvcc`, `include/cuda_fp8.h`."""
    return next((home / name for home in cuda_homes() if (home / name).is_file()), None)


def install(packages: tuple[str, ...]) -> str | None:
    """The reason if they cannot be installed."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade"]
    result = subprocess.run(
        [*command, "--target", str(INSTALLED), *packages], capture_output=True, text=True
    )
    lines = [line for line in result.stderr.splitlines() if line.startswith("ERROR")]
    return (lines or ["pip failed"])[-1] if result.returncode else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("headers", "nvcc"))
    what = parser.parse_args().what
    wanted = "include/cuda_fp8.h" if what == "headers" else "bin/nvcc"
    if found := find_in_cuda(wanted):
        print(f"CUDA {what}: {found}")
        return
    reason = install(HEADERS if what == "headers" else HEADERS + COMPILER)
    consequence = "CUDA kernels are not " + ("emulated" if what == "headers" else "compiled")
    print(f"CUDA {what}: {reason}; {consequence}" if reason else f"CUDA {what}: {WHEEL_HOME}")


if __name__ == "__main__":
    main()
