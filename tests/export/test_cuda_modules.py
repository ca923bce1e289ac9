"""Layers as CUDA runs them, in plain PyTorch, against the same layers over the CPU's ops."""

from dataclasses import replace

import pytest
import torch

from pinfer.export import cuda_parts, parts
from pinfer.export.errors import ExportError
from pinfer.runtime import ops
from pinfer.runtime.cuda_weight_format import CudaWeightFormat
from pinfer.runtime.layers.layer_spec import HeadSpec, LayerSpec
from pinfer.runtime.library import find_library
from pinfer.runtime.weight_format import FLOAT32

PLAIN = LayerSpec(
    hidden_size=48, intermediate_size=40, num_heads=4, num_kv_heads=2, head_dim=12, norm_eps=1e-5,
    attention_scale=0.3, rotary_dim=12,
)  # fmt: skip
SPECS = {
    "plain": PLAIN,
    "partial_rotary_window": replace(PLAIN, rotary_dim=6, sliding_window=5),
    "no_rotary_biases": replace(
        PLAIN, rotary_dim=0, attention_bias=True, output_bias=True, mlp_bias=True
    ),
    "head_norm_softcap": replace(PLAIN, qk_norm="head", attention_softcap=20.0),
    "row_norm": replace(PLAIN, qk_norm="all"),
    "parallel_layer_norm": replace(
        PLAIN, norm="layer", parallel_residual=True, gated=False, activation="gelu"
    ),
    "norms_around": replace(
        PLAIN,
        norms=("attention_norm", "attention_output_norm", "mlp_norm", "mlp_output_norm"),
        residual_scale=0.7,
    ),
}
BLOCK = 16


def copy_weights(cuda, cpu, generator):
    """Random weights, the same in both, as bfloat16 has them."""
    for name, value in cuda.module.named_parameters():
        other = cpu.module.get_parameter(name)
        if value.dim() == 1:
            value.copy_(1.0 + 0.2 * torch.randn(value.shape, generator=generator))
            other.copy_(value)
            continue
        weight = torch.randn(value.shape, generator=generator) * value.shape[1] ** -0.5
        in_features = other.shape[1]  # of a packed float32 weight
        weight = weight[:, :in_features].bfloat16().float()
        value.copy_(CudaWeightFormat("bfloat16").pack(weight))
        other.copy_(FLOAT32.pack(weight))


@pytest.mark.parametrize(
    ("name", "cache_dtype"),
    [*((name, torch.bfloat16) for name in SPECS), ("plain", torch.uint8)],
)
def test_layer_is_the_cpus(name, cache_dtype):
    if find_library() is None:
        pytest.skip("libpinfer is not built")
    spec = SPECS[name]
    numbers = torch.float8_e4m3fn if cache_dtype == torch.uint8 else cache_dtype
    format = CudaWeightFormat("bfloat16")
    cuda = cuda_parts.decoder_layer("layer", spec, 6, format, cache_dtype, BLOCK)
    cpu = parts.decoder_layer("layer", spec, 6, FLOAT32, torch.float32, BLOCK)
    generator = torch.Generator().manual_seed(1)
    # Two requests of 21 and 3 tokens, the second with 17 before; blocks in disorder.
    lens, starts = torch.tensor([21, 20]), torch.tensor([0, 21, 24])
    table = torch.tensor([[4, 1], [2, 5]])
    slots = [int(table[0, p // BLOCK]) * BLOCK + p % BLOCK for p in range(21)]
    slots += [int(table[1, p // BLOCK]) * BLOCK + p % BLOCK for p in range(17, 20)]
    step = (torch.tensor(slots), table.int(), lens.int(), starts.int())
    x = torch.randn(24, spec.hidden_size, generator=generator)
    angles = torch.randn(24, max(spec.rotary_dim // 2, 1), generator=generator)
    with torch.no_grad():
        copy_weights(cuda, cpu, generator)
        caches = [torch.zeros(6, *entry.shape[1:], dtype=entry.dtype) for entry in cuda.inputs[3:5]]
        past = torch.randn(2, 17, spec.num_kv_heads, spec.head_dim, generator=generator)
        k_shape, v_shape = ops.kv_cache_shapes(
            6, BLOCK, spec.num_kv_heads, spec.head_dim, torch.float32
        )
        like = [torch.zeros(k_shape), torch.zeros(v_shape)]
        for p in range(17):
            block, offset = int(table[1, p // BLOCK]), p % BLOCK
            for cache, value in zip(caches, past, strict=True):
                cache = cache.view(numbers)
                cache[block, :, offset, : spec.head_dim] = value[p]
            rounded = past.to(numbers).float()
            like[0].view(6, spec.num_kv_heads, spec.head_dim, BLOCK)[block, :, :, offset] = rounded[
                0, p
            ]
            like[1][block, :, offset] = rounded[1, p]
        found = cuda.module(x, angles.cos(), angles.sin(), *caches, *step)
        expected = cpu.module(x, angles.cos(), angles.sin(), *like, *step)
    # Rows are rounded to bfloat16, and what is new in the cache to its dtype.
    rounding = 2**-8 if cache_dtype == torch.bfloat16 else 2**-4
    assert (found - expected).abs().max() <= 4 * rounding * expected.abs().max()
    keys = caches[0].view(numbers)[table[0, 0], :, :, : spec.head_dim].float()
    expected_keys = like[0].view(6, spec.num_kv_heads, spec.head_dim, BLOCK)[table[0, 0]]
    torch.testing.assert_close(keys, expected_keys.transpose(1, 2), rtol=2 * rounding, atol=2**-6)


def test_head_is_the_cpus():
    spec = HeadSpec(hidden_size=48, vocab_size=50, norm_eps=1e-5, logit_softcap=30.0)
    cuda, cpu = cuda_parts.head(spec, CudaWeightFormat("bfloat16")), parts.head(spec, FLOAT32)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        copy_weights(cuda, cpu, generator)
        x = torch.randn(3, 48, generator=generator)
        found, expected = cuda.module(x), cpu.module(x)
    assert (found - expected).abs().max() <= 2**-7 * expected.abs().max()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"num_experts": 4, "experts_per_token": 2}, "no kernel for mixtures of experts"),
        ({"head_dim": 272}, "heads have 272 numbers, at most 256"),
    ],
)
def test_layers_without_a_kernel_are_refused(changed, message):
    spec = replace(PLAIN, **changed)
    with pytest.raises(ExportError, match=message):
        cuda_parts.decoder_layer(
            "layer", spec, 6, CudaWeightFormat("bfloat16"), torch.bfloat16, BLOCK
        )
