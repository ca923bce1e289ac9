"""Compiles the CUDA kernels with nvcc, warnings as errors, and prints what each takes.

Usage: python build_kernels.py [--arch 80,90,100] [--jobs 1] [--only TEXT] [--into FOLDER]

Registers and spilled bytes of every kernel on every architecture; exit status 1 if one spills, uses
the stack, or does not compile. Links the result to libpinfer_cuda.so, where the toolkit has
the CUDA runtime. No GPU is needed.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from cuda_wheels import ROOT, find_in_cuda

KERNELS = ROOT / "csrc" / "kernels"
# What every build of the kernels needs; warnings are errors.
NVCC_FLAGS = ["-std=c++20", "-O3", "-lineinfo", "--expt-relaxed-constexpr", f"-I{ROOT}"]
WARNING_FLAGS = ["-Werror", "all-warnings", "-Xcompiler", "-Wall,-Wextra,-Werror,-fPIC"]
ENTRY = re.compile(r"Compiling entry function '(\w+)' for 'sm_(\w+)'")
SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
REGISTERS = re.compile(r"Used (\d+) registers")


@dataclass(frozen=True)
class Usage:
    kernel: str  # as the compiler calls it
    arch: str
    registers: int
    stack_bytes: int
    spill_bytes: int  # stored and loaded

    @property
    def is_good(self) -> bool:
        return self.stack_bytes == 0 and self.spill_bytes == 0


def find_nvcc() -> Path | None:
    if found := find_in_cuda("bin/nvcc"):
        return found
    in_path = shutil.which("nvcc")
    return Path(in_path) if in_path else None


def kernel_sources() -> list[Path]:
    return sorted(KERNELS.glob("*_cuda.cu"))


def host_sources() -> list[Path]:
    return [*sorted(KERNELS.glob("*_cuda.cc")), ROOT / "csrc" / "ops_error.cc"]


def read_usage(log: str) -> Iterator[Usage]:
    """What ptxas says of each kernel, from its -v output."""
    entry: tuple[str, str] | None = None
    spills = (0, 0)
    for line in log.splitlines():
        if found := ENTRY.search(line):
            entry = (found[1], found[2])
        elif found := SPILLS.search(line):
            spills = (int(found[1]), int(found[2]) + int(found[3]))
        elif entry and (found := REGISTERS.search(line)):
            yield Usage(*entry, int(found[1]), *spills)
            entry = None


def compile_source(nvcc: Path, source: Path, archs: list[str], into: Path) -> tuple[Path, str]:
    """(object, log). RuntimeError with the compiler's output."""
    code = [f"-gencode=arch=compute_{arch},code=sm_{arch}" for arch in archs]
    target = into / f"{source.stem}.o"
    command = [str(nvcc), *NVCC_FLAGS, *WARNING_FLAGS, *code, "-Xptxas", "-v"]
    result = subprocess.run(
        [*command, "-c", str(source), "-o", str(target)], capture_output=True, text=True
    )
    if result.returncode:
        raise RuntimeError(f"{source.name}:\n{result.stdout}{result.stderr}")
    return target, result.stdout + result.stderr


def demangled(names: list[str]) -> list[str]:
    """Short names: no namespaces, no parameters."""
    if shutil.which("c++filt") is None:
        return names
    text = subprocess.run(
        ["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True
    ).stdout
    short = []
    for name in text.splitlines():
        name = re.sub(
            r"pinfer::cuda::|\(anonymous namespace\)::|_GLOBAL__N__\w+::|\(int\)", "", name
        )
        short.append(re.sub(r"\([^()]*\)$", "", name.removeprefix("void ")))
    return short


def table(usages: list[Usage], archs: list[str]) -> str:
    """A row for each kernel: registers (spilled bytes) on each architecture."""
    by_kernel: dict[str, dict[str, Usage]] = {}
    for usage in usages:
        by_kernel.setdefault(usage.kernel, {})[usage.arch] = usage
    names = demangled(list(by_kernel))
    width = max(map(len, names), default=0)
    header = "".join(f"{'sm_' + arch:>14}" for arch in archs)
    rows = [f"{'registers (spilled bytes)':{width}}{header}"]
    for name, kernel in sorted(zip(names, by_kernel, strict=True)):
        row = by_kernel[kernel]
        cells = [f"{row[arch].registers} ({row[arch].spill_bytes})" for arch in archs]
        rows.append(f"{name:{width}}" + "".join(f"{cell:>14}" for cell in cells))
    return "\n".join(rows)


def link(nvcc: Path, objects: list[Path], into: Path) -> str:
    """Links a library with no undefined name; says what came of it."""
    home = nvcc.resolve().parents[1]
    folders = [home / folder for folder in ("lib64", "lib", "targets/x86_64-linux/lib")]
    folder = next((each for each in folders if (each / "libcudart_static.a").is_file()), None)
    if folder is None:
        return "not linked: this toolkit has no libcudart_static.a"
    library = into / "libpinfer_cuda.so"
    command = [str(nvcc), "-shared", "-o", str(library), f"-L{folder}", "-Xlinker", "-z,defs"]
    result = subprocess.run([*command, *map(str, objects)], capture_output=True, text=True)
    if result.returncode:
        raise RuntimeError(f"linking:\n{result.stdout}{result.stderr}")
    return f"{library}: {library.stat().st_size / 1e6:.1f} MB"


def build(nvcc: Path, sources: list[Path], archs: list[str], jobs: int, into: Path) -> list[Usage]:
    into.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(jobs) as pool:
        built = list(pool.map(lambda each: compile_source(nvcc, each, archs, into), sources))
    return [usage for _, log in built for usage in read_usage(log)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arch", default="80,90,100")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", default="", help="sources whose name has this, not linked")
    parser.add_argument("--into", type=Path, default=ROOT / "build" / "cuda_kernels")
    options = parser.parse_args()
    archs = options.arch.split(",")
    nvcc = find_nvcc()
    if nvcc is None:
        print("nvcc not found; tests/gpu/cuda_wheels.py nvcc installs it", file=sys.stderr)
        return 1
    try:
        sources = [each for each in kernel_sources() + host_sources() if options.only in each.name]
        usages = build(nvcc, sources, archs, options.jobs, options.into)
        print(table(usages, archs))
        if not options.only:
            print(link(nvcc, [options.into / f"{each.stem}.o" for each in sources], options.into))
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    bad = [usage for usage in usages if not usage.is_good]
    print(f"{len(usages)} kernels, {len(bad)} with spills or stack")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
