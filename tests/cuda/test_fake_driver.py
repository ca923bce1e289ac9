"""Real bundles for CUDA in the real engine, over a CUDA driver that needs no GPU."""

import ctypes.util
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import cuda_bundles
import pytest

pytest.importorskip("triton", reason="--device cuda needs triton")

DRIVE = Path(__file__).with_name("drive.py")
MIB = 1 << 20
# What a layer starts, beside kernels of its artifact: a prompt of 19 tokens, and a decode step.
PROMPT_OPS = ["round_rows", "multiply_rows", "write_rotary_cache", "attend_prefill",
              *(["round_rows", "multiply_rows"] * 3)]  # fmt: skip
DECODE_OPS = ["multiply_few_rows", "write_rotary_cache", "attend_split",
              *(["multiply_few_rows"] * 3)]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cuda")


@pytest.fixture(scope="module")
def fakes(build_dir):
    path = build_dir / "tests" / "cuda" / "fakes"
    if not (path / "libpinfer_cuda.so").exists():
        pytest.skip("the fakes are not built: they need CUDA's headers (tests/gpu/cuda_wheels.py)")
    return path


@pytest.fixture(scope="module")
def drive(fakes):
    def run(bundle, mode, **options):
        environment = {**os.environ, "LD_LIBRARY_PATH": str(fakes)}
        result = subprocess.run(
            [sys.executable, DRIVE, bundle, mode, json.dumps(options)],
            env=environment, capture_output=True, text=True, timeout=1200,
        )  # fmt: skip
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)

    return run


def layers_of(launches):
    """Names of our own kernels by step, of the artifact's kernels only how many."""
    steps = []
    for name, *_ in launches:
        if name == "gather_rows" and (not steps or steps[-1][-1] != "gather_rows"):
            steps.append([])
        steps[-1].append(name)
    return steps


FAMILIES = [
    "llama",
    *(
        pytest.param(name, marks=pytest.mark.slow)
        for name in cuda_bundles.MODELS
        if name != "llama"
    ),
]


@pytest.mark.parametrize("name", FAMILIES)
def test_prompt_and_decode_steps(name, folder, drive):
    bundle = cuda_bundles.make_bundle(name, folder)
    manifest = json.loads((bundle / "manifest.json").read_text())
    num_layers = manifest["model"]["num_layers"]
    found = drive(bundle, "run")
    assert found["faults"] == "" and found["alive"] == ""
    assert found["opened"]["faults"] == ""
    assert len(found["token_ids"]) == 21 and found["crowd"] == [6] * 8
    steps = layers_of(found["launches"])
    # The prompt, a decode step as it comes, one that is recorded; 18 more start the graph, and only
    # their heads are launches.
    assert len(steps) == 3
    ours = [[each for each in step if "_triton_" not in each] for step in steps]
    for step, ops in zip(ours, (PROMPT_OPS, DECODE_OPS, DECODE_OPS), strict=True):
        begin = step.index(ops[0])
        assert step[begin : begin + num_layers * len(ops)] == ops * num_layers
    captured = [each for each in found["launches"] if each[4]]
    assert len([each for each in captured if each[0] == "attend_split"]) == num_layers
    assert not any("head" in each[0] for each in captured)
    heads = [each for each in found["launches"] if each[0].startswith("head_")]
    assert len(heads) % 21 == 0 and len(heads) > 0
    # Kernels of the artifact: their grids follow from the tokens, blocks are whole warps.
    for kernel, grid, block, shared_bytes, _ in found["launches"]:
        if "_triton_" in kernel:
            assert grid[0] >= 1 and grid[1] == grid[2] == 1, kernel
            assert block[0] % 32 == 0 and block[0] <= 1024 and block[1] == block[2] == 1
            assert shared_bytes <= 48 * 1024
    norms = [each[1][0] for each in found["launches"] if "_triton_per_" in each[0]]
    assert norms[0] == 19


@pytest.mark.parametrize("async_scheduling", [0, 1])
def test_the_host_waits_once_a_step(async_scheduling, folder, drive):
    """A step is started without waiting. With asynchronous scheduling the crowd, the aborted
    request and the one that is given up are in flight when they end."""
    bundle = cuda_bundles.make_bundle("llama", folder)
    found = drive(bundle, "run", async_scheduling=async_scheduling)
    assert found["faults"] == "" and found["alive"] == ""
    assert len(found["token_ids"]) == 21 and found["crowd"] == [6] * 8
    assert found["waits"] == 21
    # The same steps: what is in none of them is not launched for nothing.
    assert len(layers_of(found["launches"])) == 3


def test_without_graphs_every_step_is_launched(folder, drive):
    bundle = cuda_bundles.make_bundle("llama", folder)
    found = drive(bundle, "run", max_cuda_graph_seqs=0)
    assert found["faults"] == "" and found["alive"] == ""
    assert not any(each[4] for each in found["launches"])
    assert len(layers_of(found["launches"])) == 21


def test_cache_takes_what_memory_is_left(folder, drive):
    bundle = cuda_bundles.make_bundle("llama", folder)
    found = drive(bundle, "run", num_blocks=0, gpu_memory_utilization=0.5)
    assert found["faults"] == "" and found["alive"] == ""
    line = next(line for line in found["log"] if line.startswith("cache: "))
    mib = int(line.split(", ")[1].split()[0])
    # Half of 256, less weights and buffers, of which cuBLASLt's workspace is 32.
    assert 60 <= mib <= 96
    assert any("device: fake GPU, sm_90" in line for line in found["log"])


