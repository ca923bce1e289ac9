"""SmolLM3: Llama whose every fourth layer has no rotary embedding."""

from __future__ import annotations

from dataclasses import replace

from pinfer.export.models.decoder import of_type, read_layer, read_model
from pinfer.export.models.rotary import read_rotary
from pinfer.export.models.settings import boolean, layer_types, positive_int, switches, window
from pinfer.export.models.spec import ConfigReader, ModelSpec


def read_spec(reader: ConfigReader, architecture: str) -> ModelSpec:
    reader.ignore("pretraining_tp", "max_window_layers")  # published, and read by no model code
    bias = boolean(reader, "attention_bias", False)
    layer = read_layer(
        reader,
        num_kv_heads=4,
        attention_bias=bias,
        output_bias=bias,
        mlp_bias=boolean(reader, "mlp_bias", False),
    )
    count = positive_int(reader, "num_hidden_layers")
    interval = positive_int(reader, "no_rope_layer_interval", 4)
    rotated = switches(
        reader, "no_rope_layers", count, [(i + 1) % interval != 0 for i in range(count)]
    )
    on = boolean(reader, "use_sliding_window", False)
    size = window(reader, None)
    default = [
        "full_attention" if turned or not (on and size) else "sliding_attention"
        for turned in rotated
    ]
    types = layer_types(reader, count, default)
    if not on:  # layer_types are of no effect then
        types = ["full_attention"] * count
    layers = [
        replace(entry, rotary_dim=layer.rotary_dim if turned else 0)
        for entry, turned in zip(of_type(layer, types, size, reader), rotated, strict=True)
    ]
    return read_model(
        reader,
        architecture,
        layers,
        rotaries=[read_rotary(reader, layer.head_dim, theta=2e6)],
        max_position_embeddings=32768,
        tied=True,
    )
