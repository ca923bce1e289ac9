"""Bundles for CUDA, exported on a machine without a GPU."""

import ctypes
import json
import struct
import subprocess
import sys

import cuda_bundles
import pytest
import tiny_models
import torch
from safetensors import safe_open

pytest.importorskip("triton", reason="--device cuda needs triton")

from pinfer.export import cuda_artifact, cuda_sources
from pinfer.runtime.bundle.symbols import CUDA_SYMBOLS
from pinfer.runtime.cuda_weight_format import CudaWeightFormat

# Triton kernels of a layer: norms with what they can be joined with, activation, last sum.
LAYER_KERNELS = {"llama": 4, "qwen3": 7, "gemma2": 4, "gpt2": 7}
SLOW_FAMILIES = [name for name in cuda_bundles.FAMILIES if name != "llama"]  # to compile


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cuda")


def manifest_of(bundle):
    return json.loads((bundle / "manifest.json").read_text())


@pytest.fixture(
    scope="module",
    params=["llama", *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW_FAMILIES)],
)
def exported(request, folder):
    return request.param, cuda_bundles.make_bundle(request.param, folder)


def images_in(data):
    """(architecture, whether for it alone, code) of every kernel of an artifact's bytes."""
    begin = data.find(cuda_artifact.IMAGES_MAGIC)
    while begin >= 0:
        (count,) = struct.unpack_from("<I", data, begin + 8)
        for i in range(count):
            arch, exact, offset, size = struct.unpack_from("<IIQQ", data, begin + 16 + 24 * i)
            yield arch, exact, data[begin + offset : begin + offset + size]
        begin = data.find(cuda_artifact.IMAGES_MAGIC, begin + 1)


