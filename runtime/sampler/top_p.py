"""top_p: the fewest of the most likely tokens whose probabilities reach top_p."""

from __future__ import annotations

import math

import numpy as np

from pinfer.runtime.sampler.candidates import Candidates


def apply_top_p(top_p: float, candidates: Candidates) -> None:
    """A token stays if the tokens before it (greater logit, or equal logit and lower id) together
    have less than top_p of the probability; so at least one stays. 0 < top_p < 1."""
    limit = math.ceil(top_p * float(int(candidates.weights.sum())))
    order = np.argsort(-candidates.logits, kind="stable")
    sums = np.cumsum(candidates.weights[order])
    num_kept = int(np.searchsorted(sums, limit)) + 1
    keep = np.zeros(len(order), dtype=bool)
    keep[order[:num_kept]] = True
    candidates.keep_if(keep)
