"""StarCoder 2: layer norms, biases everywhere, and an MLP without a gate."""

from __future__ import annotations

from pinfer.export.models.decoder import read_layer, read_model
from pinfer.export.models.settings import boolean, positive_number, require, window
from pinfer.export.models.spec import ConfigReader, ModelSpec, TensorNames

NAMES = TensorNames(up=("mlp.c_fc",), down="mlp.c_proj")


def read_spec(reader: ConfigReader, architecture: str) -> ModelSpec:
    reader.ignore("residual_dropout", "embedding_dropout")
    # Leftovers of an earlier model class in published files; hidden_act and norm_epsilon count.
    require(reader, "norm_type", "layer_norm", "layer_norm")
    require(reader, "mlp_type", "default", "default")
    require(reader, "scale_attn_weights", True, True)
    reader.ignore(
        "activation_function", "layer_norm_epsilon", "attention_softmax_in_fp32",
        "scale_attention_softmax_in_fp32",
    )  # fmt: skip
    bias = boolean(reader, "use_bias", True)
    layer = read_layer(
        reader,
        num_kv_heads=2,
        hidden_act="gelu_pytorch_tanh",
        norm="layer",
        norm_eps=positive_number(reader, "norm_epsilon", 1e-5),
        sliding_window=window(reader, None),
        attention_bias=bias,
        output_bias=bias,
        mlp_bias=bias,
        gated=False,
    )
    return read_model(
        reader, architecture, layer, names=NAMES, max_position_embeddings=4096, tied=True
    )
