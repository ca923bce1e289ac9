"""The ops of compiled layers, registered for torch: schema, CPU implementation, fake.

Export traces them, eager PyTorch runs them; both end in the C functions of csrc/ops.h, which the
engine runs too. The shared library is loaded at the first call of an op, so importing this module
and tracing need none.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from pinfer.runtime.library import load_library
from pinfer.runtime.op_registration import register_ops

PANEL_WIDTH = 16  # outputs of a weight panel, tokens of a K tile
ROW_BYTES = 64  # of a panel of quantised weights
INT8_BLOCK = 64  # inputs that lie together in a panel of int8 weights

# dtype codes of csrc/ops.h.
DTYPE_CODES = {torch.uint8: 0, torch.int8: 1, torch.float32: 6, torch.bfloat16: 15}
CACHE_DTYPES = (torch.float32, torch.bfloat16, torch.int8)
INT8_SCALE_BYTES = 4  # of a token in an int8 cache, beside its numbers

# Activation codes of csrc/ops.h, by pinfer's names; gelu is the one with the error function.
ACTIVATION_CODES = {"silu": 0, "gelu": 1, "gelu_tanh": 2}

_POINTER = ctypes.c_void_p
_INT32 = ctypes.c_int32
_INT64 = ctypes.c_int64
_DOUBLE = ctypes.c_double

# The C functions of csrc/ops.h: result and parameters.
C_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "pinfer_ops_last_error": (ctypes.c_char_p, []),
    "pinfer_linear": (
        _INT32,
        [_POINTER, _INT64, _INT64, _POINTER, _INT32, _INT64, _INT64, _POINTER],
    ),
    "pinfer_embedding": (
        _INT32,
        [_POINTER, _INT64, _POINTER, _INT32, _INT64, _INT64, _INT64, _POINTER],
    ),
    "pinfer_rotary_embedding": (
        _INT32,
        [_POINTER, _INT64, _POINTER, _INT64, _DOUBLE, _POINTER, _POINTER],
    ),
    "pinfer_paged_attention": (
        _INT32,
        [_POINTER] * 5
        + [_INT32]
        + [_POINTER] * 4
        + [_DOUBLE, _INT32, _DOUBLE]
        + [_INT64] * 8
        + [_POINTER],
    ),
    "pinfer_moe": (
        _INT32,
        [_POINTER] * 4 + [_INT32] + [_INT64] * 6 + [_INT32] * 2 + [_POINTER],
    ),
    "pinfer_set_num_threads": (_INT32, [_INT32]),
    "pinfer_get_num_threads": (_INT32, []),
    "pinfer_get_isa": (ctypes.c_char_p, []),
    "pinfer_force_isa": (_INT32, [ctypes.c_char_p]),
}


# ---- the library ----


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL:
    """libpinfer with its functions declared."""
    loaded = load_library(C_FUNCTIONS)
    if loaded.pinfer_set_num_threads(0) != 0:
        raise RuntimeError(loaded.pinfer_ops_last_error().decode())
    return loaded


def _call(name: str, *arguments: Any) -> None:
    loaded = library()
    if getattr(loaded, name)(*arguments) != 0:
        raise ValueError(loaded.pinfer_ops_last_error().decode())


def set_num_threads(num_threads: int) -> None:
    """Threads that the ops use; 0: what affinity and cgroup quota allow (the default)."""
    _call("pinfer_set_num_threads", num_threads)


def get_num_threads() -> int:
    return int(library().pinfer_get_num_threads())


def get_isa() -> str:
    """The instruction set that kernels are chosen for: portable, avx2, avx2_vnni, avx512, ..."""
    return library().pinfer_get_isa().decode()


def force_isa(name: str) -> None:
    """Forces an instruction set, "" for the best again. For tests."""
    _call("pinfer_force_isa", name.encode())


# ---- layouts ----


def packed_shape(
    out_features: int, in_features: int, dtype: torch.dtype, group_size: int = 0
) -> tuple[int, ...]:
    """The shape of a packed weight (see csrc/ops.h); uint8 is int4 in groups of group_size."""
    numbers, piece = _packed_piece(dtype, group_size)
    return (-(-out_features // PANEL_WIDTH), -(-in_features // numbers), *piece)


def packed_in_features(packed: Tensor) -> int:
    """How many inputs a packed weight has room for."""
    return packed.shape[1] * _packed_piece(packed.dtype, _group_size(packed))[0]


def _packed_piece(dtype: torch.dtype, group_size: int) -> tuple[int, tuple[int, ...]]:
    """How many inputs of a panel lie together, and their shape."""
    pieces = {
        torch.float32: (1, (PANEL_WIDTH,)),
        torch.bfloat16: (2, (PANEL_WIDTH, 2)),
        torch.int8: (INT8_BLOCK, (ROW_BYTES + PANEL_WIDTH * INT8_BLOCK,)),
        torch.uint8: (group_size, (ROW_BYTES + PANEL_WIDTH * group_size // 2,)),
    }
    if dtype not in pieces:
        raise ValueError(f"weight dtype must be float32, bfloat16, int8 or uint8, got {dtype}")
    return pieces[dtype]


def pack_linear(weight: Tensor) -> Tensor:
    """Packs a weight [out_features, in_features] into panels of 16 outputs, padded with zeros."""
    if weight.dtype not in (torch.float32, torch.bfloat16):
        raise ValueError(f"weight dtype must be float32 or bfloat16, got {weight.dtype}")
    out_features, in_features = weight.shape
    shape = packed_shape(out_features, in_features, weight.dtype)
    if weight.dtype == torch.float32:
        padded = weight.new_zeros(shape[0] * PANEL_WIDTH, in_features)
        padded[:out_features] = weight
        return padded.view(shape[0], PANEL_WIDTH, in_features).permute(0, 2, 1).contiguous()
    padded = weight.new_zeros(shape[0] * PANEL_WIDTH, shape[1] * 2)
    padded[:out_features, :in_features] = weight
    return padded.view(shape[0], PANEL_WIDTH, shape[1], 2).permute(0, 2, 1, 3).contiguous()


def int4_group_size(packed: Tensor) -> int:
    """Numbers that share a scale in a packed int4 weight."""
    group_size = 2 * (packed.shape[-1] - ROW_BYTES) // PANEL_WIDTH
    if packed.dim() != 3 or group_size < 32 or group_size % 32 or packed.shape[-1] % ROW_BYTES:
        raise ValueError(f"not a packed int4 weight: shape {tuple(packed.shape)}")
    return group_size


def unpack_linear(packed: Tensor, out_features: int, in_features: int) -> Tensor:
    """The weight [out_features, in_features] that pack_linear was given."""
    shape = packed_shape(out_features, in_features, packed.dtype)
    if tuple(packed.shape) != shape:
        raise ValueError(f"packed weight must have shape {shape}, got {tuple(packed.shape)}")
    panels = packed.permute(0, 2, 1) if packed.dim() == 3 else packed.permute(0, 2, 1, 3)
    padded = panels.reshape(shape[0] * PANEL_WIDTH, -1)
    return padded[:out_features, :in_features].contiguous()


def kv_cache_shapes(
    num_blocks: int, block_size: int, num_kv_heads: int, head_dim: int, dtype: torch.dtype
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shapes of k_cache and v_cache of one layer; blocks are tiled inside (csrc/ops.h)."""
    width = head_dim + INT8_SCALE_BYTES if dtype == torch.int8 else head_dim
    return (
        (num_blocks, num_kv_heads, width, block_size),
        (num_blocks, num_kv_heads, block_size, width),
    )


