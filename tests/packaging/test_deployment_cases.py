"""Deployments that fail for others (public reports): older processors, quotas, foreign libraries.

Older processors are qemu's user mode emulation of x86-64, which has no AVX-512 either."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

PROMPT = ["-p", "hello", "-n", "8", "--temperature", "0", "--ignore-eos"]


@pytest.fixture(scope="module")
def emulated():
    """emulated(processor, command...) runs a program as if on that processor."""
    emulator = shutil.which("qemu-x86_64-static") or shutil.which("qemu-x86_64")
    if emulator is None:
        pytest.skip("no qemu-x86_64 here (packaging/debian_packages.sh slow)")

    def run(processor: str, *command) -> subprocess.CompletedProcess:
        arguments = [emulator, "-cpu", processor, *map(str, command)]
        return subprocess.run(arguments, capture_output=True, text=True, timeout=900)

    return run


def refused(result: subprocess.CompletedProcess) -> str:
    """The error line of a program that refuses; a signal is no refusal."""
    assert result.returncode == 1, result
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("pinfer: error: ")
    return last


@pytest.mark.slow
def test_avx2_is_enough_for_x86_64_v3(emulated, run, pinfer, chat_bundle):
    """A bundle of the exporter's default, on a processor of 2013."""
    expected = run(pinfer, "run", chat_bundle, *PROMPT).stdout
    result = emulated("Haswell", pinfer, "run", chat_bundle, *PROMPT)
    assert result.returncode == 0 and result.stdout == expected, result.stderr
    line = json.dumps({"prompt": "hello", "max_tokens": 8, "temperature": 0, "ignore_eos": True})
    batch = subprocess.run(
        [shutil.which("qemu-x86_64-static") or "qemu-x86_64", "-cpu", "Haswell",
         pinfer, "batch", chat_bundle],
        input=f"{line}\n{line}\n", capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    answers = [json.loads(answer)["text"] for answer in batch.stdout.splitlines()]
    assert answers == [expected.removesuffix("\n")] * 2


# Programs of tests/ops, without the sets of kernels that SIMDe emulates: those would be emulated
# twice.
OWN_SETS = "-*simde*:*avx512*"
KERNEL_TESTS = [
    "linear_kernel_test", "quantized_kernel_test", "attention_kernel_test", "moe_kernel_test",
    "moe_test", "ops_test",
]  # fmt: skip


def kernel_sets_run(emulated, build_dir, processor: str, name: str) -> set[str]:
    """Runs a program of tests/ops; the sets of kernels whose tests have passed."""
    program = build_dir / "tests" / "ops" / name
    result = emulated(processor, program, f"--gtest_filter={OWN_SETS}")
    assert result.returncode == 0 and "[  PASSED  ]" in result.stdout, result.stdout[-3000:]
    return set(re.findall(r"\[       OK \] \S+/(\w+)", result.stdout))


@pytest.mark.parametrize(
    ("processor", "sets"), [("Haswell", {"portable", "avx2"}), ("Nehalem", {"portable"})]
)
def test_experts_on_older_processors(emulated, build_dir, processor, sets):
    """The quickest of the programs below; none runs kernels that the processor lacks."""
    assert kernel_sets_run(emulated, build_dir, processor, "moe_kernel_test") == sets


@pytest.mark.slow
@pytest.mark.parametrize("name", KERNEL_TESTS)
@pytest.mark.parametrize(
    ("processor", "sets"), [("Haswell", {"portable", "avx2"}), ("Nehalem", {"portable"})]
)
def test_kernels_on_older_processors(emulated, build_dir, processor, sets, name):
    ran = kernel_sets_run(emulated, build_dir, processor, name)
    assert ran == (set() if name == "ops_test" else sets)  # ops_test is about the best one


@pytest.mark.slow
@pytest.mark.parametrize("processor", ["Nehalem", "qemu64"])
def test_older_processors_are_told_what_they_lack(emulated, pinfer, chat_bundle, processor):
    """Everything that runs no compiled code works; the rest is refused before that code is opened,
    by name and not by a signal."""
    assert emulated(processor, pinfer, "--version").returncode == 0
    assert emulated(processor, pinfer, "serve", "--help").returncode == 0
    assert emulated(processor, pinfer, "verify", chat_bundle).returncode == 0
    assert emulated(processor, pinfer, "inspect", chat_bundle).returncode == 0
    for command in (["run", chat_bundle, *PROMPT], ["serve", chat_bundle, "--port", "0"]):
        message = refused(emulated(processor, pinfer, *command))
        assert "lacks" in message and "avx2" in message and "--cpu-isa" in message


@pytest.mark.slow
def test_avx512_code_is_refused_without_avx512(emulated, pinfer, chat_bundle, tmp_path):
    """A manifest that asks for AVX-512, as one of --cpu-isa x86-64-v4 does."""
    bundle = tmp_path / "v4"
    shutil.copytree(chat_bundle, bundle)
    manifest = json.loads((bundle / "manifest.json").read_text())
    manifest["target"]["cpu_isa"] = "x86-64-v4"
    manifest["target"]["cpu_features"] += ["avx512f", "avx512vl"]
    text = json.dumps(manifest, indent=1)
    (bundle / "manifest.json").write_text(text)
    digest = subprocess.run(["sha256sum", bundle / "manifest.json"], capture_output=True, text=True)
    (bundle / "manifest.sha256").write_text(digest.stdout.split()[0])
    message = refused(emulated("Haswell", pinfer, "run", bundle, *PROMPT))
    assert "lacks avx512f" in message and "avx512vl" in message


def test_code_for_one_instruction_set_stays_where_it_is(run, build_dir):
    """An object that is compiled for AVX has no initialiser, which would run on every processor at
    start, and shares no function with others, which could get its copy in place of theirs."""
    objects = [path for path in (build_dir / "csrc").rglob("*.o") if "_avx" in path.name]
    assert len(objects) >= 10
    for path in objects:
        symbols = [line.split() for line in run("nm", path).stdout.splitlines()]
        kinds = {fields[-1]: fields[-2] for fields in symbols}
        assert not [
            name for name, kind in kinds.items() if kind in "WVu" or "_GLOBAL__sub_I" in name
        ], path


def threads_of(*command, **options) -> int:
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True, **options)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stderr.strip().splitlines()[-1])["threads"]


