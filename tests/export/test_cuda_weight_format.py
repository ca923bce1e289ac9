"""Weights packed for the CUDA kernels, against the C++ that states their layout."""

import subprocess

import pytest
import torch

from pinfer.runtime.cuda_weight_format import FLOAT8, CudaWeightFormat
from pinfer.runtime.weight_format import QuantizedWeight

FORMATS = [
    CudaWeightFormat("bfloat16"),
    CudaWeightFormat("float16"),
    CudaWeightFormat("float8"),
    CudaWeightFormat("int4", 32),
    CudaWeightFormat("int4", 64),
    CudaWeightFormat("int4", 128),
    CudaWeightFormat("int4", 256),
]
SHAPES = [(1, 1), (16, 128), (5, 96), (48, 130), (33, 257)]


def name_of(format):
    return f"{format.name}{format.group_size or ''}"


def dump(build_dir, format, out_features, in_features):
    """(the parts' bytes, what they stand for) of the C++ reference."""
    program = build_dir / "tests" / "ops" / "cuda" / "weight_dump"
    if not program.is_file():
        pytest.skip("weight_dump is not built: it needs CUDA's headers (tests/gpu/cuda_wheels.py)")
    arguments = [format.name, *map(str, (out_features, in_features, format.group_size, 7))]
    data = subprocess.run([program, *arguments], capture_output=True, check=True).stdout
    padded = format.padded(in_features)
    if format.name == "int4":
        each = out_features * format.num_groups(in_features) * 2
        sizes = [out_features * padded // 2, each, each]
    elif format.name == "float8":
        sizes = [out_features * padded, out_features * 4]
    else:
        sizes = [out_features * padded * 2]
    parts = []
    for size in sizes:
        parts.append(torch.frombuffer(bytearray(data[:size]), dtype=torch.uint8))
        data = data[size:]
    values = torch.frombuffer(bytearray(data), dtype=torch.float64)
    return parts, values.view(out_features, in_features)


def joined(format, parts, out_features, in_features):
    """The packed tensor of the reference's parts."""
    if format.is_packed_by_rows:
        return parts[0].view(format.dtype).view(format.packed_shape(out_features, in_features))
    packed = torch.zeros(format.packed_shape(out_features, in_features), dtype=torch.uint8)
    begin = 0
    sizes = format.part_bytes(out_features, in_features)
    for part, size in zip(parts, sizes, strict=True):
        packed[begin : begin + part.numel()] = part
        begin += size
    return packed


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape)))
@pytest.mark.parametrize("format", FORMATS, ids=name_of)
def test_layout_is_the_kernels(build_dir, format, shape):
    parts, values = dump(build_dir, format, *shape)
    packed = joined(format, parts, *shape)
    found = format.unpack(packed, *shape)
    torch.testing.assert_close(found.double(), values, rtol=1e-6, atol=1e-6)
    if format.name == "int4":
        groups = -(-shape[1] // format.group_size)
        scales, minima = (
            part.view(torch.float16).view(shape[0], -1)[:, :groups] for part in parts[1:]
        )
        of_number = torch.arange(shape[1]) // format.group_size
        numbers = (found - minima.float()[:, of_number]) / scales.float()[:, of_number]
        weight = QuantizedWeight(numbers.round().to(torch.uint8), scales, minima, format.group_size)
        again = format.pack_quantized(weight)
        # The reference has scales for groups of the padding alone, which nothing is multiplied by.
        size = format.part_bytes(*shape)[0]
        assert torch.equal(again[:size], packed[:size])
        assert torch.equal(format.unpack(again, *shape), found)
    elif format.is_packed_by_rows:
        assert torch.equal(format.pack(found), packed)


@pytest.mark.parametrize("format", FORMATS, ids=name_of)
def test_packing_rounds_each_weight_to_its_neighbour(format):
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(19, 150, generator=generator) * torch.logspace(-3, 2, 19)[:, None]
    found = format.unpack(format.pack(weight), 19, 150)
    largest = weight.abs().amax(1, keepdim=True)
    # Half a step of a float's mantissa; int4 may also cut off a group's ends.
    allowed = {
        "bfloat16": weight.abs() * 2**-8,
        "float16": weight.abs() * 2**-11 + 2**-25,
        "float8": weight.abs() * 2**-4 + largest / 448 * 2**-9,
        "int4": largest * 0.3,
    }[format.name]
    assert ((found - weight).abs() <= allowed * 1.001).all()
    if format.name == "int4":
        error = (found - weight).square().mean(1).sqrt() / weight.square().mean(1).sqrt()
        assert error.max() < 0.12


def test_float8_keeps_its_largest_and_rows_of_zeros():
    format = CudaWeightFormat("float8")
    weight = torch.tensor([[0.0] * 70, [3.0] * 69 + [-7.0]])
    packed = format.pack(weight)
    assert packed[: 2 * 128].view(FLOAT8).float().abs().max() == 448
    found = format.unpack(packed, 2, 70)
    assert torch.equal(found[0], weight[0]) and found[1, -1] == -7.0


@pytest.mark.parametrize(
    ("name", "group_size"), [("int8", 0), ("float32", 0), ("int4", 0), ("int4", 96), ("float8", 32)]
)
def test_refused(name, group_size):
    with pytest.raises(ValueError, match=r"on CUDA are|group_size must be"):
        CudaWeightFormat(name, group_size)


def test_unpacking_names_shapes():
    with pytest.raises(ValueError, match=r"must be torch.bfloat16 with shape \(3, 64\)"):
        CudaWeightFormat("bfloat16").unpack(torch.zeros(3, 40), 3, 40)
