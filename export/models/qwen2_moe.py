"""Qwen 1.5 and 2 MoE: Qwen 2 with experts, one of which every token takes."""

from __future__ import annotations

from dataclasses import replace

from pinfer.export.models.decoder import of_type, read_layer, read_model
from pinfer.export.models.settings import (
    boolean,
    experts_per_token,
    layer_types,
    positive_int,
    window,
)
from pinfer.export.models.spec import ConfigReader, ModelSpec
from pinfer.runtime.layers.layer_spec import LayerSpec


def read_spec(reader: ConfigReader, architecture: str) -> ModelSpec:
    dense = read_layer(reader, num_kv_heads=16, attention_bias=boolean(reader, "qkv_bias", True))
    num_experts = positive_int(reader, "num_experts", 60)
    sparse = replace(
        dense,
        intermediate_size=positive_int(reader, "moe_intermediate_size", 1408),
        shared_intermediate_size=positive_int(reader, "shared_expert_intermediate_size", 5632),
        num_experts=num_experts,
        experts_per_token=experts_per_token(reader, 4, num_experts),
        normalize_experts=boolean(reader, "norm_topk_prob", False),
    )
    layers = sparse_layers(reader, dense, sparse)
    size = window(reader, 4096) if boolean(reader, "use_sliding_window", False) else 0
    full = reader.get("max_window_layers", 28)
    default = [
        "sliding_attention" if size and i % 2 == 0 and i < full else "full_attention"
        for i in range(len(layers))
    ]
    types = layer_types(reader, len(layers), default)
    layers = [
        of_type(layer, [kind], size, reader)[0] for layer, kind in zip(layers, types, strict=True)
    ]
    return read_model(reader, architecture, layers, max_position_embeddings=32768)


def sparse_layers(reader: ConfigReader, dense: LayerSpec, sparse: LayerSpec) -> list[LayerSpec]:
    """Every decoder_sparse_step-th layer has experts, but those that mlp_only_layers lists."""
    reader.ignore("output_router_logits", "router_aux_loss_coef")
    step = positive_int(reader, "decoder_sparse_step", 1)
    dense_ones = reader.get("mlp_only_layers", [])
    return [
        dense if i in dense_ones or (i + 1) % step else sparse
        for i in range(positive_int(reader, "num_hidden_layers"))
    ]
