"""Gemma 2: norms before and after attention and MLP, capped scores and logits, a window in every
other layer."""

from __future__ import annotations

from pinfer.export.models import gemma
from pinfer.export.models.decoder import of_type, read_layer, read_model
from pinfer.export.models.settings import (
    boolean,
    cap,
    layer_types,
    positive_int,
    positive_number,
    require,
    window,
)
from pinfer.export.models.spec import ConfigReader, ModelSpec
from pinfer.runtime.layers.layer_spec import NORMS, LayerSpec

NAMES = gemma.NAMES.with_norms(
    attention_norm="input_layernorm",
    attention_output_norm="post_attention_layernorm",
    mlp_norm="pre_feedforward_layernorm",
    mlp_output_norm="post_feedforward_layernorm",
)


def read_spec(reader: ConfigReader, architecture: str) -> ModelSpec:
    layer = sandwich_layer(reader, attention_softcap=cap(reader, "attn_logit_softcapping", 50.0))
    count = positive_int(reader, "num_hidden_layers")
    default = ["full_attention" if i % 2 else "sliding_attention" for i in range(count)]
    types = layer_types(reader, count, default)
    return read_model(
        reader,
        architecture,
        of_type(layer, types, window(reader, 4096), reader),
        names=NAMES,
        max_position_embeddings=8192,
        tied=True,
        logit_softcap=cap(reader, "final_logit_softcapping", 30.0),
        embedding_scale=layer.hidden_size**0.5,
    )


def sandwich_layer(reader: ConfigReader, **changes: object) -> LayerSpec:
    """Gemma 2's and 3's layer."""
    require(reader, "use_bidirectional_attention", False, False)
    # Published files have them beside hidden_activation and sliding_window, which count.
    reader.ignore("hidden_act", "sliding_window_size")
    bias = boolean(reader, "attention_bias", False)
    return read_layer(
        reader,
        head_dim=256,
        num_kv_heads=4,
        act_key="hidden_activation",
        hidden_act="gelu_pytorch_tanh",
        norms=NORMS,
        attention_scale=positive_number(reader, "query_pre_attn_scalar", 256) ** -0.5,
        attention_bias=bias,
        output_bias=bias,
        **changes,
    )
