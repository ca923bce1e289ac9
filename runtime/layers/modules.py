"""The parts of a model as plain modules: what torch.export traces, and what the reference runs.

Residual stream and norms are float32 in every dtype; weights are packed for pinfer::linear, in any
of its formats. The modules are written for tracing: weights are parameters, sizes and switches
come from the spec, and the number of tokens [num_tokens] and of requests [num_seqs] stay free.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from pinfer.runtime import ops
from pinfer.runtime.layers.layer_spec import NORMS, HeadSpec, LayerSpec
from pinfer.runtime.weight_format import FLOAT32, WeightFormat

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": nn.functional.silu,
    "gelu": nn.functional.gelu,
    "gelu_tanh": lambda x: nn.functional.gelu(x, approximate="tanh"),
    "relu": nn.functional.relu,
}


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps))


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return weight * (centred * torch.rsqrt(centred.pow(2).mean(-1, keepdim=True) + eps)) + bias


def apply_rotary(x: Tensor, cos: Tensor, sin: Tensor, rotary_dim: int) -> Tensor:
    """x [num_tokens, heads, head_dim]: its first rotary_dim numbers rotated as two halves; cos and
    sin [num_tokens, rotary_dim / 2]."""
    if rotary_dim == 0:
        return x
    first, second, rest = x.split([rotary_dim // 2, rotary_dim // 2, x.shape[-1] - rotary_dim], -1)
    cos, sin = cos[:, None], sin[:, None]
    rotated = [first * cos - second * sin, second * cos + first * sin]
    return torch.cat([*rotated, rest] if rotary_dim < x.shape[-1] else rotated, -1)


def softcap(x: Tensor, cap: float) -> Tensor:
    return cap * torch.tanh(x / cap) if cap else x


def embed(
    token_ids: Tensor,
    positions: Tensor,
    weight: Tensor,
    position_weight: Tensor | None,
    scale: float,
    hidden_size: int,
) -> Tensor:
    """x [num_tokens, hidden_size] of token ids and positions [num_tokens], int32; tables packed."""
    x = ops.embedding(token_ids, weight, hidden_size)
    if position_weight is not None:
        x = x + ops.embedding(positions, position_weight, hidden_size)
    return x if scale == 1.0 else x * scale


class _Part(nn.Module):
    """Norms and packed linear weights by name."""

    def __init__(self, norm: str, norm_eps: float) -> None:
        super().__init__()
        self._norm_kind, self._eps = norm, norm_eps

    def _add_norm(self, name: str, size: int) -> None:
        setattr(self, f"{name}_weight", _parameter((size,), torch.float32))
        if self._norm_kind == "layer":
            setattr(self, f"{name}_bias", _parameter((size,), torch.float32))

    def _add_linear(
        self, name: str, out_features: int, in_features: int, bias: bool, weights: WeightFormat
    ) -> None:
        shape = weights.packed_shape(out_features, in_features)
        setattr(self, f"{name}_weight", _parameter(shape, weights.dtype))
        if bias:
            setattr(self, f"{name}_bias", _parameter((out_features,), torch.float32))

    def _norm(self, name: str, x: Tensor) -> Tensor:
        """x itself where there is no such norm."""
        weight = getattr(self, f"{name}_weight", None)
        if weight is None:
            return x
        if self._norm_kind == "layer":
            return layer_norm(x, weight, getattr(self, f"{name}_bias"), self._eps)
        return rms_norm(x, weight, self._eps)

    def _linear(self, name: str, x: Tensor, out_features: int) -> Tensor:
        y = ops.linear(x, getattr(self, f"{name}_weight"), out_features)
        bias = getattr(self, f"{name}_bias", None)
        return y if bias is None else y + bias


class DecoderLayer(_Part):
    """Attention and MLP with their norms. Parameters, in the order of the artifact."""

    def __init__(self, spec: LayerSpec, weights: WeightFormat) -> None:
        super().__init__(spec.norm, spec.norm_eps)
        assert set(spec.norms) <= set(NORMS)
        self.spec = spec
        hidden = spec.hidden_size
        for name in spec.norms:
            self._add_norm(name, hidden)
        self._add_linear("qkv", spec.qkv_features, hidden, spec.attention_bias, weights)
        if spec.qk_norm != "none":
            q_heads, kv_heads = (
                (spec.num_heads, spec.num_kv_heads) if spec.qk_norm == "all" else (1, 1)
            )
            self._add_norm("q_norm", q_heads * spec.head_dim)
            self._add_norm("k_norm", kv_heads * spec.head_dim)
        self._add_linear(
            "output", hidden, spec.num_heads * spec.head_dim, spec.output_bias, weights
        )
        if spec.num_experts:
            self._add_experts(weights)
        else:
            self._add_linear("up", spec.up_features, hidden, spec.mlp_bias, weights)
            self._add_linear("down", hidden, spec.intermediate_size, spec.mlp_bias, weights)

    def _add_experts(self, weights: WeightFormat) -> None:
        spec, hidden = self.spec, self.spec.hidden_size
        self._add_linear("router", spec.num_experts, hidden, False, FLOAT32)
        for name, out_features, in_features in (
            ("experts_up", spec.up_features, hidden),
            ("experts_down", hidden, spec.intermediate_size),
        ):
            shape = (spec.num_experts, *weights.packed_shape(out_features, in_features))
            setattr(self, f"{name}_weight", _parameter(shape, weights.dtype))
        if inner := spec.shared_intermediate_size:
            self._add_linear("shared_gate", 1, hidden, False, FLOAT32)
            self._add_linear("shared_up", 2 * inner, hidden, False, weights)
            self._add_linear("shared_down", hidden, inner, False, weights)

    def forward(
        self,
        x: Tensor,
        cos: Tensor,
        sin: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        slot_mapping: Tensor,
        block_table: Tensor,
        seq_lens: Tensor,
        query_start_loc: Tensor,
    ) -> Tensor:
        spec = self.spec
        h = self._norm("attention_norm", x)
        attended = self._attend(
            h, cos, sin, k_cache, v_cache, slot_mapping, block_table, seq_lens, query_start_loc
        )
        attended = attended.reshape(-1, spec.num_heads * spec.head_dim)
        attention = self._linear("output", attended, spec.hidden_size)
        attention = self._scaled(self._norm("attention_output_norm", attention))
        if spec.parallel_residual:
            mlp = self._scaled(self._norm("mlp_output_norm", self._mlp(self._norm("mlp_norm", x))))
            return x + attention + mlp
        x = x + attention
        mlp = self._mlp(self._norm("mlp_norm", x))
        return x + self._scaled(self._norm("mlp_output_norm", mlp))

    def _attend(
        self, h: Tensor, cos: Tensor, sin: Tensor, k_cache: Tensor, v_cache: Tensor, *step: Tensor
    ) -> Tensor:
        """[num_tokens, num_heads, head_dim]; step: slot_mapping and what follows it."""
        spec = self.spec
        q, k, v = self._qkv(h)
        return ops.paged_attention(
            apply_rotary(q, cos, sin, spec.rotary_dim).contiguous(),
            apply_rotary(k, cos, sin, spec.rotary_dim).contiguous(),
            v.view(-1, spec.num_kv_heads, spec.head_dim).contiguous(),
            k_cache,
            v_cache,
            *step,
            spec.attention_scale,
            spec.sliding_window,
            spec.attention_softcap,
        )

    def _qkv(self, h: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q and k [num_tokens, heads, head_dim], not rotated, and v [num_tokens, features]."""
        spec = self.spec
        q_features, kv_features = (n * spec.head_dim for n in (spec.num_heads, spec.num_kv_heads))
        qkv = self._linear("qkv", h, spec.qkv_features)
        q, k, v = qkv.split([q_features, kv_features, kv_features], -1)
        if spec.qk_norm == "all":
            q, k = self._norm("q_norm", q), self._norm("k_norm", k)
        q = q.view(-1, spec.num_heads, spec.head_dim)
        k = k.view(-1, spec.num_kv_heads, spec.head_dim)
        if spec.qk_norm == "head":
            q, k = self._norm("q_norm", q), self._norm("k_norm", k)
        return q, k, v

    def _mlp(self, h: Tensor) -> Tensor:
        spec = self.spec
        if spec.num_experts:
            return self._experts(h)
        activation = ACTIVATIONS[spec.activation]
        up = self._linear("up", h, spec.up_features)
        if spec.gated:
            gate, up = up.chunk(2, -1)
            return self._linear("down", activation(gate) * up, spec.hidden_size)
        return self._linear("down", activation(up), spec.hidden_size)

    def _experts(self, h: Tensor) -> Tensor:
        spec = self.spec
        y = ops.moe(
            h,
            self._linear("router", h, spec.num_experts),
            self.experts_up_weight,
            self.experts_down_weight,
            spec.intermediate_size,
            spec.experts_per_token,
            spec.normalize_experts,
            ops.ACTIVATION_CODES[spec.activation],
        )
        if inner := spec.shared_intermediate_size:
            gate, up = self._linear("shared_up", h, 2 * inner).chunk(2, -1)
            shared = ACTIVATIONS[spec.activation](gate) * up
            shared = self._linear("shared_down", shared, spec.hidden_size)
            y = y + torch.sigmoid(self._linear("shared_gate", h, 1)) * shared
        return y

    def _scaled(self, y: Tensor) -> Tensor:
        return y if self.spec.residual_scale == 1.0 else y * self.spec.residual_scale


class FinalNorm(_Part):
    """The selected rows of a model that embeds."""

    def __init__(self, spec: HeadSpec) -> None:
        super().__init__(spec.norm, spec.norm_eps)
        self._add_norm("norm", spec.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        return self._norm("norm", x)


class Head(_Part):
    """Final norm and logits of the selected rows."""

    def __init__(self, spec: HeadSpec, weights: WeightFormat) -> None:
        super().__init__(spec.norm, spec.norm_eps)
        self.spec = spec
        self._add_norm("norm", spec.hidden_size)
        self._add_linear("linear", spec.vocab_size, spec.hidden_size, False, weights)

    def forward(self, x: Tensor) -> Tensor:
        spec = self.spec
        logits = self._linear("linear", self._norm("norm", x), spec.vocab_size)
        if spec.logit_scale != 1.0:
            logits = logits * spec.logit_scale
        return softcap(logits, spec.logit_softcap)


def _parameter(shape: tuple[int, ...], dtype: torch.dtype) -> nn.Parameter:
    """Not filled: what nobody has written takes no memory, and tracing needs the shape alone."""
    return nn.Parameter(torch.empty(shape, dtype=dtype), requires_grad=False)
