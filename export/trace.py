"""Traces one compiled part with torch.export."""

from __future__ import annotations

import re
from typing import Any

import torch
from torch._dynamo.exc import UserError

from pinfer.export.errors import ExportError
from pinfer.export.part import (
    FREE_DIMENSIONS,
    Part,
    example_inputs,
    example_sizes,
    split_dimension,
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