def check_outcomes(outcomes):
    """Each error is told, and leaves nothing."""
    for outcome in outcomes:
        assert outcome["faults"] == "" and outcome["alive"] == "", outcome
        # Buffers are asked for in large pieces first, then as small as needed.
        assert outcome["error"] or outcome["function"] == "cuMemAlloc", outcome
        # What was running has failed; the engine goes on.
        assert outcome["again"] in (None, 5), outcome
        if outcome["error"] and not re.search(r"out of .* memory: ", outcome["error"]):
            assert "(719)" in outcome["error"] or "(2)" in outcome["error"], outcome
    return {outcome["function"] for outcome in outcomes}


STEP_FUNCTIONS = {
    "cuMemAlloc", "cuMemHostAlloc", "cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuLaunchKernel",
    "cuStreamBeginCapture", "cuStreamEndCapture", "cuGraphInstantiate", "cuGraphLaunch",
    "cuStreamSynchronize",
}  # fmt: skip


def test_an_error_at_any_call_is_told_and_leaves_nothing(folder, drive):
    """230 errors or so: of opening, a prompt, decode steps, recording a graph and starting it."""
    found = drive(cuda_bundles.make_bundle("llama", folder), "inject")
    assert found["calls"] > 100
    assert check_outcomes(found["outcomes"]) >= STEP_FUNCTIONS | {
        "cuInit", "cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuStreamCreate", "cuModuleLoadData",
        "cuModuleGetFunction",
    }  # fmt: skip


def test_an_error_in_flight_is_told_and_leaves_nothing(folder, drive):
    """With asynchronous scheduling: the step behind the one that fails has been scheduled."""
    bundle = cuda_bundles.make_bundle("llama", folder)
    found = drive(bundle, "inject", async_scheduling=1, only_steps=True)
    assert len(found["outcomes"]) > 50
    assert check_outcomes(found["outcomes"]) >= STEP_FUNCTIONS


def test_devices_that_do_not_do_are_refused_with_numbers(folder, drive):
    bundle = cuda_bundles.make_bundle("llama", folder)
    devices = [
        {"devices": 0},
        {"version": 11080},
        {"arch": 75},
        {"arch": 100},
        {"arch": 86},
        {"memory": 64 * 1024},
    ]
    none, old, turing, blackwell, ampere, small = drive(bundle, "refuse", devices=devices)
    assert none == f"{bundle}: compiled for cuda: the CUDA driver has found no device"
    assert old.endswith("the CUDA driver is version 11.8, at least 12.0 is needed")
    assert turing == (
        f"{bundle}: compiled for sm_80, sm_90a, the device (fake GPU) is sm_75;"
        " export again with --cuda-arch 75"
    )
    assert "the device (fake GPU) is sm_100" in blackwell
    assert ampere == ""  # code for 8.0 runs on 8.6
    assert small.startswith("out of device memory: weights take 0.") and "of 0.1 MiB" in small
    engine = {"num_blocks": 0, "gpu_memory_utilization": 0.87}
    (few,) = drive(bundle, "refuse", devices=[{"memory": 40 * MIB}], engine=engine)
    assert few.startswith("device memory leaves 0 MiB for ") and "-model-len 128 needs 8 " in few
    assert few.endswith("or raise --gpu-memory-utilization (0.87)")
    (none,) = drive(bundle, "refuse", devices=[{"memory": 6 * MIB}], engine=engine)
    assert "intermediate buffers take 32.0 MiB, " in none and "of 6.0 MiB are free" in none


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k_scale": None}, "layers[1].k_scale: missing"),
        ({"v_scale": 0}, "layers[1].v_scale: expected a positive number, found 0"),
        ({"v_scale": -2.5}, "layers[1].v_scale: expected a positive number, found -2.5"),
        ({"k_scale": 1e39}, "layers[1].k_scale: expected a positive number, found 1e+39"),
        ({"k_scale": "1"}, 'layers[1].k_scale: expected a number, found "1"'),
    ],
)
def test_scales_of_the_cache_are_checked(change, message, folder, drive, tmp_path):
    bundle = tmp_path / "bundle"
    shutil.copytree(cuda_bundles.make_bundle("llama_fp8_cache", folder), bundle)
    manifest = json.loads((bundle / "manifest.json").read_text())
    layer = {**manifest["layers"][1], **change}
    manifest["layers"][1] = {key: value for key, value in layer.items() if value is not None}
    data = json.dumps(manifest).encode()
    (bundle / "manifest.json").write_bytes(data)
    (bundle / "manifest.sha256").write_text(hashlib.sha256(data).hexdigest())
    (reason,) = drive(bundle, "refuse", devices=[{}])
    assert reason.endswith(f"manifest.{message}")


@pytest.mark.slow
def test_engines_leave_nothing(folder, fakes, build_dir):
    """PINFER_BUILD_DIR may name the tree of a sanitizer."""
    soak = build_dir / "tests" / "engine_cpp" / "engine" / "soak"
    result = subprocess.run(
        [soak, cuda_bundles.make_bundle("llama", folder), "1"],
        env={**os.environ, "LD_LIBRARY_PATH": str(fakes)}, capture_output=True, text=True,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr


def test_without_a_driver(folder, pinfer_library_environment):
    bundle = cuda_bundles.make_bundle("llama", folder)
    code = f"import pinfer; pinfer.Engine({str(bundle)!r})"
    result = subprocess.run(
        [sys.executable, "-c", code], env=pinfer_library_environment, capture_output=True, text=True
    )
    last = result.stderr.splitlines()[-1]
    assert "compiled for cuda: no CUDA driver: libcuda.so.1" in last


@pytest.fixture
def pinfer_library_environment():
    if ctypes.util.find_library("cuda"):
        pytest.skip("this machine has a CUDA driver")
    return {key: value for key, value in os.environ.items() if key != "LD_LIBRARY_PATH"}
