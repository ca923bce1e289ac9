"""transformers' KV cache with the numbers that a cache of fp8 holds, for references."""

from __future__ import annotations

import torch
from transformers import DynamicCache, PreTrainedModel

FLOAT8 = torch.float8_e4m3fn
LARGEST = 448.0  # what is larger becomes this


class RoundedCache(DynamicCache):
    """Keys and values as e4m3 times the scales of their layer, (K's, V's)."""

    def __init__(self, scales: list[tuple[float, float]]) -> None:
        super().__init__()
        self._scales = scales

    def update(self, key_states, value_states, layer_idx, *args, **kwargs):
        k_scale, v_scale = self._scales[layer_idx]
        rounded = _rounded(key_states, k_scale), _rounded(value_states, v_scale)
        return super().update(*rounded, layer_idx, *args, **kwargs)


def _rounded(x: torch.Tensor, scale: float) -> torch.Tensor:
    return (x / scale).clamp(-LARGEST, LARGEST).to(FLOAT8).to(x.dtype) * scale


def logprobs(
    model: PreTrainedModel, ids: list[int], scales: list[tuple[float, float]] | None
) -> torch.Tensor:
    """float32 [len(ids), vocabulary]; scales: of a cache of fp8, None for one that does not
    round."""
    cache = None if scales is None else RoundedCache(scales)
    with torch.no_grad():
        out = model(torch.tensor([ids]), past_key_values=cache, use_cache=cache is not None)
    return out.logits[0].float().log_softmax(-1)
