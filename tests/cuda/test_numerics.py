"""Whole models on CUDA's path, computed without a GPU: Triton kernels by Triton's interpreter, our
own by the emulation, driven by the real engine; against transformers."""

import json
import os
import subprocess
import sys
from pathlib import Path

import cuda_bundles
import family_models
import pytest
import rounded_cache
import torch
from safetensors import safe_open

pytest.importorskip("triton", reason="--device cuda needs triton")

from pinfer.export import cuda_parts, cuda_sources, trace
from pinfer.runtime.cuda_weight_format import CudaWeightFormat
from pinfer.runtime.layers.layer_spec import HeadSpec, LayerSpec, spec_from_json

PROMPT = [5, 60, 61, 7, 200, 9, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55]
TOLERANCE = 0.12  # of a log-probability: weights, cache, and inputs of products are rounded
DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16,
          "float8_e4m3fn": torch.uint8}  # fmt: skip
FAST = ("llama", "llama_fp8_cache")


def kernels_of(bundle):
    """Triton sources of a bundle's kernels, made again from what its manifest says."""
    manifest = json.loads((bundle / "manifest.json").read_text())
    model = manifest["model"]
    linear = CudaWeightFormat(**model["weight_format"])
    cache = DTYPES[manifest["kv_cache"]["dtype"]]
    kernels = {}
    parts = [
        cuda_parts.decoder_layer(
            name, spec_from_json(LayerSpec, spec), num_freqs(manifest, name), linear, cache, 16
        )
        for name, spec in model["layer_kinds"].items()
    ]
    embedding = CudaWeightFormat(**manifest["embedding"]["format"])
    parts.append(cuda_parts.head(spec_from_json(HeadSpec, model["head"]), embedding))
    for part in parts:
        kernels |= cuda_sources.generate(part, trace.trace(part), (90,)).triton
    return kernels


def num_freqs(manifest, artifact):
    inputs = manifest["artifacts"][artifact]["inputs"]
    return next(entry["shape"][1] for entry in inputs if entry["name"] == "cos")


def take_quantised_weights(model, bundle):
    """A Llama goes on with what the bundle's weights stand for: how much rounding to 8 or 4 bits
    costs is not in question."""
    manifest = json.loads((bundle / "manifest.json").read_text())
    formats = (manifest["model"]["weight_format"], manifest["embedding"]["format"])
    linear, embedding = (CudaWeightFormat(**entry) for entry in formats)
    with safe_open(bundle / "weights.safetensors", "pt") as stored, torch.no_grad():

        def take(format, name, *modules):
            rows = [module.weight.shape[0] for module in modules]
            packed = stored.get_tensor(name)
            weight = format.unpack(packed, sum(rows), modules[0].weight.shape[1])
            for module, part in zip(modules, weight.split(rows), strict=True):
                module.weight.copy_(part)

        for entry, layer in zip(manifest["layers"], model.model.layers, strict=True):
            names, attention, mlp = entry["weights"], layer.self_attn, layer.mlp
            take(linear, names["qkv_weight"], attention.q_proj, attention.k_proj, attention.v_proj)
            take(linear, names["output_weight"], attention.o_proj)
            take(linear, names["up_weight"], mlp.gate_proj, mlp.up_proj)
            take(linear, names["down_weight"], mlp.down_proj)
        take(embedding, manifest["embedding"]["weight"], model.model.embed_tokens)
        take(embedding, manifest["head"]["weights"]["linear_weight"], model.lm_head)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cuda")


@pytest.mark.parametrize(
    "name",
    [
        *FAST,
        *(pytest.param(n, marks=pytest.mark.slow) for n in cuda_bundles.MODELS if n not in FAST),
    ],
)
def test_model_is_transformers(name, folder, build_dir):
    fakes = build_dir / "tests" / "cuda" / "fakes"
    if not (fakes / "libpinfer_cuda.so").exists():
        pytest.skip("the fakes are not built: they need CUDA's headers (tests/gpu/cuda_wheels.py)")
    bundle = cuda_bundles.make_bundle(name, folder)
    kernels = folder / f"{name}-kernels.json"
    kernels.write_text(json.dumps(kernels_of(bundle)))
    result = subprocess.run(
        [sys.executable, Path(__file__).with_name("numerics.py"), bundle, kernels,
         json.dumps(PROMPT)],
        env={**os.environ, "LD_LIBRARY_PATH": str(fakes)}, capture_output=True, text=True,
        timeout=1200,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["failures"] == [] and found["faults"] == "" and found["alive"] == ""
    assert found["is_same_overlapped"], "--async-scheduling changes no number"

    family, variant, _ = cuda_bundles.MODELS[name]
    model = family_models.reference(folder / f"{family}-{variant}")
    if name.startswith("llama_"):
        take_quantised_weights(model, bundle)

    scales = cuda_bundles.kv_scales(name, model.config.num_hidden_layers)

    def differences(ids, first, logprobs, scales=scales):
        """Of log-probabilities of ids[first:]."""
        expected = rounded_cache.logprobs(model, ids, scales)
        expected = expected[torch.arange(first - 1, len(ids) - 1), ids[first:]]
        return (torch.tensor(logprobs) - expected).abs()

    def check(ids, first, logprobs, what):
        difference = differences(ids, first, logprobs)
        assert difference.max() < TOLERANCE, (what, difference)
        return difference.max().item()

    worst = [check(PROMPT, 1, found["scored"][-(len(PROMPT) - 1) :], "prompt")]
    worst.append(check(PROMPT + found["generated"][0], len(PROMPT), found["generated"][1], "alone"))
    for i, (ids, logprobs) in enumerate(found["crowd"]):
        prompt = PROMPT[: 4 + i]
        worst.append(check(prompt + ids, len(prompt), logprobs, f"crowd {i}"))
    if name in cuda_bundles.KV_SCALES:  # they have been used, those of each layer
        for wrong in ([(1.0, 1.0)] * len(scales), scales[::-1]):
            scored = found["scored"][-(len(PROMPT) - 1) :]
            assert differences(PROMPT, 1, scored, wrong).max() > 2 * TOLERANCE
    print(name, "largest difference of a log-probability", max(worst))
