"""min_p: tokens at least min_p times as likely as the best one."""

from __future__ import annotations

import math

from pinfer.runtime.sampler.candidates import Candidates
from pinfer.runtime.sampler.exp_weight import WEIGHT_BITS


def apply_min_p(min_p: float, candidates: Candidates) -> None:
    """0 <= min_p <= 1. The best token always stays."""
    candidates.keep_if(candidates.weights >= math.ceil(math.ldexp(min_p, WEIGHT_BITS)))
