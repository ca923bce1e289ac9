"""GPT-2: learned positions, layer norms, transposed weights."""

from __future__ import annotations

from pinfer.export.models.decoder import read_layer, read_model
from pinfer.export.models.rotary import NO_ROTARY
from pinfer.export.models.settings import boolean, positive_int, positive_number, require
from pinfer.export.models.spec import ConfigReader, ModelSpec, TensorNames

NAMES = TensorNames(
    bases=("transformer.", ""),
    embedding="wte",
    positions="wpe",
    final_norm="ln_f",
    layer="h.{}.",
    qkv=("attn.c_attn",),
    output="attn.c_proj",
    up=("mlp.c_fc",),
    down="mlp.c_proj",
    transposed=True,
    ignored=(".attn.bias", ".attn.masked_bias"),  # the causal mask
).with_norms(attention_norm="ln_1", mlp_norm="ln_2")
# The family's own spelling of the usual keys.
KEYS = {
    "hidden_size": "n_embd",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
    "max_position_embeddings": "n_positions",
    "intermediate_size": "n_inner",
    "hidden_act": "activation_function",
}


def read_spec(reader: ConfigReader, architecture: str) -> ModelSpec:
    reader = reader.renamed(KEYS)
    reader.ignore(
        "attn_pdrop", "summary_type", "summary_use_proj", "summary_activation", "n_ctx",
        "summary_proj_to_labels", "summary_first_dropout", "reorder_and_upcast_attn",
        "n_special", "predict_special_tokens", "output_past",  # of the first releases
    )  # fmt: skip
    require(reader, "add_cross_attention", False, False)
    require(reader, "scale_attn_by_inverse_layer_idx", False, False)
    hidden_size = positive_int(reader, "hidden_size", 768)
    changes = {} if boolean(reader, "scale_attn_weights", True) else {"attention_scale": 1.0}
    layer = read_layer(
        reader,
        hidden_act="gelu_new",
        intermediate_size=positive_int(reader, "intermediate_size", 4 * hidden_size),
        norm="layer",
        norm_eps=positive_number(reader, "layer_norm_epsilon", 1e-5),
        rotary_dim=0,
        attention_bias=True,
        output_bias=True,
        mlp_bias=True,
        gated=False,
        **changes,
    )
    return read_model(
        reader,
        architecture,
        layer,
        rotaries=[NO_ROTARY],
        names=NAMES,
        max_position_embeddings=1024,
        tied=True,
    )
