"""A copy of a Llama checkpoint that computes the same with other numbers.

Checkpoints that were quantised once lie on a 4-bit grid, and quantising them again costs nothing.
Random factors per channel are multiplied into one weight and divided out of its neighbour: of the
norms into what follows them, of values into the output projection, of `up` into `down`.
"""

import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file


def move_weights(source: Path, target: Path, seed: int = 0) -> None:
    """Writes the copy in float32. `target` must not exist."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.safetensors"))
    weights = {k: v.float() for k, v in load_file(source / "model.safetensors").items()}
    generator = torch.Generator().manual_seed(seed)

    def factors(count: int) -> torch.Tensor:
        """Around 1, so that ranges stay as they are."""
        return torch.exp(0.25 * torch.randn(count, generator=generator))

    layer = 0
    while (prefix := f"model.layers.{layer}") + ".input_layernorm.weight" in weights:
        for norm, readers in (
            ("input_layernorm", ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")),
            ("post_attention_layernorm", ("mlp.gate_proj", "mlp.up_proj")),
        ):
            scale = factors(len(weights[f"{prefix}.{norm}.weight"]))
            weights[f"{prefix}.{norm}.weight"] /= scale
            for reader in readers:
                weights[f"{prefix}.{reader}.weight"] *= scale
        _scale_pair(weights, f"{prefix}.mlp.up_proj", f"{prefix}.mlp.down_proj", factors)
        _scale_values(weights, prefix, factors)
        layer += 1
    save_file(weights, target / "model.safetensors", metadata={"format": "pt"})


def _scale_pair(weights, first, second, factors) -> None:
    scale = factors(len(weights[f"{first}.weight"]))
    weights[f"{first}.weight"] *= scale[:, None]
    weights[f"{second}.weight"] /= scale


def _scale_values(weights, prefix, factors) -> None:
    """Every head that reads a value channel undoes its factor."""
    values, output = f"{prefix}.self_attn.v_proj.weight", f"{prefix}.self_attn.o_proj.weight"
    scale = factors(len(weights[values]))
    weights[values] *= scale[:, None]
    num_kv_features, num_features = len(scale), weights[output].shape[1]
    head_dim = _head_dim(num_kv_features, num_features)
    repeats = num_features // num_kv_features
    by_head = scale.view(-1, head_dim).repeat_interleave(repeats, 0).reshape(-1)
    weights[output] /= by_head


def _head_dim(num_kv_features: int, num_features: int) -> int:
    """64, as all models have that this is used for."""
    assert num_kv_features % 64 == 0 and num_features % num_kv_features == 0
    return 64
