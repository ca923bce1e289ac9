"""The ops of layers that are compiled for CUDA, registered for torch: schema, fake, and a reference
in plain PyTorch on the CPU.

They differ from those of ops.py in their weights' layout (cuda_weight_format.py), in the cache's,
and in what attention takes: rows of the projection as they lie, since its kernel rotates q and k
while it writes K and V (csrc/kernels/kernels_cuda.h). The reference is for tests: engines call the
kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from pinfer.runtime.cuda_weight_format import CODES, FLOAT8, FLOAT8_MAX, CudaWeightFormat
from pinfer.runtime.op_registration import register_ops

MAX_HEAD_DIM = 256


def padded_head_dim(head_dim: int) -> int:
    return (head_dim + 15) // 16 * 16


def kv_cache_shape(
    num_blocks: int, block_size: int, num_kv_heads: int, head_dim: int
) -> tuple[int, ...]:
    """Of k_cache and v_cache of one layer alike; numbers beyond head_dim are zeros. Those of float8
    are bytes."""
    return (num_blocks, num_kv_heads, block_size, padded_head_dim(head_dim))


def format_of(code: int, group_size: int) -> CudaWeightFormat:
    return CudaWeightFormat(next(name for name, c in CODES.items() if c == code), group_size)


# ---- the reference ----


def _linear(
    x: Tensor, weight: Tensor, format_code: int, group_size: int, out_features: int
) -> Tensor:
    format = format_of(format_code, group_size)
    rounded = x.to(torch.float16 if format.name == "float16" else torch.bfloat16)
    return rounded.float() @ format.unpack(weight, out_features, x.shape[1]).T


def _rotate(x: Tensor, cos: Tensor, sin: Tensor, rotary_dim: int) -> Tensor:
    half = rotary_dim // 2
    first, second, rest = x.split([half, half, x.shape[-1] - rotary_dim], -1)
    cos, sin = cos[:, None], sin[:, None]
    return torch.cat([first * cos - second * sin, second * cos + first * sin, rest], -1)


def _rounded(value: Tensor, dtype: torch.dtype) -> Tensor:
    """As the kernel writes it: what float8 does not reach becomes its largest. A scale of the cache
    is the engine's (layers share their code), and 1 here."""
    if dtype == FLOAT8:
        value = value.clamp(-FLOAT8_MAX, FLOAT8_MAX)
    return value.to(dtype)


def _rotary_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cos: Tensor,
    sin: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    slot_mapping: Tensor,
    block_table: Tensor,
    seq_lens: Tensor,
    query_start_loc: Tensor,
    rotary_dim: int,
    scale: float,
    sliding_window: int,
    logit_softcap: float,
) -> Tensor:
    head_dim, block_size = q.shape[2], k_cache.shape[2]
    if k_cache.dtype == torch.uint8:
        k_cache, v_cache = k_cache.view(FLOAT8), v_cache.view(FLOAT8)
    q, k = _rotate(q, cos, sin, rotary_dim), _rotate(k, cos, sin, rotary_dim)
    for token, slot in enumerate(slot_mapping.tolist()):
        if slot >= 0:
            block, offset = divmod(slot, block_size)
            for cache, value in ((k_cache, k[token]), (v_cache, v[token])):
                cache[block, :, offset, :head_dim] = _rounded(value, cache.dtype)
                cache[block, :, offset, head_dim:] = 0
    out = torch.empty(q.shape, dtype=torch.float32)
    q = q.to(torch.bfloat16 if k_cache.dtype == FLOAT8 else k_cache.dtype).float()
    starts, lens = query_start_loc.tolist(), seq_lens.tolist()
    for request, length in enumerate(lens):
        blocks = block_table[request, : -(-length // block_size)].long()
        keys, values = (  # [num_heads, length, head_dim]
            cache.float()[blocks]
            .transpose(1, 2)
            .flatten(0, 1)[:length, :, :head_dim]
            .transpose(0, 1)
            .repeat_interleave(q.shape[1] // k.shape[1], 0)
            for cache in (k_cache, v_cache)
        )
        for row in range(starts[request], starts[request + 1]):
            position = length - (starts[request + 1] - row)
            first = max(0, position + 1 - sliding_window) if sliding_window else 0
            scores = (keys @ q[row][..., None]).squeeze(-1) * scale
            if logit_softcap:
                scores = logit_softcap * torch.tanh(scores / logit_softcap)
            weights = scores[:, first : position + 1].softmax(-1)[:, None]
            out[row] = (weights @ values[:, first : position + 1]).squeeze(1)
    return out


# ---- fakes ----


def _fake_linear(
    x: Tensor, weight: Tensor, format_code: int, group_size: int, out_features: int
) -> Tensor:
    return x.new_empty(x.shape[0], out_features)


def _fake_rotary_attention(q: Tensor, *others: Any) -> Tensor:
    return q.new_empty(q.shape)


# ---- registration ----

SCHEMAS = {
    "row_linear": (
        "(Tensor x, Tensor weight, int format_code, int group_size, int out_features) -> Tensor"
    ),
    "rotary_attention": (
        "(Tensor q, Tensor k, Tensor v, Tensor cos, Tensor sin, Tensor(a!) k_cache, "
        "Tensor(b!) v_cache, Tensor slot_mapping, Tensor block_table, Tensor seq_lens, "
        "Tensor query_start_loc, int rotary_dim, float scale, int sliding_window, "
        "float logit_softcap) -> Tensor"
    ),
}
_IMPLEMENTATIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "row_linear": (_linear, _fake_linear),
    "rotary_attention": (_rotary_attention, _fake_rotary_attention),
}

_registry = torch.library.Library("pinfer", "FRAGMENT")
# Strides as traced: attention takes rows of the projection as they lie.
register_ops(_registry, SCHEMAS, _IMPLEMENTATIONS, tags=(torch.Tag.needs_exact_strides,))

linear = torch.ops.pinfer.row_linear
rotary_attention = torch.ops.pinfer.rotary_attention

# How compiled code calls an op; csrc/shim/cuda_op_shims.cc defines these functions.
SHIMS: dict[Any, list[str]] = {
    linear.default: [
        "AOTITorchError aoti_torch_cuda_row_linear(AtenTensorHandle x, AtenTensorHandle weight, "
        "int64_t format_code, int64_t group_size, int64_t out_features, AtenTensorHandle* out)"
    ],
    rotary_attention.default: [
        "AOTITorchError aoti_torch_cuda_rotary_attention(AtenTensorHandle q, AtenTensorHandle k, "
        "AtenTensorHandle v, AtenTensorHandle cos, AtenTensorHandle sin, "
        "AtenTensorHandle k_cache, AtenTensorHandle v_cache, AtenTensorHandle slot_mapping, "
        "AtenTensorHandle block_table, AtenTensorHandle seq_lens, "
        "AtenTensorHandle query_start_loc, int64_t rotary_dim, double scale, "
        "int64_t sliding_window, double logit_softcap, AtenTensorHandle* out)"
    ],
}
