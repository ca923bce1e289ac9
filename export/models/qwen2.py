"""Qwen 2 and 2.5: Llama with biases on query, key and value, and a window in the later layers."""

from __future__ import annotations

from pinfer.export.models.decoder import of_type, read_layer, read_model
from pinfer.export.models.settings import boolean, layer_types, positive_int, window
from pinfer.export.models.spec import ConfigReader, ModelSpec
from pinfer.runtime.layers.layer_spec import LayerSpec


def read_spec(reader: ConfigReader, architecture: str) -> ModelSpec:
    layer = read_layer(reader, attention_bias=True)
    return read_model(
        reader, architecture, window_layers(reader, layer), max_position_embeddings=32768
    )


def window_layers(reader: ConfigReader, layer: LayerSpec) -> list[LayerSpec]:
    """use_sliding_window switches the window on; layers from max_window_layers on have it, if
    layer_types does not say otherwise."""
    count = positive_int(reader, "num_hidden_layers")
    size = window(reader, 4096)
    if not boolean(reader, "use_sliding_window", False):
        size = 0
    full = reader.get("max_window_layers", 28)
    default = [
        "sliding_attention" if size and i >= full else "full_attention" for i in range(count)
    ]
    return of_type(layer, layer_types(reader, count, default), size, reader)
