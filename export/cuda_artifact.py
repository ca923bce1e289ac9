"""Compiles generated sources for CUDA into an artifact: host code, and kernels for each
architecture.

Like an artifact for the CPU (artifact.py) it has no undefined name but libc's: CUDA's functions are
reached through the table, too, so that it opens where there is no CUDA, and the engine decides who
provides them. No CUDA toolkit is needed: cuda_headers/ declares what the host code uses.

Where the host code takes a kernel's code from there is a list of codes, one for each architecture,
of which the provider loads the one for its device (KernelImages in csrc/shim/cuda_images.h):
    8 bytes        "PFKERNEL"
    uint32         how many; 4 bytes of zeros
    for each       uint32 architecture (compute capability * 10), uint32 1 if for it alone, 0 if for
                   all later ones of its generation; uint64 offset from the list's beginning, uint64
                   bytes
    codes          each at a multiple of 64
"""

from __future__ import annotations

import struct
from pathlib import Path

from pinfer.export.artifact import (
    BOUND_PREFIXES,
    BuiltArtifact,
    compiler,
    generated_flags,
    link,
    run,
    without_prints,
)
from pinfer.export.cuda_sources import CudaSources

HEADERS = Path(__file__).parent / "cuda_headers"
# Of functions that the engine binds beside those of every artifact.
CUDA_PREFIXES = ("cuModule", "cuFunc", "cuGet", "cuLaunch", "cuda")
IMAGES_MAGIC = b"PFKERNEL"
IMAGE_ALIGNMENT = 64


def build(name: str, sources: CudaSources, cpu_isa: str, folder: Path) -> BuiltArtifact:
    """Compiles and links `sources` in `folder`; the result is `folder/NAME.so`, stripped. cpu_isa
    is that of the host code."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "wrapper.cpp").write_text(without_prints(sources.wrapper))
    assembly = [".section .rodata", ".balign 64"]
    for i, (kernel, codes) in enumerate(sources.kernels.items()):
        (folder / f"kernel_{i}.bin").write_bytes(kernel_images(codes))
        symbol = f"__{kernel}_start"
        assembly += [".balign 64", f".globl {symbol}", f".hidden {symbol}", f"{symbol}:"]
        assembly += [f'.incbin "kernel_{i}.bin"']
    assembly += ['.section .note.GNU-stack,"",@progbits', ""]
    (folder / "kernels.s").write_text("\n".join(assembly))
    cxx = compiler()
    flags = [*generated_flags(cpu_isa, folder), "-DUSE_CUDA", "-isystem", str(HEADERS)]
    run([cxx, "-c", "-O1", *flags, "wrapper.cpp", "-o", "wrapper.o"], name, folder)
    run([cxx, "-c", "kernels.s", "-o", "kernels.o"], name, folder)
    return link(name, ["wrapper.o", "kernels.o"], (*BOUND_PREFIXES, *CUDA_PREFIXES), folder)


def kernel_images(codes: dict[str, bytes]) -> bytes:
    """The list of a kernel's codes, by architecture ("80", or "90a": for 9.0 alone)."""
    entries, bodies = b"", b""
    begin = _aligned(len(IMAGES_MAGIC) + 8 + 24 * len(codes))
    for arch, code in codes.items():
        number, exact = int(arch.rstrip("a")), arch.endswith("a")
        entries += struct.pack("<IIQQ", number, exact, begin + len(bodies), len(code))
        bodies += code + bytes(_aligned(len(code)) - len(code))
    head = IMAGES_MAGIC + struct.pack("<II", len(codes), 0) + entries
    return head + bytes(begin - len(head)) + bodies


def _aligned(size: int) -> int:
    return -(-size // IMAGE_ALIGNMENT) * IMAGE_ALIGNMENT
