"""Granite: Llama with multipliers on embeddings, scores, residuals and logits."""

from __future__ import annotations

from pinfer.export.models.decoder import read_layer, read_model
from pinfer.export.models.settings import boolean, positive_number
from pinfer.export.models.spec import ConfigReader, ModelSpec


def read_spec(reader: ConfigReader, architecture: str) -> ModelSpec:
    bias = boolean(reader, "attention_bias", False)
    layer = read_layer(
        reader,
        attention_scale=positive_number(reader, "attention_multiplier", 1.0),
        residual_scale=positive_number(reader, "residual_multiplier", 1.0),
        attention_bias=bias,
        output_bias=bias,
        mlp_bias=boolean(reader, "mlp_bias", False),
    )
    return read_model(
        reader,
        architecture,
        layer,
        logit_scale=1.0 / positive_number(reader, "logits_scaling", 1.0),
        embedding_scale=positive_number(reader, "embedding_multiplier", 1.0),
    )
