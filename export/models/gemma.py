"""Gemma 1: Llama with a GELU gate, norms around 1 and scaled embeddings."""

from __future__ import annotations

from dataclasses import replace

from pinfer.export.models.decoder import read_layer, read_model
from pinfer.export.models.settings import boolean, require
from pinfer.export.models.spec import ConfigReader, ModelSpec, TensorNames

NAMES = TensorNames(norm_added=1.0)  # checkpoints hold what a norm's weight is more than 1


def read_spec(reader: ConfigReader, architecture: str) -> ModelSpec:
    require(reader, "use_bidirectional_attention", False, False)
    reader.ignore("hidden_activation")  # an older key that nobody reads
    bias = boolean(reader, "attention_bias", False)
    layer = read_layer(
        reader,
        head_dim=256,
        hidden_act="gelu_pytorch_tanh",
        attention_bias=bias,
        output_bias=bias,
    )
    if layer.activation == "gelu":  # what the first releases wrote, and did not mean
        layer = replace(layer, activation="gelu_tanh")
    return read_model(
        reader,
        architecture,
        layer,
        names=NAMES,
        max_position_embeddings=8192,
        tied=True,
        embedding_scale=layer.hidden_size**0.5,
    )
