"""One compiled part: a module, its inputs, its free dimensions and the sizes it is traced with."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch
from torch import nn

# Free dimensions: range, and an example size that is taken where it is nobody else's: see
# example_sizes().
FREE_DIMENSIONS: dict[str, tuple[int, int, int]] = {
    "num_tokens": (1, 1 << 20, 23),
    "num_seqs": (1, 1 << 20, 5),
    "max_blocks": (1, 1 << 24, 13),
    "num_blocks": (2, 1 << 28, 29),
    "num_logits": (1, 1 << 20, 7),
}


@dataclass(frozen=True)
class PartInput:
    """One input: name, dtype and shape; free dimensions by name, "num_seqs+1" allowed."""

    name: str
    dtype: torch.dtype
    shape: tuple[int | str, ...]


@dataclass(frozen=True)
class Part:
    """One compiled part: a module, what goes in and what comes out."""

    name: str
    module: nn.Module
    inputs: tuple[PartInput, ...]
    output: PartInput
    inner_sizes: tuple[int, ...] = ()  # of tensors between input and output

    def constants(self) -> dict[str, nn.Parameter]:
        return dict(self.module.named_parameters())


def split_dimension(dimension: str) -> tuple[str, int]:
    """("num_seqs", 1) of "num_seqs+1"."""
    name, _, offset = dimension.partition("+")
    return name, int(offset or 0)


def fixed_sizes(part: Part) -> set[int]:
    """Every size that the model sets: of inputs, output, weights and what lies between."""
    shapes = [entry.shape for entry in (*part.inputs, part.output)]
    shapes += [tuple(value.shape) for value in part.constants().values()]
    return {n for shape in shapes for n in shape if isinstance(n, int)} | set(part.inner_sizes)


def example_sizes(part: Part) -> dict[str, int]:
    """A size for each free dimension of the part: 2 or more, and no other size of the part, or
    torch.export could take the two for one."""
    used = [split_dimension(n) for entry in part.inputs for n in entry.shape if isinstance(n, str)]
    taken = fixed_sizes(part)
    sizes: dict[str, int] = {}
    for name, (_, _, preferred) in FREE_DIMENSIONS.items():
        offsets = {offset for other, offset in used if other == name}
        if offsets:
            sizes[name] = next(
                n for n in itertools.count(preferred) if not taken & {n + o for o in offsets}
            )
            taken |= {sizes[name] + offset for offset in offsets}
    return sizes


def example_inputs(part: Part) -> tuple[torch.Tensor, ...]:
    sizes = example_sizes(part)

    def size(dimension: int | str) -> int:
        if isinstance(dimension, int):
            return dimension
        name, offset = split_dimension(dimension)
        return sizes[name] + offset

    return tuple(
        torch.zeros([size(n) for n in entry.shape], dtype=entry.dtype) for entry in part.inputs
    )
