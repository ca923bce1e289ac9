"""Repetition, frequency and presence penalties."""

from __future__ import annotations

from collections import Counter

import numpy as np
import numpy.typing as npt

from pinfer.runtime.core.request import Request
from pinfer.runtime.core.sampling_params import SamplingParams
from pinfer.runtime.sampler.clamp_logit import clamp_logit


class Penalties:
    @staticmethod
    def has_penalties(params: SamplingParams) -> bool:
        return (
            params.repetition_penalty != 1.0
            or params.frequency_penalty != 0.0
            or params.presence_penalty != 0.0
        )

    def apply(self, request: Request, logits: npt.NDArray[np.float32]) -> None:
        """Repetition first (prompt and output, each token once: positive logits divided, negative
        ones multiplied), then frequency and presence (output only). [vocab]"""
        params = request.sampling_params
        counts = Counter(request.output_token_ids)
        for token_id in set(request.all_token_ids):
            if not 0 <= token_id < len(logits):
                continue
            logit = float(logits[token_id])
            penalty = params.repetition_penalty
            logit = logit / penalty if logit > 0.0 else logit * penalty
            if counts[token_id] > 0:
                logit -= params.frequency_penalty * counts[token_id]
                logit -= params.presence_penalty
            logits[token_id] = clamp_logit(logit)
