"""A copy of a Llama checkpoint that computes the same with other numbers.

Checkpoints that were quantised once lie on a 4-bit grid, and quantising them again costs nothing.
Random factors per channel are multiplied into one weight and divided out of its neighbour: of the
norms into what follows them, of values into the output projection, of `up` into `down`.
"""

import dataclasses

import torch

from pinfer.export.checkpoint import ALL_ROWS, Checkpoint, FloatTensors


class TensorsInMemory(FloatTensors):
    """A TensorSource."""

    def __init__(self, tensors: dict[str, torch.Tensor]) -> None:
        self._tensors = tensors

    def names(self):
        return self._tensors.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._tensors[name].shape)

    def load(self, name: str, rows: slice = ALL_ROWS) -> torch.Tensor:
        return self._tensors[name][rows]


def with_weights(checkpoint: Checkpoint, tensors: dict[str, torch.Tensor]) -> Checkpoint:
    return dataclasses.replace(checkpoint, tensors=TensorsInMemory(tensors), dtype="float32")


def moved_weights(checkpoint: Checkpoint, seed: int = 0) -> dict[str, torch.Tensor]:
    """All weights, float32."""
    tensors = checkpoint.tensors
    weights = {name: tensors.load(name).float().clone() for name in tensors.names()}
    generator = torch.Generator().manual_seed(seed)

    def factors(count: int) -> torch.Tensor:
        """Around 1, so that ranges stay as they are."""
        return torch.exp(0.25 * torch.randn(count, generator=generator))

    for layer in range(checkpoint.config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}"
        for norm, readers in (
            ("input_layernorm", ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")),
            ("post_attention_layernorm", ("mlp.gate_proj", "mlp.up_proj")),
        ):
            scale = factors(len(weights[f"{prefix}.{norm}.weight"]))
            weights[f"{prefix}.{norm}.weight"] /= scale
            for reader in readers:
                weights[f"{prefix}.{reader}.weight"] *= scale
        scale = factors(len(weights[f"{prefix}.mlp.up_proj.weight"]))
        weights[f"{prefix}.mlp.up_proj.weight"] *= scale[:, None]
        weights[f"{prefix}.mlp.down_proj.weight"] /= scale
        _scale_values(weights, prefix, checkpoint.config["head_dim"], factors)
    return weights


def _scale_values(weights, prefix: str, head_dim: int, factors) -> None:
    """Every head that reads a value channel undoes its factor."""
    values, output = f"{prefix}.self_attn.v_proj.weight", f"{prefix}.self_attn.o_proj.weight"
    scale = factors(len(weights[values]))
    weights[values] *= scale[:, None]
    repeats = weights[output].shape[1] // len(scale)
    weights[output] /= scale.view(-1, head_dim).repeat_interleave(repeats, 0).reshape(-1)
