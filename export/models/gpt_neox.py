"""GPT-NeoX and Pythia: attention and MLP beside each other, a quarter of each head rotated."""

from __future__ import annotations

from pinfer.export.models.decoder import read_layer, read_model
from pinfer.export.models.rotary import read_rotary
from pinfer.export.models.settings import boolean, positive_number
from pinfer.export.models.spec import ConfigReader, ModelSpec, TensorNames

NAMES = TensorNames(
    bases=("gpt_neox.", ""),
    embedding="embed_in",
    final_norm="final_layer_norm",
    head="embed_out",
    qkv=("attention.query_key_value",),
    output="attention.dense",
    up=("mlp.dense_h_to_4h",),
    down="mlp.dense_4h_to_h",
    qkv_by_head=True,
    # The causal mask, and frequencies that the config implies.
    ignored=(".attention.bias", ".attention.masked_bias", ".rotary_emb.inv_freq"),
)


def read_spec(reader: ConfigReader, architecture: str) -> ModelSpec:
    reader.ignore("classifier_dropout", "is_decoder")
    reader.ignore("attention_probs_dropout_prob", "hidden_dropout_prob")  # older names
    reader = reader.renamed(
        {"rope_theta": "rotary_emb_base", "partial_rotary_factor": "rotary_pct"}
    )
    bias = boolean(reader, "attention_bias", True)
    layer = read_layer(
        reader,
        hidden_act="gelu",
        norm="layer",
        norm_eps=positive_number(reader, "layer_norm_eps", 1e-5),
        parallel_residual=boolean(reader, "use_parallel_residual", True),
        attention_bias=bias,
        output_bias=bias,
        mlp_bias=True,
        gated=False,
    )
    rotary = read_rotary(reader, layer.head_dim, partial=0.25)
    return read_model(reader, architecture, layer, rotaries=[rotary], names=NAMES)
