"""Log-probabilities at one position: of the token that stands there, and of the best ones."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class TokenLogprobs:
    chosen: float = 0.0  # may be -inf
    top: list[tuple[int, float]] = field(default_factory=list)  # best first; equal ones by id
