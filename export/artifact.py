"""Compiles generated sources into a self-contained shared object: an artifact.

An artifact has no undefined name but libc's and libm's. Every function that it takes from its
host (the tensor functions of torch's C shim, OpenMP's entry points, vector functions) is reached
through a table: `pinfer_artifact_names` lists the names, zero-terminated, in table order, and
`pinfer_artifact_bind(void** table)` fills it. The engine decides who provides them.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import torch

from pinfer.export.errors import ExportError

BOUND_PREFIXES = ("aoti_torch_", "GOMP_", "omp_", "Sleef_")
# Generated code calls these in static initialisers, before a table can be bound. Their values are
# part of torch's ABI (c10::ScalarType, c10::DeviceType, c10::Layout).
CONSTANT_FUNCTIONS = {
    "aoti_torch_device_type_cpu": 0,
    "aoti_torch_device_type_cuda": 1,
    "aoti_torch_layout_strided": 0,
    "aoti_torch_dtype_uint8": 0,
    "aoti_torch_dtype_int8": 1,
    "aoti_torch_dtype_int16": 2,
    "aoti_torch_dtype_int32": 3,
    "aoti_torch_dtype_int64": 4,
    "aoti_torch_dtype_float16": 5,
    "aoti_torch_dtype_float32": 6,
    "aoti_torch_dtype_float64": 7,
    "aoti_torch_dtype_bool": 11,
    "aoti_torch_dtype_bfloat16": 15,
}
CAPABILITY = {"x86-64-v3": "AVX2", "x86-64-v4": "AVX512"}
# What the compiler may use at these levels, in the names of /proc/cpuinfo; checked before dlopen.
CPU_FEATURES = {
    "x86-64-v3": ("avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "lzcnt", "movbe"),
    "x86-64-v4": (
        "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "lzcnt", "movbe",
        "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl",
    ),
}  # fmt: skip

# The artifact's own copy of the C++ library holds memory for exceptions from the moment it is
# loaded, and gives it back only when asked.
UNLOAD_SOURCE = """
namespace __gnu_cxx { __attribute__((weak)) void __freeres(); }
__attribute__((destructor)) static void release() {
  if (&__gnu_cxx::__freeres != nullptr) __gnu_cxx::__freeres();
}
"""


@dataclass(frozen=True)
class Sources:
    """What an artifact is compiled from."""

    wrapper: str  # the model class, container functions included
    kernels: str  # the fused loops
    constants: tuple[str, ...]  # in the order in which the container numbers them


@dataclass(frozen=True)
class BuiltArtifact:
    path: Path
    symbols: tuple[str, ...]  # names that the engine must bind, in table order


def compiler() -> str:
    """The C++ compiler: $CXX or g++."""
    name = os.environ.get("CXX", "g++")
    found = shutil.which(name)
    if found is None:
        raise ExportError(f"C++ compiler {name!r} not found (set CXX, or install g++)")
    return found


def compiler_version() -> str:
    return run([compiler(), "-dumpfullversion", "-dumpversion"], "compiler").strip()


def resolve_cpu_isa(requested: str) -> str:
    """The level behind a name; `native` is the highest level that this machine has."""
    if platform.machine() != "x86_64":
        raise ExportError(f"--cpu-isa: no level is defined for {platform.machine()} yet")
    if requested != "native":
        return requested
    for level in ("x86-64-v4", "x86-64-v3"):
        if runs_here(level):
            return level
    raise ExportError("--cpu-isa native: this machine has less than x86-64-v3")


def runs_here(cpu_isa: str) -> bool:
    """Whether this machine has all that the level allows the compiler to use."""
    return set(CPU_FEATURES[cpu_isa]) <= _cpu_flags()


def _cpu_flags() -> set[str]:
    text = Path("/proc/cpuinfo").read_text()
    match = re.search(r"^flags\s*:(.*)$", text, re.M)
    flags = set(match.group(1).split()) if match else set()
    if "abm" in flags:
        flags.add("lzcnt")
    return flags


def build(name: str, sources: Sources, cpu_isa: str, folder: Path) -> BuiltArtifact:
    """Compiles and links `sources` in `folder`; the result is `folder/NAME.so`, stripped."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "wrapper.cpp").write_text(without_prints(sources.wrapper))
    (folder / "kernels.cpp").write_text(sources.kernels)
    cxx = compiler()
    generated = [*generated_flags(cpu_isa, folder), "-fopenmp"]
    run([cxx, "-c", "-O1", *generated, "wrapper.cpp", "-o", "wrapper.o"], name, folder)
    run([cxx, "-c", "-O3", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off",
         *generated, "kernels.cpp", "-o", "kernels.o"], name, folder)  # fmt: skip
    return link(name, ["wrapper.o", "kernels.o"], BOUND_PREFIXES, folder)


