"""Mixtral: Mistral with experts in place of the MLP."""

from __future__ import annotations

from pinfer.export.models.decoder import read_layer, read_model
from pinfer.export.models.rotary import read_rotary
from pinfer.export.models.settings import experts_per_token, positive_int, window
from pinfer.export.models.spec import ConfigReader, ModelSpec, TensorNames

NAMES = TensorNames(
    router="block_sparse_moe.gate",
    experts_up=("block_sparse_moe.experts.{}.w1", "block_sparse_moe.experts.{}.w3"),
    experts_down="block_sparse_moe.experts.{}.w2",
)


def read_spec(reader: ConfigReader, architecture: str) -> ModelSpec:
    reader.ignore("output_router_logits", "router_aux_loss_coef", "router_jitter_noise")
    num_experts = positive_int(reader, "num_local_experts", 8)
    layer = read_layer(
        reader,
        norm_eps=1e-5,
        num_kv_heads=8,
        sliding_window=window(reader, None),
        num_experts=num_experts,
        experts_per_token=experts_per_token(reader, 2, num_experts),
        normalize_experts=True,
    )
    rotary = read_rotary(reader, layer.head_dim, theta=1e6)
    return read_model(
        reader,
        architecture,
        layer,
        rotaries=[rotary],
        names=NAMES,
        max_position_embeddings=131072,
    )
