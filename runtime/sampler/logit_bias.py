"""Adds SamplingParams.logit_bias."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pinfer.runtime.core.sampling_params import SamplingParams
from pinfer.runtime.sampler.clamp_logit import clamp_logit


def apply_logit_bias(params: SamplingParams, logits: npt.NDArray[np.float32]) -> None:
    """logits[id] += bias, [vocab]; ids outside the vocabulary are passed over."""
    for token_id, bias in params.logit_bias.items():
        if 0 <= token_id < len(logits):
            logits[token_id] = clamp_logit(float(logits[token_id]) + bias)
