"""Bundles for CUDA of tiny random models of several families, made on a machine without a GPU."""

import json
import shutil
from pathlib import Path

import family_models
import tiny_models
import torch
from safetensors.torch import load_file, save_file

ARCHS = "80,90"
# name -> (family, variant, options): plain, normalised heads with biases, windows and soft caps
# with heads of an odd size, layer norms with learned positions, quantised weights, caches of
# another dtype than the weights.
MODELS = {
    "llama": ("llama", "plain", ()),
    "qwen3": ("qwen3", "biases_tied", ()),
    "gemma2": ("gemma2", "plain", ("--dtype", "float16")),
    "gpt2": ("gpt2", "plain", ()),
    "llama_fp8": ("llama", "plain", ("--quantize", "fp8")),
    "llama_int4": ("llama", "plain", ("--quantize", "int4", "--quantize-embedding", "none")),
    "llama_fp8_cache": ("llama", "plain", ("--kv-dtype", "fp8")),
    "llama_float16_cache": ("llama", "plain", ("--kv-dtype", "float16")),
    "qwen3_fp8_cache": ("qwen3", "biases_tied", ("--dtype", "float16", "--kv-dtype", "fp8")),
}
# Scales of K and V by layer that a checkpoint brings. Some are so small that numbers are cut off,
# others so large that numbers are lost: results are wrong with any others.
KV_SCALES = {"llama_fp8_cache": [(2**-9, 0.4), (0.3, 2**-8)]}
FAMILIES = ("llama", "qwen3", "gemma2", "gpt2")


def make_bundle(name: str, folder: Path) -> Path:
    """folder/NAME-cuda, made once."""
    bundle = folder / f"{name}-cuda"
    if not bundle.exists():
        checkpoint = make_checkpoint(name, folder)
        options = MODELS[name][2]
        arguments = ("--device", "cuda", "--cuda-arch", ARCHS, "--max-model-len", "128")
        tiny_models.export(checkpoint, bundle, *arguments, *options)
    return bundle


def make_checkpoint(name: str, folder: Path) -> Path:
    family, variant, _ = MODELS[name]
    plain = family_models.make_checkpoint(family, variant, folder)
    if name not in KV_SCALES:
        return plain
    scaled = folder / f"{name}-checkpoint"
    if not scaled.exists():
        shutil.copytree(plain, scaled)
        add_kv_scales(scaled, KV_SCALES[name])
    return scaled


def add_kv_scales(checkpoint: Path, scales: list[tuple[float, float]]) -> None:
    """As compressed-tensors stores what a cache was calibrated for."""
    config = json.loads((checkpoint / "config.json").read_text())
    scheme = {"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": False,
              "symmetric": True}  # fmt: skip
    config["quantization_config"] = {
        "quant_method": "compressed-tensors",
        "config_groups": {},
        "kv_cache_scheme": scheme,
    }
    (checkpoint / "config.json").write_text(json.dumps(config))
    tensors = load_file(checkpoint / "model.safetensors")
    for i, pair in enumerate(scales):
        for kind, scale in zip("kv", pair, strict=True):
            tensors[f"model.layers.{i}.self_attn.{kind}_scale"] = torch.tensor([scale])
    save_file(tensors, checkpoint / "model.safetensors", {"format": "pt"})


def kv_scales(name: str, num_layers: int) -> list[tuple[float, float]] | None:
    """Of a model whose cache is fp8."""
    if "--kv-dtype fp8" not in " ".join(MODELS[name][2]):
        return None
    return KV_SCALES.get(name, [(1.0, 1.0)] * num_layers)