def link(
    name: str, generated: list[str], bound_prefixes: tuple[str, ...], folder: Path
) -> BuiltArtifact:
    """Links `generated` objects of the folder with what every artifact has. Their undefined names
    that begin with one of bound_prefixes become those that the engine binds."""
    # Where constants in the artifact would stand; there are none, the engine binds them.
    (folder / "constants.c").write_text(
        "const unsigned char _binary_constants_bin_start[1] = {0};\n"
        "const unsigned char _binary_constants_bin_end[1] = {0};\n"
    )
    (folder / "unload.cpp").write_text(UNLOAD_SOURCE)
    # Only these names leave the artifact; templates of the C++ library would otherwise meet those
    # of other libraries in the process.
    (folder / "exports.map").write_text("{ global: AOTInductor*; pinfer_artifact_*; local: *; };\n")
    cxx = compiler()
    run([cxx, "-x", "c", "-c", "-fPIC", "constants.c", "-o", "constants.o"], name, folder)
    run([cxx, "-c", "-O1", "-fPIC", "unload.cpp", "-o", "unload.o"], name, folder)
    symbols = _write_trampolines(folder, name, generated, bound_prefixes)
    run([cxx, "-c", "trampolines.s", "-o", "trampolines.o"], name, folder)
    objects = [*generated, "constants.o", "unload.o", "trampolines.o"]
    options = ["-shared", "-s", "-Wl,-z,defs", "-Wl,--exclude-libs,ALL", "-Wl,--gc-sections",
               "-Wl,--build-id=none", "-Wl,--version-script=exports.map",
               "-static-libstdc++", "-static-libgcc"]  # fmt: skip
    run([cxx, *options, *objects, "-o", f"{name}.so"], name, folder)
    return BuiltArtifact(folder / f"{name}.so", symbols)


def without_prints(wrapper: str) -> str:
    """Errors are reported through AOTInductorGetLastError; a library must not print them too."""
    return wrapper.replace("std::cerr <<", "if (false) std::cerr <<")


def generated_flags(cpu_isa: str, folder: Path) -> list[str]:
    """For generated code in `folder`. The artifact has no path of this machine: it is the same
    bytes wherever torch is installed."""
    include = Path(torch.__file__).parent / "include"
    capability = CAPABILITY[cpu_isa]
    return [
        f"-march={cpu_isa}",
        "-std=c++20",
        "-fPIC",
        "-fvisibility=hidden",
        "-ffunction-sections",
        "-fdata-sections",
        "-w",
        f"-ffile-prefix-map={folder}=.",
        f"-ffile-prefix-map={include}=include",
        f"-DCPU_CAPABILITY={capability}",
        f"-DCPU_CAPABILITY_{capability}",
        "-DTORCH_INDUCTOR_CPP_WRAPPER",
        "-DSTANDALONE_TORCH_HEADER",
        "-DC10_USING_CUSTOM_GENERATED_MACROS",
        "-isystem",
        str(include),
        "-isystem",
        str(include / "torch" / "csrc" / "api" / "include"),
    ]


def _write_trampolines(
    folder: Path, name: str, objects: list[str], bound_prefixes: tuple[str, ...]
) -> tuple[str, ...]:
    listing = run(["nm", *objects], name, folder)
    undefined: set[str] = set()
    defined: set[str] = set()
    for line in listing.splitlines():
        fields = line.split()
        if len(fields) == 2 and fields[0] == "U":
            undefined.add(fields[1])
        elif len(fields) == 3 and fields[1] in "TtWwVvBbDdRr":
            defined.add(fields[2])
    host = {n for n in undefined - defined if n.startswith(bound_prefixes)}
    fixed = sorted(n for n in host if n in CONSTANT_FUNCTIONS)
    bound = tuple(sorted(host - set(fixed)))
    (folder / "trampolines.s").write_text(_trampoline_source(bound, fixed))
    return bound


def _trampoline_source(bound: tuple[str, ...], fixed: list[str]) -> str:
    """x86-64 assembler: a jump through the table for each name, and the two exported symbols."""
    lines = [".intel_syntax noprefix", ".text"]
    for i, name in enumerate(bound):
        lines += [f".globl {name}", f".hidden {name}", f".type {name},@function"]
        lines += [f"{name}: jmp qword ptr [rip+pinfer_table+{8 * i}]"]
    for name in fixed:
        lines += [f".globl {name}", f".hidden {name}", f".type {name},@function"]
        lines += [f"{name}: mov eax,{CONSTANT_FUNCTIONS[name]}", "ret"]
    lines += [".globl pinfer_artifact_bind", ".type pinfer_artifact_bind,@function"]
    lines += ["pinfer_artifact_bind: lea rax,[rip+pinfer_table]", f"mov ecx,{len(bound)}"]
    lines += ["1: mov rdx,[rdi]", "mov [rax],rdx", "add rdi,8", "add rax,8", "dec ecx", "jnz 1b"]
    lines += ["ret", ".globl pinfer_artifact_names", ".type pinfer_artifact_names,@object"]
    lines += [".section .rodata", "pinfer_artifact_names:"]
    lines += [f'.asciz "{name}"' for name in bound]
    lines += [".byte 0", ".bss", ".balign 8", f"pinfer_table: .skip {8 * len(bound)}"]
    lines += ['.section .note.GNU-stack,"",@progbits', ""]
    return "\n".join(lines)


def run(command: list[str], what: str, folder: Path | None = None) -> str:
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if result.returncode != 0:
        lines = result.stderr.strip().splitlines()
        error = next((line for line in lines if "error" in line), lines[-1] if lines else "")
        raise ExportError(f"{what}: {Path(command[0]).name} failed: {error}")
    return result.stdout
