"""The best token, and whether the logits can be sampled from at all."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class BestToken:
    token_id: int
    logit: float


def best_token(logits: npt.NDArray[np.float32]) -> BestToken | None:
    """The token with the greatest logit; equal ones: the lowest id. None if any logit is NaN or
    +inf, or all are -inf, or there are none. logits: [vocab]."""
    if logits.size == 0 or not bool(np.all(logits < np.inf)):
        return None
    token_id = int(np.argmax(logits))
    logit = float(logits[token_id])
    return None if logit == -np.inf else BestToken(token_id, logit)
