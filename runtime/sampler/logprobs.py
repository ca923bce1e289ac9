"""Log-probabilities from the raw logits: natural log-softmax, before temperature, penalties,
biases."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from pinfer.runtime.core.token_logprobs import TokenLogprobs
from pinfer.runtime.sampler.exp_weight import exp_sum
from pinfer.runtime.sampler.greedy import best_token


def log_softmax_top(
    logits: npt.NDArray[np.float32],
    k: int,
    chosen: int,
    masked_token_ids: Iterable[int] = (),
) -> TokenLogprobs | None:
    """The chosen token's log-probability and the k best ones (fewer if the vocabulary is smaller).
    masked_token_ids are never listed, but count in the sum. None if the logits are not finite (see
    best_token). logits: [vocab]."""
    best = best_token(logits)
    if best is None:
        return None
    log_sum = math.log(exp_sum(logits, best.logit))
    masked = set(masked_token_ids)
    order = np.argsort(-logits, kind="stable")[: max(k, 0) + len(masked)].tolist()
    top = [token_id for token_id in order if token_id not in masked][: max(k, 0)]

    def logprob(token_id: int) -> float:
        return (float(logits[token_id]) - best.logit) - log_sum

    return TokenLogprobs(logprob(chosen), [(token_id, logprob(token_id)) for token_id in top])
