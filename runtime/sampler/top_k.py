"""top_k: the k tokens with the greatest logits; all that equal the k-th are kept."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def kth_greatest(logits: npt.NDArray[np.float32], k: int) -> float:
    """The k-th greatest of the logits; 1 <= k <= len(logits)."""
    return float(np.partition(logits, len(logits) - k)[len(logits) - k])