def unpack_kv_cache(k_cache: Tensor, v_cache: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values as [num_blocks, block_size, num_kv_heads, head_dim], in the caches' dtype;
    float32 of an int8 cache."""
    if v_cache.dtype == torch.int8:
        return unpack_int8_cache(k_cache, False), unpack_int8_cache(v_cache, True)
    num_blocks, num_kv_heads, block_size, head_dim = v_cache.shape
    pair = 1 if k_cache.dtype == torch.float32 else 2
    tiles = k_cache.reshape(
        num_blocks, num_kv_heads, block_size // PANEL_WIDTH, head_dim // pair, PANEL_WIDTH, pair
    )
    keys = tiles.permute(0, 2, 4, 1, 3, 5).reshape(num_blocks, block_size, num_kv_heads, head_dim)
    return keys, v_cache.permute(0, 2, 1, 3)


def int8_cache_tiles(cache: Tensor, block_size: int) -> tuple[Tensor, Tensor]:
    """Views of k_cache or v_cache [num_blocks, num_kv_heads, tiles of 16 tokens, bytes]: those of
    the tokens' float32 scales, and the numbers behind them."""
    tiles = cache.flatten(2).unflatten(2, (block_size // PANEL_WIDTH, -1))
    scale_bytes = PANEL_WIDTH * INT8_SCALE_BYTES
    return tiles[..., :scale_bytes], tiles[..., scale_bytes:]


def unpack_int8_cache(cache: Tensor, is_v: bool) -> Tensor:
    """float32 [num_blocks, block_size, num_kv_heads, head_dim] of k_cache or v_cache."""
    scales, numbers = int8_cache_tiles(cache, cache.shape[2 if is_v else 3])
    scales, numbers = scales.contiguous().view(torch.float32), numbers.float()
    if is_v:
        tokens = numbers.unflatten(-1, (PANEL_WIDTH, -1))
    else:
        tokens = numbers.unflatten(-1, (-1, PANEL_WIDTH)).transpose(-1, -2)
    return (tokens * scales[..., None]).flatten(2, 3).transpose(1, 2)


# ---- checks ----


def _dense(tensor: Tensor, name: str, dtype: torch.dtype, dim: int) -> Tensor:
    if tensor.dtype != dtype or tensor.dim() != dim:
        raise ValueError(
            f"{name} must be {dtype} with {dim} dimensions, got {tensor.dtype} with {tensor.dim()}"
        )
    return tensor.contiguous()


def _in_place(tensor: Tensor, name: str) -> Tensor:
    if tensor.dtype not in CACHE_DTYPES or tensor.dim() != 4 or not tensor.is_contiguous():
        raise ValueError(
            f"{name} must be contiguous float32 or bfloat16 with 4 dimensions, got "
            f"{tensor.dtype} with {tensor.dim()} and strides {tuple(tensor.stride())}"
        )
    return tensor


def _packed(weight: Tensor, out_features: int, in_features: int, name: str = "weight") -> Tensor:
    shape = packed_shape(out_features, in_features, weight.dtype, _group_size(weight))
    if tuple(weight.shape) != shape or not weight.is_contiguous():
        raise ValueError(
            f"{name} for {out_features} outputs and {in_features} inputs must be packed and "
            f"contiguous with shape {shape}, got {tuple(weight.shape)}"
        )
    return weight


def _packed_experts(
    weight: Tensor, name: str, num_experts: int, out_features: int, in_features: int
) -> Tensor:
    if weight.dim() == 0 or weight.shape[0] != num_experts or not weight.is_contiguous():
        raise ValueError(
            f"{name} must be contiguous with the weights of {num_experts} experts, got shape "
            f"{tuple(weight.shape)}"
        )
    _packed(weight[0], out_features, in_features, f"{name} of an expert")
    return weight


def _group_size(packed: Tensor) -> int:
    return int4_group_size(packed) if packed.dtype == torch.uint8 else 0


def _expect_shape(tensor: Tensor, name: str, shape: tuple[int, ...]) -> None:
    if tuple(tensor.shape) != shape:
        raise ValueError(f"{name} must have shape {shape}, got {tuple(tensor.shape)}")


# ---- CPU implementations ----


def _linear(x: Tensor, weight: Tensor, out_features: int) -> Tensor:
    x = _dense(x, "x", torch.float32, 2)
    num_tokens, in_features = x.shape
    weight = _packed(weight, out_features, in_features)
    out = x.new_empty(num_tokens, out_features)
    _call(
        "pinfer_linear",
        x.data_ptr(),
        num_tokens,
        in_features,
        weight.data_ptr(),
        DTYPE_CODES[weight.dtype],
        _group_size(weight),
        out_features,
        out.data_ptr(),
    )
    return out


def _embedding(token_ids: Tensor, weight: Tensor, hidden_size: int) -> Tensor:
    token_ids = _dense(token_ids, "token_ids", torch.int32, 1)
    vocab_size = weight.shape[0] * PANEL_WIDTH
    weight = _packed(weight, vocab_size, hidden_size)
    out = torch.empty(token_ids.shape[0], hidden_size, dtype=torch.float32)
    _call(
        "pinfer_embedding",
        token_ids.data_ptr(),
        token_ids.shape[0],
        weight.data_ptr(),
        DTYPE_CODES[weight.dtype],
        _group_size(weight),
        vocab_size,
        hidden_size,
        out.data_ptr(),
    )
    return out


def _rotary_embedding(
    positions: Tensor, inv_freq: Tensor, attention_scaling: float
) -> tuple[Tensor, Tensor]:
    positions = _dense(positions, "positions", torch.int32, 1)
    inv_freq = _dense(inv_freq, "inv_freq", torch.float32, 1)
    cos = inv_freq.new_empty(positions.shape[0], inv_freq.shape[0])
    sin = torch.empty_like(cos)
    _call(
        "pinfer_rotary_embedding",
        positions.data_ptr(),
        positions.shape[0],
        inv_freq.data_ptr(),
        inv_freq.shape[0],
        attention_scaling,
        cos.data_ptr(),
        sin.data_ptr(),
    )
    return cos, sin


def _paged_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    slot_mapping: Tensor,
    block_table: Tensor,
    seq_lens: Tensor,
    query_start_loc: Tensor,
    scale: float,
    sliding_window: int,
    logit_softcap: float,
) -> Tensor:
    q = _dense(q, "q", torch.float32, 3)
    k = _dense(k, "k", torch.float32, 3)
    v = _dense(v, "v", torch.float32, 3)
    k_cache = _in_place(k_cache, "k_cache")
    v_cache = _in_place(v_cache, "v_cache")
    slot_mapping = _dense(slot_mapping, "slot_mapping", torch.int64, 1)
    block_table = _dense(block_table, "block_table", torch.int32, 2)
    seq_lens = _dense(seq_lens, "seq_lens", torch.int32, 1)
    query_start_loc = _dense(query_start_loc, "query_start_loc", torch.int32, 1)
    num_tokens, num_heads, head_dim = q.shape
    num_blocks, num_kv_heads, block_size, _ = v_cache.shape
    num_requests, max_blocks = block_table.shape
    k_shape, v_shape = kv_cache_shapes(
        num_blocks, block_size, num_kv_heads, head_dim, v_cache.dtype
    )
    _expect_shape(k, "k", (num_tokens, num_kv_heads, head_dim))
    _expect_shape(v, "v", (num_tokens, num_kv_heads, head_dim))
    _expect_shape(k_cache, "k_cache", k_shape)
    _expect_shape(v_cache, "v_cache", v_shape)
    _expect_shape(slot_mapping, "slot_mapping", (num_tokens,))
    _expect_shape(seq_lens, "seq_lens", (num_requests,))
    _expect_shape(query_start_loc, "query_start_loc", (num_requests + 1,))
    if k_cache.dtype != v_cache.dtype:
        raise ValueError(
            f"k_cache and v_cache must have one dtype, got {k_cache.dtype} and {v_cache.dtype}"
        )
    out = torch.empty_like(q)
    _call(
        "pinfer_paged_attention",
        q.data_ptr(),
        k.data_ptr(),
        v.data_ptr(),
        k_cache.data_ptr(),
        v_cache.data_ptr(),
        DTYPE_CODES[v_cache.dtype],
        slot_mapping.data_ptr(),
        block_table.data_ptr(),
        seq_lens.data_ptr(),
        query_start_loc.data_ptr(),
        scale,
        sliding_window,
        logit_softcap,
        num_tokens,
        num_requests,
        num_heads,
        num_kv_heads,
        head_dim,
        num_blocks,
        block_size,
        max_blocks,
        out.data_ptr(),
    )
    return out


def _moe(
    x: Tensor,
    router_logits: Tensor,
    gate_up_weight: Tensor,
    down_weight: Tensor,
    intermediate_size: int,
    experts_per_token: int,
    normalize: bool,
    activation: int,
) -> Tensor:
    x = _dense(x, "x", torch.float32, 2)
    router_logits = _dense(router_logits, "router_logits", torch.float32, 2)
    num_tokens, hidden_size = x.shape
    num_experts = router_logits.shape[1]
    _expect_shape(router_logits, "router_logits", (num_tokens, num_experts))
    if num_experts == 0:
        raise ValueError("router_logits must have at least 1 expert, got 0")
    gate_up_weight = _packed_experts(
        gate_up_weight, "gate_up_weight", num_experts, 2 * intermediate_size, hidden_size
    )
    down_weight = _packed_experts(
        down_weight, "down_weight", num_experts, hidden_size, intermediate_size
    )
    group_size = _group_size(gate_up_weight[0])
    if gate_up_weight.dtype != down_weight.dtype or _group_size(down_weight[0]) != group_size:
        raise ValueError(
            "gate_up_weight and down_weight must have one format, got "
            f"{gate_up_weight.dtype} with groups of {group_size} and "
            f"{down_weight.dtype} with groups of {_group_size(down_weight[0])}"
        )
    out = torch.empty_like(x)
    _call(
        "pinfer_moe",
        x.data_ptr(),
        router_logits.data_ptr(),
        gate_up_weight.data_ptr(),
        down_weight.data_ptr(),
        DTYPE_CODES[gate_up_weight.dtype],
        group_size,
        num_tokens,
        hidden_size,
        intermediate_size,
        num_experts,
        experts_per_token,
        normalize,
        activation,
        out.data_ptr(),
    )
    return out


# ---- fakes: shapes and dtypes only ----


def _fake_linear(x: Tensor, weight: Tensor, out_features: int) -> Tensor:
    return x.new_empty(x.shape[0], out_features)


def _fake_embedding(token_ids: Tensor, weight: Tensor, hidden_size: int) -> Tensor:
    return token_ids.new_empty(token_ids.shape[0], hidden_size, dtype=torch.float32)


def _fake_rotary_embedding(
    positions: Tensor, inv_freq: Tensor, attention_scaling: float
) -> tuple[Tensor, Tensor]:
    cos = inv_freq.new_empty(positions.shape[0], inv_freq.shape[0])
    return cos, torch.empty_like(cos)


def _fake_paged_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    slot_mapping: Tensor,
    block_table: Tensor,
    seq_lens: Tensor,
    query_start_loc: Tensor,
    scale: float,
    sliding_window: int,
    logit_softcap: float,
) -> Tensor:
    return q.new_empty(q.shape)


def _fake_moe(
    x: Tensor,
    router_logits: Tensor,
    gate_up_weight: Tensor,
    down_weight: Tensor,
    intermediate_size: int,
    experts_per_token: int,
    normalize: bool,
    activation: int,
) -> Tensor:
    return x.new_empty(x.shape)


# ---- registration ----

SCHEMAS = {
    "linear": "(Tensor x, Tensor weight, int out_features) -> Tensor",
    "embedding": "(Tensor token_ids, Tensor weight, int hidden_size) -> Tensor",
    "rotary_embedding": (
        "(Tensor positions, Tensor inv_freq, float attention_scaling) -> (Tensor, Tensor)"
    ),
    "paged_attention": (
        "(Tensor q, Tensor k, Tensor v, Tensor(a!) k_cache, Tensor(b!) v_cache, "
        "Tensor slot_mapping, Tensor block_table, Tensor seq_lens, Tensor query_start_loc, "
        "float scale, int sliding_window, float logit_softcap) -> Tensor"
    ),
    "moe": (
        "(Tensor x, Tensor router_logits, Tensor gate_up_weight, Tensor down_weight, "
        "int intermediate_size, int experts_per_token, bool normalize, int activation) -> Tensor"
    ),
}

_IMPLEMENTATIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "linear": (_linear, _fake_linear),
    "embedding": (_embedding, _fake_embedding),
    "rotary_embedding": (_rotary_embedding, _fake_rotary_embedding),
    "paged_attention": (_paged_attention, _fake_paged_attention),
    "moe": (_moe, _fake_moe),
}

