"""Mistral: Llama with a sliding window."""

from __future__ import annotations

from pinfer.export.models.decoder import read_layer, read_model
from pinfer.export.models.settings import window
from pinfer.export.models.spec import ConfigReader, ModelSpec


def read_spec(reader: ConfigReader, architecture: str) -> ModelSpec:
    layer = read_layer(reader, num_kv_heads=8, sliding_window=window(reader, 4096))
    return read_model(reader, architecture, layer, max_position_embeddings=131072)
