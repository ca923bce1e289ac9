"""Gemma 3, the text model: Gemma 2 with normalised queries and keys in place of capped scores, and
a rotary base of its own for the layers with a window."""

from __future__ import annotations

from pinfer.export.models import gemma2
from pinfer.export.models.decoder import of_type, read_model
from pinfer.export.models.rotary import Settings, make_rotary, one_spelling, rotary_settings_by_type
from pinfer.export.models.settings import (
    cap,
    layer_types,
    positive_int,
    positive_number,
    require,
    window,
)
from pinfer.export.models.spec import ConfigReader, ModelSpec

THETAS = {"full_attention": 1e6, "sliding_attention": 1e4}


def read_spec(reader: ConfigReader, architecture: str) -> ModelSpec:
    require(reader, "attn_logit_softcapping", None, None)  # transformers' model ignores it
    layer = gemma2.sandwich_layer(reader, qk_norm="head")
    count = positive_int(reader, "num_hidden_layers")
    pattern = positive_int(reader, "sliding_window_pattern", _pattern(reader))
    default = ["sliding_attention" if (i + 1) % pattern else "full_attention" for i in range(count)]
    types = layer_types(reader, count, default)
    settings = _rotary_settings(reader)
    kinds = [kind for kind in THETAS if kind in types]
    return read_model(
        reader,
        architecture,
        of_type(layer, types, window(reader, 4096), reader),
        rotaries=[make_rotary(reader, settings[kind], layer.head_dim) for kind in kinds],
        rotary_of_layer=[kinds.index(kind) for kind in types],
        names=gemma2.NAMES,
        max_position_embeddings=131072,
        tied=True,
        logit_softcap=cap(reader, "final_logit_softcapping", None),
        embedding_scale=layer.hidden_size**0.5,
    )


def _pattern(reader: ConfigReader) -> int:
    return reader.get("_sliding_window_pattern", 6)


def _rotary_settings(reader: ConfigReader) -> dict[str, Settings]:
    """rope_parameters by type of layer, or the older rope_theta, rope_local_base_freq and
    rope_scaling, which is that of the layers without a window."""
    thetas = {
        "full_attention": positive_number(reader, "rope_theta", THETAS["full_attention"]),
        "sliding_attention": positive_number(
            reader, "rope_local_base_freq", THETAS["sliding_attention"]
        ),
    }
    settings = rotary_settings_by_type(reader, thetas)
    older = reader.get("rope_scaling", {})
    if older:
        settings["full_attention"] |= one_spelling(reader, older)
    return settings
