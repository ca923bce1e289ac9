"""One kind of decoder layer: all that its code depends on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LayerSpec:
    """Sizes and switches of a layer; the manifest holds them by these names. Weights are not part
    of it."""

    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    attention_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False

    @property
    def qkv_features(self) -> int:
        return (self.num_heads + 2 * self.num_kv_heads) * self.head_dim
