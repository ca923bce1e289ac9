"""The compiled parts of a model: which there are, and what goes in and out of each."""

from __future__ import annotations

import torch

from pinfer.export.models.spec import ModelSpec
from pinfer.export.part import Part, PartInput
from pinfer.runtime import ops
from pinfer.runtime.layers.layer_spec import LayerSpec
from pinfer.runtime.layers.modules import DecoderLayer, Head
from pinfer.runtime.weight_format import WeightFormat


def decoder_layer(
    spec: LayerSpec, weights: WeightFormat, cache_dtype: torch.dtype, block_size: int
) -> Part:
    hidden, half = spec.hidden_size, spec.head_dim // 2
    k_shape, v_shape = ops.kv_cache_shapes(
        0, block_size, spec.num_kv_heads, spec.head_dim, cache_dtype
    )
    f32, i32 = torch.float32, torch.int32
    return Part(
        name="decoder_layer",
        module=DecoderLayer(spec, weights).eval(),
        inputs=(
            PartInput("x", f32, ("num_tokens", hidden)),
            PartInput("cos", f32, ("num_tokens", half)),
            PartInput("sin", f32, ("num_tokens", half)),
            PartInput("k_cache", cache_dtype, ("num_blocks", *k_shape[1:])),
            PartInput("v_cache", cache_dtype, ("num_blocks", *v_shape[1:])),
            PartInput("slot_mapping", torch.int64, ("num_tokens",)),
            PartInput("block_table", i32, ("num_seqs", "max_blocks")),
            PartInput("seq_lens", i32, ("num_seqs",)),
            PartInput("query_start_loc", i32, ("num_seqs+1",)),
        ),
        output=PartInput("y", f32, ("num_tokens", hidden)),
        inner_sizes=(
            spec.num_heads, spec.num_kv_heads, spec.head_dim, spec.intermediate_size,
            2 * spec.intermediate_size, spec.num_heads * spec.head_dim,
            spec.num_kv_heads * spec.head_dim, spec.qkv_features,
        ),
    )  # fmt: skip


def head(spec: ModelSpec, weights: WeightFormat) -> Part:
    return Part(
        name="head",
        module=Head(spec.layer, spec.vocab_size, weights).eval(),
        inputs=(PartInput("x", torch.float32, ("num_logits", spec.layer.hidden_size)),),
        output=PartInput("logits", torch.float32, ("num_logits", spec.vocab_size)),
    )