def test_threads_follow_the_affinity_mask(pinfer, chat_bundle):
    """Flag before environment before what the process may use. (Quotas: cpu_count_test.cc.)"""
    processor = str(min(os.sched_getaffinity(0)))
    command = ["taskset", "-c", processor, pinfer, "run", chat_bundle, *PROMPT, "--stats"]
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    assert threads_of(*command, env=environment) == 1
    assert threads_of(*command, env={**environment, "OMP_NUM_THREADS": "3"}) == 3
    assert threads_of(*command, "--threads", "2", env={**environment, "OMP_NUM_THREADS": "3"}) == 2


def test_foreign_libraries_on_the_path_do_not_matter(run, pinfer, chat_bundle, tmp_path):
    """A libtorch, an OpenMP and a C++ library of another kind where the linker looks first."""
    expected = run(pinfer, "run", chat_bundle, *PROMPT).stdout
    for name in ("libtorch_cpu.so", "libc10.so", "libgomp.so.1", "libstdc++.so.6", "libonig.so.5"):
        (tmp_path / name).write_bytes(b"\x7fELF, but no library")
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    assert run(pinfer, "run", chat_bundle, *PROMPT, env=environment).stdout == expected
    # Asked for, it is refused with the linker's reason.
    command = [pinfer, "run", chat_bundle, *PROMPT, "--provider", "torch"]
    environment["PINFER_TORCH_LIB"] = str(tmp_path)
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert "libtorch" in refused(result)


def test_no_python_is_loaded(pinfer, chat_bundle):
    """Of the files that the program opens, none is Python's or a library but libc and libm."""
    if shutil.which("strace") is None:
        pytest.skip("no strace here (Debian: strace)")
    command = ["strace", "-f", "-e", "trace=openat", "-o", "/dev/stdout", pinfer, "run",
               chat_bundle, *PROMPT]  # fmt: skip
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if result.returncode != 0 and "ptrace" in result.stderr:
        pytest.skip("strace may not trace here")
    opened = [
        line.split('"')[1]
        for line in result.stdout.splitlines()
        if '"/' in line and "= -1" not in line
    ]
    libraries = {
        Path(name).name for name in opened if ".so" in name and str(chat_bundle) not in name
    }
    assert libraries <= {"libc.so.6", "libm.so.6", "ld.so.cache"}, libraries
    assert not [name for name in opened if "python" in name]
