"""Range checks of configuration fields, with one form of message:
"max_num_seqs must be in [1, 65536], got 0"."""

from __future__ import annotations

from typing import TypeVar

Number = TypeVar("Number", int, float)

MAX_INT = 2**31 - 1


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def field_error(field: str, range_text: str, found: object) -> ValueError:
    return ValueError(f"{field} must be {range_text}, got {_text(found)}")


def check_range(field: str, value: Number, low: Number, high: Number) -> None:
    """Refuses NaN too: no comparison with it holds."""
    if not low <= value <= high:
        raise field_error(field, f"in [{_text(low)}, {_text(high)}]", value)
