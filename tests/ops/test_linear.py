"""linear and embedding against torch in float64."""

import pytest
import torch

from pinfer.runtime import ops

from .conftest import ISAS, TOLERANCE, supported_isas

SHAPES = [(1, 1), (3, 1), (1, 16), (100, 3), (576, 100), (33, 576), (577, 129), (300, 17)]  # K, N


def reference(x, weight):
    """The product in float64 of what the kernels multiply, and the sum of absolute products."""
    rounded = x if weight.dtype == torch.float32 else x.bfloat16()
    x64, w64 = rounded.double(), weight.double()
    return x64 @ w64.t(), x64.abs() @ w64.abs().t()


@pytest.mark.parametrize("name", ISAS)
def test_instruction_sets_of_this_machine(name):
    if name not in supported_isas():
        pytest.skip(f"this processor has no {name}: its kernels are tested emulated, in C++")
    ops.force_isa(name)
    assert ops.get_isa() == name
    ops.force_isa("")


@pytest.mark.parametrize("num_tokens", [1, 2, 7, 15, 16, 17, 97])
@pytest.mark.parametrize(("in_features", "out_features"), SHAPES)
def test_linear(isa, dtype, num_tokens, in_features, out_features):
    x = torch.randn(num_tokens, in_features)
    weight = torch.randn(out_features, in_features).to(dtype)
    out = ops.linear(x, ops.pack_linear(weight), out_features)
    expected, magnitude = reference(x, weight)
    error = ((out - expected).abs() / magnitude.clamp(min=1e-30)).max().item()
    assert error <= TOLERANCE["linear", dtype]


@pytest.mark.parametrize("num_threads", [1, 2, 3])
def test_linear_rows_do_not_depend_on_each_other(isa, dtype, num_threads):
    before = ops.get_num_threads()
    ops.set_num_threads(num_threads)
    x = torch.randn(130, 301)
    packed = ops.pack_linear(torch.randn(215, 301).to(dtype))
    alone = torch.cat([ops.linear(x[i : i + 1], packed, 215) for i in range(130)])
    assert torch.equal(ops.linear(x, packed, 215), alone)
    assert torch.equal(ops.linear(x[5:22], packed, 215), alone[5:22])
    ops.set_num_threads(before)


def test_linear_rounds_to_nearest_even(isa):
    # 1 + 2^-8 lies between two bfloat16 numbers: the even one is 1; 1 + 3 * 2^-8 goes up.
    x = torch.tensor([[1 + 2**-8], [1 + 3 * 2**-8], [1 + 2**-8 + 2**-20]])
    out = ops.linear(x, ops.pack_linear(torch.ones(1, 1, dtype=torch.bfloat16)), 1)
    assert out.flatten().tolist() == [1.0, 1 + 2**-6, 1 + 2**-7]


def test_linear_accepts_rows_with_strides(dtype):
    x = torch.randn(20, 12)
    packed = ops.pack_linear(torch.randn(9, 6).to(dtype))
    assert torch.equal(
        ops.linear(x[::2, ::2], packed, 9), ops.linear(x[::2, ::2].clone(), packed, 9)
    )


def test_linear_of_no_rows(dtype):
    packed = ops.pack_linear(torch.randn(9, 6).to(dtype))
    assert ops.linear(torch.empty(0, 6), packed, 9).shape == (0, 9)


@pytest.mark.parametrize(("out_features", "in_features"), [(1, 1), (16, 2), (17, 3), (100, 577)])
def test_pack_and_unpack(dtype, out_features, in_features):
    weight = torch.randn(out_features, in_features).to(dtype)
    packed = ops.pack_linear(weight)
    assert tuple(packed.shape) == ops.packed_shape(out_features, in_features, dtype)
    assert torch.equal(ops.unpack_linear(packed, out_features, in_features), weight)
    assert packed.float().abs().sum() == pytest.approx(weight.float().abs().sum().item(), rel=1e-5)


def test_linear_errors(dtype):
    packed = ops.pack_linear(torch.randn(9, 6).to(dtype))
    with pytest.raises(ValueError, match="weight for 9 outputs and 3 inputs must be packed"):
        ops.linear(torch.randn(2, 3), packed, 9)
    with pytest.raises(ValueError, match="weight for 33 outputs"):
        ops.linear(torch.randn(2, 6), packed, 33)
    with pytest.raises(ValueError, match=r"x must be torch\.float32 with 2 dimensions"):
        ops.linear(torch.randn(2, 6).double(), packed, 9)
    with pytest.raises(ValueError, match="packed weight must have shape"):
        ops.unpack_linear(packed, 9, 60)
    with pytest.raises(ValueError, match="weight dtype must be float32 or bfloat16"):
        ops.pack_linear(torch.zeros(2, 2, dtype=torch.float16))


@pytest.mark.parametrize("hidden_size", [1, 2, 33, 576])
def test_embedding(isa, dtype, hidden_size):
    weight = torch.randn(50, hidden_size).to(dtype)
    token_ids = torch.tensor([0, 49, 16, 15, 17, 0, 31, 32], dtype=torch.int32)
    out = ops.embedding(token_ids, ops.pack_linear(weight), hidden_size)
    assert torch.equal(out, weight[token_ids.long()].float())


def test_embedding_errors():
    packed = ops.pack_linear(torch.randn(50, 8))
    with pytest.raises(ValueError, match=r"token_ids\[1\] must be in \[0, 64\), got 64"):
        ops.embedding(torch.tensor([3, 64], dtype=torch.int32), packed, 8)
    with pytest.raises(ValueError, match="got -1"):
        ops.embedding(torch.tensor([-1], dtype=torch.int32), packed, 8)
    with pytest.raises(ValueError, match=r"token_ids must be torch\.int32"):
        ops.embedding(torch.tensor([1]), packed, 8)


@pytest.mark.parametrize("scaling", [1.0, 1.25])
def test_rotary_embedding(scaling):
    positions = torch.tensor([0, 1, 2, 100, 8191, 131071], dtype=torch.int32)
    inv_freq = 1.0 / (10000.0 ** (torch.arange(0, 64, 2).float() / 64))
    cos, sin = ops.rotary_embedding(positions, inv_freq, scaling)
    angles = (positions[:, None].float() * inv_freq[None]).double()
    tolerance = TOLERANCE["rotary", torch.float32]
    assert (cos - angles.cos() * scaling).abs().max() <= tolerance
    assert (sin - angles.sin() * scaling).abs().max() <= tolerance
