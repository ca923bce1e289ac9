"""Traces one compiled part with torch.export: its inputs, free dimensions, example sizes."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch._dynamo.exc import UserError

from pinfer.export.errors import ExportError

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


def trace(part: Part) -> torch.export.ExportedProgram:
    """The part's graph. ExportError naming the part when a dimension cannot stay free."""
    dims = {
        name: torch.export.Dim(name, min=low, max=high)
        for name, (low, high, _) in FREE_DIMENSIONS.items()
    }

    def free(dimension: str) -> Any:
        name, offset = split_dimension(dimension)
        return dims[name] + offset if offset else dims[name]

    shapes = tuple(
        {i: free(n) for i, n in enumerate(entry.shape) if isinstance(n, str)}
        for entry in part.inputs
    )
    try:
        with torch.no_grad():
            return torch.export.export(part.module, example_inputs(part), dynamic_shapes=shapes)
    except UserError as error:
        raise ExportError(_violation(part, str(error))) from error
    except Exception as error:
        raise ExportError(f"{part.name}: torch.export failed: {error}") from error


def _violation(part: Part, message: str) -> str:
    """torch's account of a dimension that cannot stay free, in our words."""
    names = [name for name in example_sizes(part) if re.search(rf"\b{name}\b", message)]
    if not names:
        return f"{part.name}: torch.export failed: {message.splitlines()[0]}"
    fixes = dict(re.findall(r"^ *(\w+) = (.+)$", message, re.M))
    for name in names:
        low, high, _ = FREE_DIMENSIONS[name]
        free = f"{part.name}: {name} must be free from {low} to {high}, but the module"
        fix = fixes.get(name, "")
        if fix.isdecimal():
            return f"{free} fixes it at {fix}"
        if other := [n for n in names if n != name and re.search(rf"\b{n}\b", fix)]:
            return f"{free} ties it to {other[0]}"
    return f"{free} takes only some of its sizes"
