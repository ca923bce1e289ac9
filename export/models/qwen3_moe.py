"""Qwen 3 MoE: Qwen 3 with experts."""

from __future__ import annotations

from dataclasses import replace

from pinfer.export.models.decoder import read_layer, read_model
from pinfer.export.models.qwen2_moe import sparse_layers
from pinfer.export.models.settings import (
    boolean,
    experts_per_token,
    positive_int,
    require,
    window,
)
from pinfer.export.models.spec import ConfigReader, ModelSpec


def read_spec(reader: ConfigReader, architecture: str) -> ModelSpec:
    bias = boolean(reader, "attention_bias", False)
    switched_on = boolean(reader, "use_sliding_window", False)
    size = window(reader, 4096)
    reader.ignore("max_window_layers")  # the window is every layer's
    require(reader, "use_qk_norm", True, True)
    require(reader, "shared_expert_intermediate_size", 0, 0)
    require(reader, "qkv_bias", False, False)
    dense = read_layer(
        reader,
        num_kv_heads=4,
        qk_norm="head",
        attention_bias=bias,
        output_bias=bias,
        sliding_window=size if switched_on else 0,
    )
    # Two spellings; the first is the older.
    num_experts = positive_int(reader, "num_experts", reader.get("num_local_experts", 128))
    sparse = replace(
        dense,
        intermediate_size=positive_int(reader, "moe_intermediate_size", 768),
        num_experts=num_experts,
        experts_per_token=experts_per_token(reader, 8, num_experts),
        normalize_experts=boolean(reader, "norm_topk_prob", False),
    )
    layers = sparse_layers(reader, dense, sparse)
    return read_model(reader, architecture, layers, max_position_embeddings=32768)
