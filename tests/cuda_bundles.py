"""Bundles for CUDA of tiny random models of several families, made on a machine without a GPU."""

from pathlib import Path

import family_models
import tiny_models

ARCHS = "80,90"
# name -> (family, variant, options): plain, normalised heads with biases, windows and soft caps
# with heads of an odd size, layer norms with learned positions, quantised weights.
MODELS = {
    "llama": ("llama", "plain", ()),
    "qwen3": ("qwen3", "biases_tied", ()),
    "gemma2": ("gemma2", "plain", ("--dtype", "float16")),
    "gpt2": ("gpt2", "plain", ()),
    "llama_fp8": ("llama", "plain", ("--quantize", "fp8")),
    "llama_int4": ("llama", "plain", ("--quantize", "int4", "--quantize-embedding", "none")),
}
FAMILIES = ("llama", "qwen3", "gemma2", "gpt2")


def make_bundle(name: str, folder: Path) -> Path:
    """folder/NAME-cuda, made once."""
    family, variant, options = MODELS[name]
    bundle = folder / f"{name}-cuda"
    if not bundle.exists():
        checkpoint = family_models.make_checkpoint(family, variant, folder)
        arguments = ("--device", "cuda", "--cuda-arch", ARCHS, "--max-model-len", "128")
        tiny_models.export(checkpoint, bundle, *arguments, *options)
    return bundle
