"""What can be exported, as tables: `pinfer-export --list-models`, and the one in docs/models.md."""

from __future__ import annotations

from collections.abc import Callable

from pinfer.export.models.registry import FAMILIES, Family

COLUMNS: dict[str, Callable[[str, Family], str]] = {
    "architecture": lambda name, family: name,
    "models": lambda name, family: family.models,
    "sliding window": lambda name, family: "yes" if family.window else "",
    "experts": lambda name, family: "yes" if family.experts else "",
    "weights": lambda name, family: "float32, bfloat16, int8, int4",
}


def _rows() -> list[list[str]]:
    return [[cell(*entry) for cell in COLUMNS.values()] for entry in sorted(FAMILIES.items())]


def models_text() -> str:
    """Columns of plain text."""
    rows = [list(COLUMNS), *_rows()]
    widths = [max(len(row[i]) for row in rows) for i in range(len(COLUMNS))]
    lines = ("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def models_markdown() -> str:
    rows = [list(COLUMNS), ["---"] * len(COLUMNS), *_rows()]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
