"""The parts of a model as plain modules: what torch.export traces, and what the reference runs.

Residual stream and norms are float32 in every dtype; weights are packed for pinfer::linear, in any
of its formats. The
modules are written for tracing: weights are parameters, sizes come from the spec, and the number
of tokens [num_tokens] and of requests [num_seqs] stay free.
"""

from __future__ import annotations

import torch
from torch import nn

from pinfer.runtime import ops  # noqa: F401  (registers torch.ops.pinfer)
from pinfer.runtime.layers.layer_spec import LayerSpec
from pinfer.runtime.weight_format import WeightFormat


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps))


def apply_rotary(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """x [num_tokens, heads, head_dim], cos and sin [num_tokens, head_dim / 2]."""
    first, second = x.chunk(2, -1)
    cos, sin = cos[:, None], sin[:, None]
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


class DecoderLayer(nn.Module):
    """Attention and gated MLP with their norms. Parameters, in the order of the artifact."""

    def __init__(self, spec: LayerSpec, weights: WeightFormat) -> None:
        super().__init__()
        self.spec = spec
        hidden = spec.hidden_size

        def linear(name: str, out_features: int, in_features: int, bias: bool) -> None:
            shape = weights.packed_shape(out_features, in_features)
            setattr(self, f"{name}_weight", _parameter(shape, weights.dtype))
            if bias:
                setattr(self, f"{name}_bias", _parameter((out_features,), torch.float32))

        self.input_norm_weight = _parameter((hidden,), torch.float32)
        linear("qkv", spec.qkv_features, hidden, spec.attention_bias)
        linear("output", hidden, spec.num_heads * spec.head_dim, spec.output_bias)
        self.post_attention_norm_weight = _parameter((hidden,), torch.float32)
        linear("gate_up", 2 * spec.intermediate_size, hidden, spec.mlp_bias)
        linear("down", hidden, spec.intermediate_size, spec.mlp_bias)

    def _linear(self, name: str, x: torch.Tensor, out_features: int) -> torch.Tensor:
        y = torch.ops.pinfer.linear(x, getattr(self, f"{name}_weight"), out_features)
        bias = getattr(self, f"{name}_bias", None)
        return y if bias is None else y + bias

    def forward(
        self,
        x: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        k_cache: torch.Tensor,
        v_cache: torch.Tensor,
        slot_mapping: torch.Tensor,
        block_table: torch.Tensor,
        seq_lens: torch.Tensor,
        query_start_loc: torch.Tensor,
    ) -> torch.Tensor:
        spec = self.spec
        hidden, head_dim = spec.hidden_size, spec.head_dim
        h = rms_norm(x, self.input_norm_weight, spec.rms_norm_eps)
        qkv = self._linear("qkv", h, spec.qkv_features)
        q, k, v = qkv.split(
            [spec.num_heads * head_dim, spec.num_kv_heads * head_dim, spec.num_kv_heads * head_dim],
            -1,
        )
        attention = torch.ops.pinfer.paged_attention(
            apply_rotary(q.view(-1, spec.num_heads, head_dim), cos, sin),
            apply_rotary(k.view(-1, spec.num_kv_heads, head_dim), cos, sin),
            v.view(-1, spec.num_kv_heads, head_dim).contiguous(),
            k_cache,
            v_cache,
            slot_mapping,
            block_table,
            seq_lens,
            query_start_loc,
            head_dim**-0.5,
            0,
            0.0,
        )
        x = x + self._linear("output", attention.reshape(-1, spec.num_heads * head_dim), hidden)
        h = rms_norm(x, self.post_attention_norm_weight, spec.rms_norm_eps)
        gate, up = self._linear("gate_up", h, 2 * spec.intermediate_size).chunk(2, -1)
        return x + self._linear("down", nn.functional.silu(gate) * up, hidden)


class Head(nn.Module):
    """Final norm and logits of the selected rows."""

    def __init__(self, spec: LayerSpec, vocab_size: int, weights: WeightFormat) -> None:
        super().__init__()
        self.vocab_size = vocab_size
        self.eps = spec.rms_norm_eps
        self.norm_weight = _parameter((spec.hidden_size,), torch.float32)
        shape = weights.packed_shape(vocab_size, spec.hidden_size)
        self.linear_weight = _parameter(shape, weights.dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = rms_norm(x, self.norm_weight, self.eps)
        return torch.ops.pinfer.linear(h, self.linear_weight, self.vocab_size)


def _parameter(shape: tuple[int, ...], dtype: torch.dtype) -> nn.Parameter:
    return nn.Parameter(torch.zeros(shape, dtype=dtype), requires_grad=False)
