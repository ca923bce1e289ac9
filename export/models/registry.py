"""Which family reads which architecture. One file per family; this is the only list of them."""

from __future__ import annotations

from collections.abc import Callable

from pinfer.export.checkpoint import Checkpoint
from pinfer.export.errors import ExportError
from pinfer.export.models import llama
from pinfer.export.models.spec import ConfigReader, ModelSpec

FAMILIES: dict[str, Callable[[ConfigReader], ModelSpec]] = {
    name: llama.read_spec for name in llama.ARCHITECTURES
}


def read_spec(checkpoint: Checkpoint) -> ModelSpec:
    """The spec of a checkpoint; refuses unknown architectures and unread config keys by name."""
    config = checkpoint.config
    names = config.get("architectures")
    if not isinstance(names, list) or len(names) != 1 or names[0] not in FAMILIES:
        raise ExportError(
            f"{checkpoint.source}: architectures {names!r} is not supported"
            f" (supported: {', '.join(sorted(FAMILIES))})"
        )
    reader = ConfigReader(checkpoint.source, config)
    spec = FAMILIES[names[0]](reader)
    unread = reader.unread_keys()
    if unread:
        shown = ", ".join(f"{key}={config[key]!r}"[:80] for key in unread)
        raise ExportError(f"{checkpoint.source}: config keys that are not supported: {shown}")
    return spec
