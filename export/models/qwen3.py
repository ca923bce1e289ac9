"""Qwen 3: Llama with normalised queries and keys."""

from __future__ import annotations

from pinfer.export.models.decoder import read_layer, read_model
from pinfer.export.models.qwen2 import window_layers
from pinfer.export.models.settings import boolean
from pinfer.export.models.spec import ConfigReader, ModelSpec


def read_spec(reader: ConfigReader, architecture: str) -> ModelSpec:
    bias = boolean(reader, "attention_bias", False)
    layer = read_layer(reader, head_dim=128, qk_norm="head", attention_bias=bias, output_bias=bias)
    return read_model(
        reader, architecture, window_layers(reader, layer), max_position_embeddings=32768
    )