_registry = torch.library.Library("pinfer", "DEF")
register_ops(_registry, SCHEMAS, _IMPLEMENTATIONS)

linear = torch.ops.pinfer.linear
embedding = torch.ops.pinfer.embedding
rotary_embedding = torch.ops.pinfer.rotary_embedding
paged_attention = torch.ops.pinfer.paged_attention
moe = torch.ops.pinfer.moe

# How compiled code calls an op (Inductor's aot_inductor.custom_ops_to_c_shims). csrc/shim defines
# these functions.
SHIMS: dict[Any, list[str]] = {
    linear.default: [
        "AOTITorchError aoti_torch_cpu_linear(AtenTensorHandle x, AtenTensorHandle weight, "
        "int64_t out_features, AtenTensorHandle* out)"
    ],
    embedding.default: [
        "AOTITorchError aoti_torch_cpu_embedding(AtenTensorHandle token_ids, "
        "AtenTensorHandle weight, int64_t hidden_size, AtenTensorHandle* out)"
    ],
    rotary_embedding.default: [
        "AOTITorchError aoti_torch_cpu_rotary_embedding(AtenTensorHandle positions, "
        "AtenTensorHandle inv_freq, double attention_scaling, AtenTensorHandle* cos, "
        "AtenTensorHandle* sin)"
    ],
    paged_attention.default: [
        "AOTITorchError aoti_torch_cpu_paged_attention(AtenTensorHandle q, "
        "AtenTensorHandle k, AtenTensorHandle v, AtenTensorHandle k_cache, "
        "AtenTensorHandle v_cache, AtenTensorHandle slot_mapping, AtenTensorHandle block_table, "
        "AtenTensorHandle seq_lens, AtenTensorHandle query_start_loc, double scale, "
        "int64_t sliding_window, double logit_softcap, AtenTensorHandle* out)"
    ],
    moe.default: [
        "AOTITorchError aoti_torch_cpu_moe(AtenTensorHandle x, AtenTensorHandle router_logits, "
        "AtenTensorHandle gate_up_weight, AtenTensorHandle down_weight, "
        "int64_t intermediate_size, int64_t experts_per_token, int32_t normalize, "
        "int64_t activation, AtenTensorHandle* out)"
    ],
}
