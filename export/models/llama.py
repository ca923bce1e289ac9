"""Llama 1 to 3, SmolLM2, Falcon 3 and everything else that says LlamaForCausalLM."""

from __future__ import annotations

from pinfer.export.models.decoder import read_layer, read_model
from pinfer.export.models.settings import boolean, require
from pinfer.export.models.spec import ConfigReader, ModelSpec


def read_spec(reader: ConfigReader, architecture: str) -> ModelSpec:
    require(reader, "pretraining_tp", 1, 1)
    require(reader, "rope_interleaved", False, False)
    reader.ignore("is_llama_config", "max_sequence_length")  # of older conversions
    bias = boolean(reader, "attention_bias", False)
    layer = read_layer(
        reader,
        attention_bias=bias,
        output_bias=bias,
        mlp_bias=boolean(reader, "mlp_bias", False),
    )
    return read_model(reader, architecture, layer)
