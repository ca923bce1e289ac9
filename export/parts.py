"""The compiled parts of a model: which there are, and what goes in and out of each."""

from __future__ import annotations

import torch

from pinfer.export.part import Part, PartInput
from pinfer.runtime import ops
from pinfer.runtime.layers.layer_spec import HeadSpec, LayerSpec
from pinfer.runtime.layers.modules import DecoderLayer, FinalNorm, Head
from pinfer.runtime.weight_format import WeightFormat


def decoder_layer(
    name: str,
    spec: LayerSpec,
    num_freqs: int,
    weights: WeightFormat,
    cache_dtype: torch.dtype,
    block_size: int,
) -> Part:
    """num_freqs: rotary frequencies of the layer's table, also where the layer does not use it."""
    hidden = spec.hidden_size
    k_shape, v_shape = ops.kv_cache_shapes(
        0, block_size, spec.num_kv_heads, spec.head_dim, cache_dtype
    )
    f32, i32 = torch.float32, torch.int32
    return Part(
        name=name,
        module=DecoderLayer(spec, weights).eval(),
        inputs=(
            PartInput("x", f32, ("num_tokens", hidden)),
            PartInput("cos", f32, ("num_tokens", num_freqs)),
            PartInput("sin", f32, ("num_tokens", num_freqs)),
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
            spec.num_kv_heads * spec.head_dim, spec.qkv_features, spec.rotary_dim,
            spec.rotary_dim // 2, spec.head_dim - spec.rotary_dim, spec.num_experts,
            spec.shared_intermediate_size, 2 * spec.shared_intermediate_size,
        ),
    )  # fmt: skip


def head(spec: HeadSpec, weights: WeightFormat) -> Part:
    return Part(
        name="head",
        module=Head(spec, weights).eval(),
        inputs=(PartInput("x", torch.float32, ("num_logits", spec.hidden_size)),),
        output=PartInput("logits", torch.float32, ("num_logits", spec.vocab_size)),
    )


def final_norm(spec: HeadSpec) -> Part:
    """In place of the head, where the model embeds."""
    shape = ("num_logits", spec.hidden_size)
    return Part(
        name="final_norm",
        module=FinalNorm(spec).eval(),
        inputs=(PartInput("x", torch.float32, shape),),
        output=PartInput("y", torch.float32, shape),
    )
