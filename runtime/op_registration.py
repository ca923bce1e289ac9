"""How this package's ops become torch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def register_ops(
    library: torch.library.Library,
    schemas: dict[str, str],
    implementations: dict[str, tuple[Callable[..., Any], Callable[..., Any]]],
    tags: tuple[torch.Tag, ...] = (),
) -> None:
    """Each op by its name: schema, and (implementation on the CPU, fake for tracing)."""
    for name, schema in schemas.items():
        implementation, fake = implementations[name]
        library.define(name + schema, tags=tags)
        library.impl(name, implementation, "CPU")
        torch.library.register_fake(f"{library.ns}::{name}", fake, lib=library)
