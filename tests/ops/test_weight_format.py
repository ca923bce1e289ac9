"""int8 and int4 weights: rounding, packing, and linear and embedding over what was packed."""

import re
import struct

import pytest
import torch

from pinfer.runtime import ops, weight_format
from pinfer.runtime.weight_format import INT8, WeightFormat, quantize_int4, quantize_int8

INT4 = {size: WeightFormat("int4", size) for size in (32, 64, 128)}
FORMATS = [INT8, *INT4.values()]
OUT_FEATURES = [1, 15, 16, 17, 49]
IN_FEATURES = [1, 3, 31, 33, 100, 257, 576]
TOLERANCE = 2e-6  # of the sum of absolute products: scales are applied in float32
SMALLEST_ROW_MAXIMUM = 1e-30  # of csrc/kernels/quantized_kernel.h
INT8_GROUP = 32  # of int8 weights, and of rows
LEAST_NORMAL = 2**-14  # of float16


def format_name(format):
    return f"{format.name}_{format.group_size}" if format.group_size else format.name


@pytest.fixture(params=FORMATS, ids=format_name)
def format(request):
    return request.param


# ---- weights of every kind ----


def outlier(rows, columns):
    weight = 0.01 * torch.randn(rows, columns)
    weight[:, columns // 2] = 100.0
    return weight


def rows_of_all_sizes(rows, columns):
    return torch.randn(rows, columns) * torch.logspace(-30, 4, rows)[:, None]


KINDS = {
    "normal": torch.randn,
    "positive": torch.rand,
    "offset": lambda rows, columns: 5 + 0.01 * torch.randn(rows, columns),
    "zeros": torch.zeros,
    "constant": lambda rows, columns: (torch.arange(rows) / 3 - 2)[:, None].expand(rows, columns),
    "outlier": outlier,
    "tiny": lambda rows, columns: 1e-30 * torch.randn(rows, columns),
    "large": lambda rows, columns: 1e4 * torch.randn(rows, columns),
    "rows_of_all_sizes": rows_of_all_sizes,
}


@pytest.fixture(params=KINDS)
def kind(request):
    return KINDS[request.param]


def groups_of(values, group_size):
    """Views of each group's columns; the last one may be narrower."""
    return values.split(group_size, 1)


def wide(values, group_size, in_features):
    """A value of each group, for each of its numbers."""
    return values.repeat_interleave(group_size, 1)[:, :in_features]


# ---- packing ----


def expected_values(format, weight):
    """What a packed weight must stand for, from its numbers, float32."""
    if format is INT8:
        numbers, scales = quantize_int8(weight)
        return numbers.float() * wide(scales, INT8_GROUP, weight.shape[1]).float()
    numbers, scales, minima = quantize_int4(weight, format.group_size)
    scale, minimum = (wide(v, format.group_size, weight.shape[1]) for v in (scales, minima))
    return numbers.float() * scale.float() + minimum.float()


@pytest.mark.parametrize("in_features", IN_FEATURES)
def test_pack_and_unpack(format, in_features):
    for out_features in OUT_FEATURES:
        weight = torch.randn(out_features, in_features)
        packed = format.pack(weight)
        assert packed.dtype == format.dtype and packed.is_contiguous()
        assert tuple(packed.shape) == format.packed_shape(out_features, in_features)
        unpacked = format.unpack(packed, out_features, in_features)
        assert torch.equal(unpacked, expected_values(format, weight)), out_features
        # Outputs that only fill a panel stand for zeros.
        padded = format.unpack(packed, packed.shape[0] * ops.PANEL_WIDTH, in_features)
        assert torch.equal(padded[:out_features], unpacked)
        assert not padded[out_features:].any()


def int8_at(data, in_features, row, column):
    """(number, scale) from the bytes, as csrc/kernels/quantized_weight.h describes them."""
    lane, place = row % 16, column % 64
    block = (row // 16 * -(-in_features // 64) + column // 64) * (64 + 16 * 64)
    (scale,) = struct.unpack_from("<e", data, block + (place // 32 * 16 + lane) * 2)
    (number,) = struct.unpack_from("<b", data, block + 64 + place // 4 * 64 + lane * 4 + place % 4)
    return number, scale


def int4_at(data, in_features, group_size, row, column):
    """(number, scale, minimum) from the bytes."""
    lane, place = row % 16, column % group_size
    group_bytes = 64 + group_size // 8 * 64
    group = (row // 16 * -(-in_features // group_size) + column // group_size) * group_bytes
    (scale,) = struct.unpack_from("<e", data, group + lane * 2)
    (minimum,) = struct.unpack_from("<e", data, group + 32 + lane * 2)
    byte = data[group + 64 + place // 8 * 64 + lane * 4 + place % 4]
    return (byte & 15 if place % 8 < 4 else byte >> 4), scale, minimum


@pytest.mark.parametrize(("out_features", "in_features"), [(17, 7), (33, 70), (2, 161)])
def test_packed_bytes(format, out_features, in_features):
    """Against the layout as it is written down: pack and unpack could agree on another one."""
    weight = torch.randn(out_features, in_features)
    data = format.pack(weight).view(torch.uint8).numpy().tobytes()
    places = [(row, column) for row in range(out_features) for column in range(in_features)]
    if format is INT8:
        numbers, scales = quantize_int8(weight)
        for i, j in places:
            expected = (numbers[i, j].item(), scales[i, j // INT8_GROUP].item())
            assert int8_at(data, in_features, i, j) == expected, (i, j)
        return
    size = format.group_size
    numbers, scales, minima = quantize_int4(weight, size)
    for i, j in places:
        group = j // size
        expected = (numbers[i, j].item(), scales[i, group].item(), minima[i, group].item())
        assert int4_at(data, in_features, size, i, j) == expected, (i, j)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_weights_of_another_dtype(format, dtype):
    weight = torch.randn(17, 100).to(dtype)
    assert torch.equal(format.pack(weight), format.pack(weight.float()))


def test_int4_of_a_few_rows_at_a_time(monkeypatch):
    """Large weights are quantised in parts: where they are cut must not matter."""
    weight = torch.randn(49, 100)
    whole = INT4[32].pack(weight)
    for numbers in (1, 128, 300, 49 * 128 - 1):
        monkeypatch.setattr(weight_format, "QUANTIZED_AT_A_TIME", numbers)
        assert torch.equal(INT4[32].pack(weight), whole), numbers


# ---- rounding ----


@pytest.mark.parametrize("in_features", [1, 33, 576])
def test_int8_is_within_half_a_scale(kind, in_features):
    weight = kind(17, in_features)
    numbers, scales = quantize_int8(weight)
    assert scales.dtype == torch.float16 and scales.isfinite().all()
    assert numbers.dtype == torch.int8 and numbers.abs().max() <= 127
    groups = (groups_of(v, INT8_GROUP) for v in (numbers, weight.double()))
    for i, (integers, wanted) in enumerate(zip(*groups, strict=True)):
        largest, scale = wanted.abs().amax(1), scales[:, i].double()
        is_normal = largest / 127 >= LEAST_NORMAL
        # A group's largest number takes the whole range.
        assert (integers.abs().amax(1) == 127)[is_normal].all()
        limit = scale * (0.5 + 1e-5) + torch.where(is_normal, 0, 127 * 2**-25)
        assert ((integers * scale[:, None] - wanted).abs() <= limit[:, None]).all()
    assert INT8.unpack(INT8.pack(weight), 17, in_features).isfinite().all()


@pytest.mark.parametrize("in_features", [1, 33, 100, 576])
@pytest.mark.parametrize("group_size", INT4)
def test_int4_is_within_what_its_range_implies(kind, group_size, in_features):
    """On average over a group; of single numbers, a smaller range may cut some off."""
    weight = kind(17, in_features)
    numbers, scales, minima = quantize_int4(weight, group_size)
    assert numbers.dtype == torch.uint8 and numbers.max() <= 15
    assert scales.dtype == torch.float16 and scales.isfinite().all() and (scales >= 0).all()
    assert minima.dtype == torch.float16 and minima.isfinite().all()
    values = expected_values(INT4[group_size], weight).double()
    pairs = zip(groups_of(values, group_size), groups_of(weight.double(), group_size), strict=True)
    for found, wanted in pairs:
        low, high = wanted.amin(1), wanted.amax(1)
        # Half a step; what float16 rounds off 15 scales and a minimum, subnormal ones too.
        float16 = 2**-11 * (high - low + low.abs()) + 16 * 2**-25
        limit = (high - low) / 30 + float16
        assert ((found - wanted).square().mean(1).sqrt() <= limit).all()


def plain_error(values):
    """Sums of squared errors of a group from its least to its largest number, in float16."""
    low, high = values.amin(1, keepdim=True), values.amax(1, keepdim=True)
    scale, minimum = ((high - low) / 15).half().double(), low.half().double()
    numbers = ((values - minimum) / torch.where(scale == 0, 1, scale)).round().clamp(0, 15)
    return (numbers * scale + minimum - values).square().sum(1)


def ratios_to_plain(weight, group_size):
    """Squared error of each group over that of plain rounding, [groups][rows]."""
    values = expected_values(INT4[group_size], weight).double()
    pairs = zip(groups_of(values, group_size), groups_of(weight.double(), group_size), strict=True)
    return [
        (found - wanted).square().sum(1) / plain_error(wanted).clamp(min=1e-12)
        for found, wanted in pairs
    ]


@pytest.mark.parametrize("name", ["normal", "positive", "outlier", "large"])
@pytest.mark.parametrize("group_size", INT4)
def test_int4_is_no_worse_than_plain_rounding(name, group_size):
    weight = KINDS[name](49, 4 * group_size)
    ratios = torch.stack(ratios_to_plain(weight, group_size))
    assert ratios.max() <= 1.01  # float16 rounds the two otherwise
    if name == "normal":
        assert ratios.mean() < 0.9  # and the search for a range is worth its time


@pytest.mark.parametrize("in_features", [100, 576])
@pytest.mark.parametrize("group_size", INT4)
def test_int4_last_group_is_no_worse_than_plain_rounding(group_size, in_features):
    """A narrower group: what fills it up must not count."""
    weight = torch.randn(49, in_features)
    assert ratios_to_plain(weight, group_size)[-1].max() <= 1.01


@pytest.mark.parametrize("name", ["zeros", "constant"])
def test_equal_numbers(format, name):
    """A range of no width divides by zero nowhere."""
    weight = KINDS[name](17, 100).contiguous()
    unpacked = format.unpack(format.pack(weight), 17, 100)
    assert torch.equal(unpacked == 0, weight == 0)
    error = (unpacked - weight).abs()
    assert (error <= weight.abs() * 2**-11).all()


def test_beyond_float16(format):
    """A scale of infinity would make every logit NaN: either refused, or finite."""
    weight = torch.randn(17, 64)
    weight[3, 5], weight[4, 6] = 3e7, -3e7
    try:
        packed = format.pack(weight)
    except ValueError:
        return
    assert format.unpack(packed, 17, 64).isfinite().all()


# ---- linear ----


def rounded_rows(x):
    """(integers, scale of each number) as kernels round rows: float32, to nearest even."""
    integers, scales = [], []
    for group in groups_of(x, INT8_GROUP):
        largest = group.abs().amax(1, keepdim=True)
        is_zero = largest < SMALLEST_ROW_MAXIMUM
        inverse = 127.0 / torch.where(is_zero, 1, largest)
        integers.append(torch.where(is_zero, 0, (group * inverse).round()))
        scales.append(torch.where(is_zero, 0, largest / 127.0).expand(group.shape))
    return torch.cat(integers, 1), torch.cat(scales, 1)


def reference(x, packed, format, out_features):
    """The product in float64, and the sum of absolute products."""
    in_features = x.shape[1]
    integers, scales = rounded_rows(x)
    rows = integers.double() * scales.double()
    weight = format.unpack(packed, out_features, in_features).double()
    magnitude = weight.abs()
    if format is not INT8:  # scale * number and the minimum are multiplied each on its own
        for group in groups_of(magnitude, format.group_size):
            group += 2 * group.amax(1, keepdim=True)
    return rows @ weight.t(), rows.abs() @ magnitude.t()


@pytest.mark.parametrize("in_features", IN_FEATURES)
def test_linear(isa, format, in_features):
    for out_features in OUT_FEATURES:
        packed = format.pack(torch.randn(out_features, in_features))
        for num_tokens in (1, 7, 97):
            x = torch.randn(num_tokens, in_features)
            out = ops.linear(x, packed, out_features)
            expected, magnitude = reference(x, packed, format, out_features)
            error = ((out - expected).abs() / magnitude.clamp(min=1e-30)).max().item()
            assert error <= TOLERANCE, (out_features, num_tokens)


@pytest.mark.parametrize("in_features", [33, 300])
def test_linear_over_every_kind_of_weight(isa, format, kind, in_features):
    packed = format.pack(kind(17, in_features))
    x = torch.randn(5, in_features) * torch.logspace(-4, 4, 5)[:, None]
    out = ops.linear(x, packed, 17)
    expected, magnitude = reference(x, packed, format, 17)
    assert ((out - expected).abs() <= TOLERANCE * magnitude + 1e-37).all()


@pytest.mark.parametrize("sign", [1, -1])
def test_linear_at_the_ends_of_the_ranges(isa, format, sign):
    """All numbers at their largest, where sums of 16 bits would overflow."""
    weight = sign * torch.ones(17, 576)
    weight[:, ::32] *= -1  # gives groups of int4 a range
    packed = format.pack(weight)
    x = torch.cat([torch.ones(1, 576), -torch.ones(1, 576), weight[:1]])
    expected, magnitude = reference(x, packed, format, 17)
    assert ((ops.linear(x, packed, 17) - expected).abs() <= TOLERANCE * magnitude).all()


def test_linear_rows_do_not_depend_on_each_other(isa, format):
    before = ops.get_num_threads()
    x = torch.randn(130, 301)
    x[7] = float("nan")
    packed = format.pack(torch.randn(215, 301))
    alone = torch.cat([ops.linear(x[i : i + 1], packed, 215) for i in range(130)])
    assert alone[7].isnan().all() and alone[8:].isfinite().all()
    for num_threads in (1, 2, 3):
        ops.set_num_threads(num_threads)
        for begin, end in ((0, 130), (5, 22), (7, 9)):
            found = ops.linear(x[begin:end], packed, 215)
            assert torch.equal(found.view(torch.int32), alone[begin:end].view(torch.int32))
    ops.set_num_threads(before)


def test_linear_of_unusual_rows(isa, format):
    """Zeros and what is as good as zero give zero; what is not finite gives NaN, wherever it is."""
    packed = format.pack(torch.randn(17, 100))
    zero = torch.zeros(3, 100)
    zero[1], zero[2] = 1e-31, -1e-38
    assert torch.equal(ops.linear(zero, packed, 17), torch.zeros(3, 17))
    for value in (float("nan"), float("inf"), -float("inf")):
        for place in (0, 31, 64, 99):
            x = torch.randn(2, 100)
            x[0, place] = value
            out = ops.linear(x, packed, 17)
            assert out[0].isnan().all() and out[1].isfinite().all(), (value, place)


def test_linear_of_no_rows(format):
    packed = format.pack(torch.randn(9, 6))
    assert ops.linear(torch.empty(0, 6), packed, 9).shape == (0, 9)


# ---- embedding ----


@pytest.mark.parametrize("hidden_size", IN_FEATURES)
def test_embedding(isa, format, hidden_size):
    for name in ("normal", "offset", "rows_of_all_sizes"):
        packed = format.pack(KINDS[name](50, hidden_size))
        token_ids = torch.tensor([0, 49, 16, 15, 17, 0, 31, 32], dtype=torch.int32)
        out = ops.embedding(token_ids, packed, hidden_size)
        expected = format.unpack(packed, 50, hidden_size)[token_ids.long()]
        assert torch.equal(out, expected), name


# ---- what is refused ----


def test_linear_errors(format):
    packed = format.pack(torch.randn(9, 160))
    expected = re.escape(str(format.packed_shape(9, 160)))
    more = re.escape(str(format.packed_shape(33, 160)))
    with pytest.raises(ValueError, match=f"weight for 33 outputs and 160 inputs .* shape {more}"):
        ops.linear(torch.randn(2, 160), packed, 33)
    with pytest.raises(ValueError, match="weight for 9 outputs and 300 inputs must be packed"):
        ops.linear(torch.randn(2, 300), packed, 9)
    every_second = torch.stack([packed, packed], -1)[..., 0]
    with pytest.raises(ValueError, match=f"contiguous with shape {expected}"):
        ops.linear(torch.randn(2, 160), every_second, 9)
    with pytest.raises(ValueError, match=r"x must be torch\.float32 with 2 dimensions"):
        ops.linear(torch.randn(2, 160).double(), packed, 9)


@pytest.mark.parametrize("width", [64, 64 + 8 * 16, 64 + 8 * 48, 64 + 8 * 32 + 1, 63, 0])
def test_group_sizes_that_no_kernel_has(width):
    packed = torch.zeros(1, 2, width, dtype=torch.uint8)
    message = re.escape(f"not a packed int4 weight: shape (1, 2, {width})")
    with pytest.raises(ValueError, match=message):
        ops.linear(torch.randn(2, 64), packed, 16)
    with pytest.raises(ValueError, match=message):
        ops.embedding(torch.zeros(1, dtype=torch.int32), packed, 64)
    with pytest.raises(ValueError, match="not a packed int4 weight"):
        ops.int4_group_size(torch.zeros(64 + 8 * 32, dtype=torch.uint8))


def test_a_group_size_that_is_too_large():
    packed = torch.zeros(1, 1, 64 + 8 * 8192, dtype=torch.uint8)
    with pytest.raises(ValueError, match="group_size .* multiple of 32 up to 4096, got 8192"):
        ops.linear(torch.randn(1, 64), packed, 16)


def test_embedding_errors(format):
    packed = format.pack(torch.randn(50, 160))
    with pytest.raises(ValueError, match=r"token_ids\[1\] must be in \[0, 64\), got 64"):
        ops.embedding(torch.tensor([3, 64], dtype=torch.int32), packed, 160)
    with pytest.raises(ValueError, match="weight for 64 outputs and 300 inputs must be packed"):
        ops.embedding(torch.tensor([3], dtype=torch.int32), packed, 300)


@pytest.mark.parametrize("group_size", [-32, 0, 16, 48])
def test_format_refuses_a_group_size(group_size):
    with pytest.raises(ValueError, match="group"):
        WeightFormat("int4", group_size).pack(torch.randn(9, 100))


def test_unpack_refuses_a_wrong_shape(format):
    packed = format.pack(torch.randn(9, 160))
    for out_features, in_features in ((33, 160), (9, 300)):
        with pytest.raises(ValueError, match="shape"):
            format.unpack(packed, out_features, in_features)
