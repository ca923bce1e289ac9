"""What compiled code depends on: one kind of decoder layer, and the head. Weights are not part."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, TypeVar

Spec = TypeVar("Spec")
NORMS = ("attention_norm", "attention_output_norm", "mlp_norm", "mlp_output_norm")


@dataclass(frozen=True)
class LayerSpec:
    """Sizes and switches of one kind of layer; the manifest holds them by these names."""

    hidden_size: int
    intermediate_size: int  # of the MLP; of each expert, where there are experts
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_eps: float
    attention_scale: float
    rotary_dim: int  # leading numbers of a head that are rotated; 0: none
    norm: str = "rms"  # or "layer": the mean taken out, with a bias
    norms: tuple[str, ...] = ("attention_norm", "mlp_norm")  # which of NORMS the layer has
    parallel_residual: bool = False  # attention and MLP both take the layer's input
    residual_scale: float = 1.0  # of what attention and MLP add
    qk_norm: str = "none"  # "head": each head on its own; "all": all heads as one row
    attention_softcap: float = 0.0  # 0: none
    sliding_window: int = 0  # positions that a token sees, itself included; 0: all
    attention_bias: bool = False  # of query, key and value
    output_bias: bool = False
    mlp_bias: bool = False
    activation: str = "silu"  # "gelu", "gelu_tanh", "relu"
    gated: bool = True  # down(activation(gate(x)) * up(x)); else down(activation(up(x)))
    num_experts: int = 0  # 0: one MLP
    experts_per_token: int = 0
    normalize_experts: bool = False  # weights of the chosen experts sum to 1
    shared_intermediate_size: int = 0  # of the expert that every token takes, with a gate; 0: none

    @property
    def qkv_features(self) -> int:
        return (self.num_heads + 2 * self.num_kv_heads) * self.head_dim

    @property
    def up_features(self) -> int:
        """Of the MLP's first projection: gate and up, or up alone."""
        return self.intermediate_size * (2 if self.gated else 1)


@dataclass(frozen=True)
class HeadSpec:
    """Final norm and logits."""

    hidden_size: int
    vocab_size: int
    norm_eps: float
    norm: str = "rms"
    logit_scale: float = 1.0
    logit_softcap: float = 0.0  # 0: none


def spec_from_json(kind: type[Spec], entry: dict[str, Any]) -> Spec:
    """What dataclasses.asdict made. ValueError naming fields that are not known."""
    unknown = sorted(set(entry) - {field.name for field in fields(kind)})
    if unknown:
        raise ValueError(f"unknown fields {', '.join(unknown)}")
    return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in entry.items()})
