"""OLMo 2: norms after attention and MLP, and normalised queries and keys, all heads as one row."""

from __future__ import annotations

from pinfer.export.models.decoder import read_layer, read_model
from pinfer.export.models.settings import boolean
from pinfer.export.models.spec import ConfigReader, ModelSpec, TensorNames

NAMES = TensorNames().with_norms(
    attention_output_norm="post_attention_layernorm",
    mlp_output_norm="post_feedforward_layernorm",
)


def read_spec(reader: ConfigReader, architecture: str) -> ModelSpec:
    bias = boolean(reader, "attention_bias", False)
    layer = read_layer(
        reader,
        norm_eps=1e-5,
        norms=("attention_output_norm", "mlp_output_norm"),
        qk_norm="all",
        attention_bias=bias,
        output_bias=bias,
    )
    return read_model(reader, architecture, layer, names=NAMES)
