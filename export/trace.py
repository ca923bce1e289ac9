"""Traces one compiled part with torch.export: its inputs, free dimensions, example sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from pinfer.export.errors import ExportError

# Free dimensions: range, and an example size. Examples are larger than 2 and differ from each
# other, or torch.export would freeze a dimension that happens to equal another (or 1).
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

    def constants(self) -> dict[str, nn.Parameter]:
        return dict(self.module.named_parameters())


def example_size(dimension: int | str) -> int:
    if isinstance(dimension, int):
        return dimension
    name, plus, offset = dimension.partition("+")
    return FREE_DIMENSIONS[name][2] + (int(offset) if plus else 0)


def example_inputs(part: Part) -> tuple[torch.Tensor, ...]:
    return tuple(
        torch.zeros([example_size(n) for n in entry.shape], dtype=entry.dtype)
        for entry in part.inputs
    )


def trace(part: Part) -> torch.export.ExportedProgram:
    """The part's graph. ExportError naming the part when a dimension cannot stay free."""
    dims = {
        name: torch.export.Dim(name, min=low, max=high)
        for name, (low, high, _) in FREE_DIMENSIONS.items()
    }

    def free(dimension: str) -> Any:
        name, plus, offset = dimension.partition("+")
        return dims[name] + int(offset) if plus else dims[name]

    shapes = tuple(
        {i: free(n) for i, n in enumerate(entry.shape) if isinstance(n, str)}
        for entry in part.inputs
    )
    try:
        with torch.no_grad():
            return torch.export.export(part.module, example_inputs(part), dynamic_shapes=shapes)
    except Exception as error:
        raise ExportError(f"{part.name}: torch.export failed: {error}") from error
