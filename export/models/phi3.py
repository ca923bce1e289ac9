"""Phi 3 and 4: Llama with fused projections, part of each head rotated, and long-context rotary."""

from __future__ import annotations

from pinfer.export.models.decoder import read_layer, read_model
from pinfer.export.models.rotary import make_rotary, rotary_settings
from pinfer.export.models.settings import require, window
from pinfer.export.models.spec import ConfigReader, ModelSpec, TensorNames

NAMES = TensorNames(qkv=("self_attn.qkv_proj",), up=("mlp.gate_up_proj",))


def read_spec(reader: ConfigReader, architecture: str) -> ModelSpec:
    reader.get("original_max_position_embeddings")
    require(reader, "full_attn_mod", 1, 1)  # every layer attends alike
    require(reader, "interpolate_factor", 1, 1)
    layer = read_layer(reader, norm_eps=1e-5, sliding_window=window(reader, None))
    settings = rotary_settings(reader, 10000.0, partial=1.0)
    if settings["rope_type"] in ("su", "yarn"):  # as older checkpoints call it
        settings["rope_type"] = "longrope"
    return read_model(
        reader,
        architecture,
        layer,
        rotaries=[make_rotary(reader, settings, layer.head_dim)],
        names=NAMES,
        max_position_embeddings=4096,
    )