def test_bundle_of_each_family(exported):
    name, bundle = exported
    manifest = manifest_of(bundle)
    target = manifest["target"]
    assert target["device"] == "cuda" and target["cuda_archs"] == ["80", "90a"]
    assert manifest["providers"] == ["native"]
    dtype = "float16" if name == "gemma2" else "bfloat16"
    assert manifest["model"]["weight_format"] == {"name": dtype, "group_size": 0}
    assert manifest["kv_cache"] == {"dtype": dtype, "block_size": 16}
    for artifact in manifest["artifacts"].values():
        assert set(artifact["symbols"]) <= CUDA_SYMBOLS
        path = bundle / artifact["file"]
        # Nothing but libc's is taken from the process: no libcudart, no libcuda, no libtorch.
        needed = subprocess.run(
            ["objdump", "-p", path], capture_output=True, text=True, check=True
        ).stdout
        needed = [line.split()[1] for line in needed.splitlines() if "NEEDED" in line]
        assert set(needed) <= {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2"}
        opened = ctypes.CDLL(str(path))  # RTLD_NOW: every undefined name has been found
        assert opened.AOTInductorModelContainerCreateWithDevice
        images = list(images_in(path.read_bytes()))
        assert [arch for arch, _, _ in images] == [80, 90] * (len(images) // 2)
        assert [exact for _, exact, _ in images] == [0, 1] * (len(images) // 2)
        for arch, _, code in images:
            assert cuda_sources.arch_of(code) == arch
        if artifact["file"].startswith("artifacts/decoder_layer"):
            assert len(images) == 2 * LAYER_KERNELS[name]


def test_a_bundle_has_no_path_of_this_machine(exported):
    assert tiny_models.machine_paths_in(exported[1]) == []


def test_weights_are_the_checkpoints(exported, folder):
    name, bundle = exported
    if name != "llama":
        pytest.skip("one family is enough")
    manifest = manifest_of(bundle)
    format = CudaWeightFormat("bfloat16")
    with (
        safe_open(bundle / "weights.safetensors", "pt") as stored,
        safe_open(folder / "llama-plain" / "model.safetensors", "pt") as source,
    ):
        down = stored.get_tensor(manifest["layers"][1]["weights"]["down_weight"])
        expected = source.get_tensor("model.layers.1.mlp.down_proj.weight").bfloat16().float()
        assert torch.equal(format.unpack(down, *expected.shape), expected)
        qkv = stored.get_tensor(manifest["layers"][0]["weights"]["qkv_weight"])
        expected = torch.cat(
            [source.get_tensor(f"model.layers.0.self_attn.{p}_proj.weight") for p in "qkv"]
        )
        assert torch.equal(format.unpack(qkv, *expected.shape), expected.bfloat16().float())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama_fp8", "llama_int4"])
def test_quantised_weights(name, folder):
    bundle = cuda_bundles.make_bundle(name, folder)
    manifest = manifest_of(bundle)
    entry = manifest["model"]["weight_format"]
    format = CudaWeightFormat(entry["name"], entry["group_size"])
    assert format.name == name.removeprefix("llama_").replace("fp8", "float8")
    with (
        safe_open(bundle / "weights.safetensors", "pt") as stored,
        safe_open(folder / "llama-plain" / "model.safetensors", "pt") as source,
    ):
        down = stored.get_tensor(manifest["layers"][1]["weights"]["down_weight"])
        weight = source.get_tensor("model.layers.1.mlp.down_proj.weight")
        found = format.unpack(down, *weight.shape)
    error = (found - weight).square().mean().sqrt() / weight.square().mean().sqrt()
    assert error < {"float8": 0.03, "int4": 0.09}[format.name]


def test_cache_of_fp8(folder):
    bundle = cuda_bundles.make_bundle("llama_fp8_cache", folder)
    manifest = manifest_of(bundle)
    assert manifest["kv_cache"] == {"dtype": "float8_e4m3fn", "block_size": 16}
    assert manifest["model"]["weight_format"]["name"] == "bfloat16"
    found = [(layer["k_scale"], layer["v_scale"]) for layer in manifest["layers"]]
    expected = torch.tensor(cuda_bundles.KV_SCALES["llama_fp8_cache"])  # as float32 has them
    assert torch.equal(torch.tensor(found), expected)
    inputs = manifest["artifacts"]["decoder_layer"]["inputs"]
    caches = [entry for entry in inputs if entry["name"].endswith("_cache")]
    assert [entry["dtype"] for entry in caches] == ["uint8"] * 2


@pytest.mark.slow
def test_two_exports_are_identical(folder, tmp_path):
    first = cuda_bundles.make_bundle("llama", folder)
    tiny_models.export(
        folder / "llama-plain", tmp_path / "again", "--device", "cuda", "--cuda-arch",
        cuda_bundles.ARCHS, "--max-model-len", "128", "--no-cache",
    )  # fmt: skip
    for name in ("manifest.json", "weights.safetensors", "artifacts/decoder_layer.so"):
        assert (first / name).read_bytes() == (tmp_path / "again" / name).read_bytes(), name


@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        (("--dtype", "float32"), 1, "--dtype float32: on --device cuda it is bfloat16 or float16"),
        (("--quantize", "int8"), 1, "--quantize int8: on --device cuda it is fp8 or int4"),
        (("--kv-dtype", "int8"), 1, "--kv-dtype int8: on --device cuda it is bfloat16 or"),
        (("--eval", "README.md"), 1, "--eval runs the model, and --device cuda runs nothing here"),
        (("--provider", "torch"), 1, "bundles for CUDA are served by native alone"),
        (("--cuda-arch", "80,91"), 2, "'91' is none of 80, "),
        (("--backend", "tensorrt"), 1, "--backend tensorrt: missing here: torch_tensorrt"),
    ],
    ids=lambda value: "_".join(value).strip("-") if isinstance(value, tuple) else "",
)
def test_refused(options, status, message, folder, tmp_path):
    checkpoint = folder / "llama-plain"
    if not checkpoint.exists():
        cuda_bundles.make_bundle("llama", folder)
    result = subprocess.run(
        [sys.executable, "-m", "pinfer.export", checkpoint, "-o", tmp_path / "b", "--device",
         "cuda", *options],
        capture_output=True, text=True,
    )  # fmt: skip
    assert result.returncode == status
    last = result.stderr.splitlines()[-1]
    assert last.startswith("pinfer-export: error: ") and message in last
    assert not (tmp_path / "b").exists()


def test_formats_of_cuda_are_refused_on_the_cpu(folder, tmp_path):
    for options in (("--dtype", "float16"), ("--quantize", "fp8"), ("--kv-dtype", "fp8")):
        cuda_bundles.make_bundle("llama", folder)
        result = subprocess.run(
            [sys.executable, "-m", "pinfer.export", folder / "llama-plain", "-o", tmp_path / "b",
             *options],
            capture_output=True, text=True,
        )  # fmt: skip
        assert result.returncode == 1
        assert f"{options[0]} {options[1]}: on --device cpu it is " in result.stderr
