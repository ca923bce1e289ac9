"""Which tokens may be sampled: allowed_token_ids, none that would complete a bad word, and no end
id before min_tokens."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from pinfer.runtime.core.request import Request


def _is_too_short(request: Request) -> bool:
    return request.num_output_tokens < request.sampling_params.min_tokens


def has_logit_mask(request: Request) -> bool:
    params = request.sampling_params
    return (
        bool(params.allowed_token_ids) or bool(params.bad_words_token_ids) or _is_too_short(request)
    )


def _mask_bad_words(request: Request, logits: npt.NDArray[np.float32]) -> None:
    """A word is completed by its last token where the output ends with the others."""
    output = request.output_token_ids
    for word in request.sampling_params.bad_words_token_ids:
        before = len(word) - 1
        if before <= len(output) and list(output[len(output) - before :]) == word[:-1]:
            mask_token_ids([word[-1]], logits)


def apply_logit_mask(request: Request, logits: npt.NDArray[np.float32]) -> None:
    """Sets the logits of tokens that must not be sampled to -inf. [vocab]"""
    params = request.sampling_params
    if params.allowed_token_ids:
        is_masked = np.ones(len(logits), dtype=bool)
        is_masked[[i for i in params.allowed_token_ids if i < len(logits)]] = False
        logits[is_masked] = -np.inf
    _mask_bad_words(request, logits)
    if not _is_too_short(request):
        return
    if request.eos_token_id is not None:
        mask_token_ids([request.eos_token_id], logits)
    mask_token_ids(request.extra_eos_token_ids, logits)
    mask_token_ids(params.stop_token_ids, logits)


def mask_token_ids(token_ids: Iterable[int], logits: npt.NDArray[np.float32]) -> None:
    """Sets the logits of these ids to -inf; ids outside the vocabulary are passed over."""
    logits[[i for i in token_ids if 0 <= i < len(logits)]] = -np.inf
