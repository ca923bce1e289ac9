"""Chooses the next token of a request from its logits.

The order is vLLM V1's: allowed_token_ids, bad words, min_tokens, logit_bias, penalties; the best
token if greedy (equal ones: the lowest id); else temperature, min_p, top_k, top_p, one draw. The
draw is the inverse of the cumulated weights in ascending order of id, at random_bits(seed, choice
index, output position). Weights are integers, so that this class and its C++ twin give the same
ids.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from pinfer.runtime.core.model_runner_output import SampledToken
from pinfer.runtime.core.request import Request
from pinfer.runtime.core.sampling_params import SamplingParams
from pinfer.runtime.sampler.candidates import Candidates
from pinfer.runtime.sampler.exp_weight import exp_weights
from pinfer.runtime.sampler.greedy import best_token
from pinfer.runtime.sampler.logit_bias import apply_logit_bias
from pinfer.runtime.sampler.logit_mask import apply_logit_mask, mask_token_ids
from pinfer.runtime.sampler.min_p import apply_min_p
from pinfer.runtime.sampler.penalties import Penalties
from pinfer.runtime.sampler.random_stream import random_bits
from pinfer.runtime.sampler.top_k import kth_greatest
from pinfer.runtime.sampler.top_p import apply_top_p


class Sampler:
    """Depends only on what it is given: the same request and logits give the same token at any
    time."""

    def __init__(self, masked_token_ids: Iterable[int] = ()) -> None:
        """masked_token_ids: ids without a token (padded vocabulary); they are never sampled."""
        self.masked_token_ids = sorted(masked_token_ids)
        self._penalties = Penalties()

    def sample(self, logits: npt.NDArray[np.float32], request: Request) -> SampledToken:
        """logits: [vocab], left as they are. failed if any is NaN or +inf, or if no token is
        left."""
        if best_token(logits) is None:
            return SampledToken(request.request_id, failed=True)
        logits = self._process(logits, request)
        best = best_token(logits)
        if best is None:
            return SampledToken(request.request_id, failed=True)
        if request.sampling_params.is_greedy:
            return SampledToken(request.request_id, best.token_id)
        candidates = _collect_candidates(logits, best.logit, request.sampling_params)
        return SampledToken(request.request_id, _draw(candidates, request))

    def _process(
        self, logits: npt.NDArray[np.float32], request: Request
    ) -> npt.NDArray[np.float32]:
        processed = logits.copy()
        mask_token_ids(self.masked_token_ids, processed)
        apply_logit_mask(request, processed)
        apply_logit_bias(request.sampling_params, processed)
        if Penalties.has_penalties(request.sampling_params):
            self._penalties.apply(request, processed)
        return processed


def _collect_candidates(
    logits: npt.NDArray[np.float32], max_logit: float, params: SamplingParams
) -> Candidates:
    """The tokens that may be drawn, with their weights. top_k and min_p both keep the tokens above
    some logit, so they commute; top_k goes first because it needs no weights."""
    least = -np.inf
    if 0 < params.top_k < len(logits):
        least = kth_greatest(logits, params.top_k)
    token_ids = np.flatnonzero(logits >= least)
    kept = logits[token_ids]
    candidates = Candidates(token_ids, kept, exp_weights(kept, max_logit, params.temperature))
    if params.min_p > 0.0:
        apply_min_p(params.min_p, candidates)
    if params.top_p < 1.0:
        apply_top_p(params.top_p, candidates)
    return candidates


def _draw(candidates: Candidates, request: Request) -> int:
    sums = np.cumsum(candidates.weights)
    bits = random_bits(request.seed, request.choice_index, request.num_output_tokens)
    # floor(bits / 2^64 * total): below the total, so that some token is reached.
    target = (bits * int(sums[-1])) >> 64
    return int(candidates.token_ids[np.searchsorted(sums, target, side="right")])
