"""How the hidden states of a request's tokens become its embedding."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class PoolingMode(Enum):
    LAST = "last"  # the last token's
    MEAN = "mean"  # the mean of all tokens'


@dataclass(frozen=True, slots=True)
class PoolingParams:
    mode: PoolingMode = PoolingMode.LAST
    normalize: bool = True  # to length 1
    dimensions: int = 0  # leading numbers that are kept, before they are normalised; 0: all
