"""How weights of linear layers are stored: in floats, or quantised to int8 or int4.

The bytes are those of csrc/kernels/quantized_weight.h: panels of 16 outputs, rows of 64 bytes.
Groups of 32 int8 numbers share a scale, groups of int4 numbers a scale and a minimum (float16).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from pinfer.runtime import ops

ROW_BYTES = ops.ROW_BYTES
PANEL = ops.PANEL_WIDTH
INT8_GROUP = 32  # numbers that share a scale
# Ranges that are tried for a group of int4, as parts of what its numbers span.
INT4_RANGES = (1.0, 0.94, 0.88, 0.82, 0.76)
LEAST_IMPORTANCE = 1e-4  # of a column, as a part of the mean
QUANTIZED_AT_A_TIME = 1 << 22  # numbers


@dataclass(frozen=True)
class WeightFormat:
    name: str  # float32, bfloat16, int8 or int4
    group_size: int = 0  # of int4

    def __post_init__(self) -> None:
        if self.name not in ("float32", "bfloat16", "int8", "int4"):
            raise ValueError(f"weights are float32, bfloat16, int8 or int4, got {self.name!r}")
        good = (
            self.group_size in range(32, 4097, 32) if self.name == "int4" else not self.group_size
        )
        if not good:
            raise ValueError(
                f"group_size must be a multiple of 32 up to 4096 for int4 and 0 for other formats,"
                f" got {self.group_size} for {self.name}"
            )

    @property
    def dtype(self) -> torch.dtype:
        """Of the packed tensor; int4 is stored as bytes."""
        return {
            "float32": torch.float32,
            "bfloat16": torch.bfloat16,
            "int8": torch.int8,
            "int4": torch.uint8,
        }[self.name]

    def packed_shape(self, out_features: int, in_features: int) -> tuple[int, ...]:
        return ops.packed_shape(out_features, in_features, self.dtype, self.group_size)

    @property
    def is_quantized(self) -> bool:
        return self.name in ("int8", "int4")

    @property
    def load_dtype(self) -> torch.dtype:
        """In which pack() should be given a weight that is not quantised."""
        return self.dtype

    @property
    def is_packed_by_rows(self) -> bool:
        """Whether parts of whole panels may be packed alone, and follow each other in memory."""
        return True

    def quantize(self, weight: Tensor, importance: Tensor | None = None) -> QuantizedWeight:
        """A weight [out_features, in_features] in any float dtype, rounded to this format, which
        is int8 or int4. importance: [in_features], what a squared error counts in each column
        (int4 only; None: the same in all). ValueError if a scale is beyond what float16 holds."""
        if self.name == "int8":
            return QuantizedWeight(*quantize_int8(weight), None, INT8_GROUP)
        parts = quantize_int4(weight, self.group_size, importance)
        return QuantizedWeight(*parts, self.group_size)

    def pack(self, weight: Tensor) -> Tensor:
        """A weight [out_features, in_features] in any float dtype, as the kernels take it.
        ValueError if a scale is beyond what float16 holds."""
        if self.is_quantized:
            return self.quantize(weight).pack()
        return ops.pack_linear(weight.to(self.dtype))

    def pack_quantized(self, weight: QuantizedWeight) -> Tensor:
        """REQUIRES integers of this format."""
        return weight.pack()

    def unpack(self, packed: Tensor, out_features: int, in_features: int) -> Tensor:
        """What the packed weight stands for, float32 [out_features, in_features]."""
        shape = self.packed_shape(out_features, in_features)
        if tuple(packed.shape) != shape or packed.dtype != self.dtype:
            raise ValueError(
                f"packed {self.name} weight must be {self.dtype} with shape {shape}, got"
                f" {packed.dtype} with {tuple(packed.shape)}"
            )
        if self.name == "int8":
            return _unpack_int8(packed, out_features, in_features)
        if self.name == "int4":
            return _unpack_int4(packed, out_features, in_features)
        return ops.unpack_linear(packed, out_features, in_features).float()


FLOAT32 = WeightFormat("float32")
BFLOAT16 = WeightFormat("bfloat16")
INT8 = WeightFormat("int8")


@dataclass(frozen=True)
class QuantizedWeight:
    """A weight [out_features, in_features] of integers: number * scale, or number * scale +
    minimum. Numbers of a row share these in groups of group_size; the last group may be smaller."""

    numbers: Tensor  # [out_features, in_features]; int8, with minima uint8 below 16
    scales: Tensor  # float16 [out_features, groups]
    minima: Tensor | None  # float16 [out_features, groups]
    group_size: int

    @staticmethod
    def cat(weights: list[QuantizedWeight]) -> QuantizedWeight:
        """Weights of one kind, one after another along the outputs."""
        minima = [weight.minima for weight in weights if weight.minima is not None]
        return QuantizedWeight(
            torch.cat([weight.numbers for weight in weights]),
            torch.cat([weight.scales for weight in weights]),
            torch.cat(minima) if minima else None,
            weights[0].group_size,
        )

    def rows(self, order: Tensor | slice) -> QuantizedWeight:
        """These of its outputs, in this order."""
        minima = None if self.minima is None else self.minima[order]
        return replace(self, numbers=self.numbers[order], scales=self.scales[order], minima=minima)

    def in_format(self, format: WeightFormat) -> QuantizedWeight | None:
        """The same weight, number by number, as `format` has it; None if it cannot."""
        if format.name != ("int8" if self.minima is None else "int4"):
            return None
        wanted = format.group_size or INT8_GROUP
        if self.scales.shape[1] > 1 and self.group_size % wanted:
            return None
        in_features = self.numbers.shape[1]
        of_number = torch.arange(0, in_features, wanted) // self.group_size
        minima = None if self.minima is None else self.minima[:, of_number]
        return QuantizedWeight(self.numbers, self.scales[:, of_number], minima, wanted)

    def dequantize(self) -> Tensor:
        """float32 [out_features, in_features]."""
        of_number = torch.arange(self.numbers.shape[1]) // self.group_size
        values = self.numbers.float() * self.scales.float()[:, of_number]
        return values if self.minima is None else values + self.minima.float()[:, of_number]

    def pack(self) -> Tensor:
        """REQUIRES groups of a WeightFormat."""
        if self.minima is None:
            return pack_int8(self.numbers, self.scales)
        return pack_int4(self.numbers, self.scales, self.minima, self.group_size)


def quantize_int8(weight: Tensor) -> tuple[Tensor, Tensor]:
    """(int8 numbers [out_features, in_features], float16 scales [out_features, groups])."""
    out_features, in_features = weight.shape
    padded = nn.functional.pad(weight.float(), (0, -in_features % INT8_GROUP))
    values = padded.view(out_features, -1, INT8_GROUP)
    scales = half_scales(values.abs().amax(2) / 127)
    # A scale that float16 rounds down to 0 belongs to numbers that are as good as 0.
    divisors = torch.where(scales == 0, torch.inf, scales.float())[..., None]
    numbers = torch.round(values / divisors).clamp(-127, 127).to(torch.int8)
    return numbers.view(out_features, -1)[:, :in_features], scales


def pack_int8(numbers: Tensor, scales: Tensor) -> Tensor:
    """int8 [out_features, in_features] and float16 [out_features, groups of 32]."""
    out_features, in_features = numbers.shape
    panels, blocks, _ = INT8.packed_shape(out_features, in_features)
    padded = numbers.new_zeros(panels * PANEL, blocks * 2 * INT8_GROUP)
    padded[:out_features, :in_features] = numbers
    padded_scales = scales.new_zeros(panels * PANEL, blocks * 2)
    padded_scales[:out_features, : scales.shape[1]] = scales
    header = padded_scales.view(panels, PANEL, blocks, 2).permute(0, 2, 3, 1).contiguous()
    steps = padded.view(panels, PANEL, blocks, -1, 4).permute(0, 2, 3, 1, 4)
    return torch.cat(
        [
            header.view(torch.int8).view(panels, blocks, ROW_BYTES),
            steps.reshape(panels, blocks, -1),
        ],
        2,
    )


def _unpack_int8(packed: Tensor, out_features: int, in_features: int) -> Tensor:
    panels, blocks, _ = packed.shape
    header = packed[:, :, :ROW_BYTES].contiguous().view(torch.float16)
    scales = (
        header.view(panels, blocks, 2, PANEL).permute(0, 3, 1, 2).reshape(panels * PANEL, -1, 1)
    )
    steps = packed[:, :, ROW_BYTES:].reshape(panels, blocks, -1, PANEL, 4).permute(0, 3, 1, 2, 4)
    numbers = steps.reshape(panels * PANEL, -1, INT8_GROUP).float()
    values = (numbers * scales.float()).reshape(panels * PANEL, -1)
    return values[:out_features, :in_features].contiguous()


def quantize_int4(
    weight: Tensor, group_size: int, importance: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """(uint8 numbers below 16 [out_features, in_features], float16 scales and minima
    [out_features, groups]): of several ranges the one with the least squared error, each column's
    times its importance."""
    out_features, in_features = weight.shape
    groups = -(-in_features // group_size)
    rows = max(1, QUANTIZED_AT_A_TIME // (groups * group_size))
    counts = torch.zeros(groups * group_size)  # 0 for what fills the last group up
    counts[:in_features] = 1
    if importance is not None:
        relative = (importance / importance.mean()).nan_to_num(1.0)
        counts[:in_features] = relative.clamp(min=LEAST_IMPORTANCE)
    parts = [
        _quantize_rows(weight[i : i + rows], counts.view(-1, group_size))
        for i in range(0, out_features, rows)
    ]
    numbers, scales, minima = (torch.cat(part) for part in zip(*parts, strict=True))
    return numbers[:, :in_features], scales, minima


def _quantize_rows(weight: Tensor, counts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """counts: what each number's squared error counts, [groups, group_size]."""
    num_rows, in_features = weight.shape
    group_size = counts.shape[1]
    gap = counts.numel() - in_features
    # The last number again does not widen a group's range.
    values = torch.cat([weight.float(), weight[:, -1:].float().expand(-1, gap)], 1)
    values = values.view(num_rows, -1, group_size)
    size = counts.sum(1, keepdim=True)
    low, high = values.amin(2, keepdim=True), values.amax(2, keepdim=True)
    middle, half = (low + high) / 2, (high - low) / 2
    best_error = torch.full_like(low, torch.inf)
    best = [torch.zeros_like(values), torch.zeros_like(low), low]
    for part in INT4_RANGES:
        scale, minimum = part * half * 2 / 15, middle - part * half
        numbers = _rounded(values, scale, minimum)
        # With the numbers given, scale and minimum by least squares.
        mean = (numbers * counts).sum(2, keepdim=True) / size
        spread = ((numbers - mean).square() * counts).sum(2, keepdim=True)
        fitted = ((numbers - mean) * counts * values).sum(2, keepdim=True) / spread
        fitted = torch.where(spread > 0, fitted, scale)
        scale = half_scales(fitted).float()
        average = (values * counts).sum(2, keepdim=True) / size
        minimum = half_scales(average - scale * mean).float()
        numbers = _rounded(values, scale, minimum)
        error = ((numbers * scale + minimum - values).square() * counts).sum(2, keepdim=True)
        better = error < best_error
        best_error = torch.where(better, error, best_error)
        found = (numbers, scale, minimum)
        best = [torch.where(better, new, old) for new, old in zip(found, best, strict=True)]
    numbers, scale, minimum = best
    return (
        numbers.to(torch.uint8).view(num_rows, -1),
        scale.squeeze(2).half(),
        minimum.squeeze(2).half(),
    )


def half_scales(values: Tensor) -> Tensor:
    """float16 of any float dtype. ValueError if one is beyond it."""
    if not values.isfinite().all():
        raise ValueError("a scale is not finite")
    halves = values.half()
    if not halves.isfinite().all():
        raise ValueError("a value is larger than float16 scales can express")
    return halves


def _rounded(values: Tensor, scale: Tensor, minimum: Tensor) -> Tensor:
    return torch.round((values - minimum) / torch.where(scale == 0, 1, scale)).clamp(0, 15)


def pack_int4(numbers: Tensor, scales: Tensor, minima: Tensor, group_size: int) -> Tensor:
    """uint8 [out_features, in_features] below 16, float16 [out_features, groups] twice."""
    out_features, in_features = numbers.shape
    groups = scales.shape[1]
    panels = -(-out_features // PANEL)
    padded = numbers.new_zeros(panels * PANEL, groups * group_size)
    padded[:out_features, :in_features] = numbers
    # Eight numbers of an output: the first four are the low halves of its four bytes.
    eights = padded.view(panels, PANEL, groups, group_size // 8, 2, 4)
    both = eights[..., 0, :] | eights[..., 1, :] << 4
    rows = both.permute(0, 2, 3, 1, 4).reshape(panels, groups, 8 * group_size)

    def header(values: Tensor) -> Tensor:
        wide = values.new_zeros(panels * PANEL, groups)
        wide[:out_features] = values
        ordered = wide.view(panels, PANEL, groups).permute(0, 2, 1).contiguous()
        return ordered.view(torch.uint8).view(panels, groups, 2 * PANEL)

    return torch.cat([header(scales), header(minima), rows], 2)


def _unpack_int4(packed: Tensor, out_features: int, in_features: int) -> Tensor:
    panels, groups, _ = packed.shape
    group_size = ops.int4_group_size(packed)

    def header(begin: int) -> Tensor:
        values = packed[:, :, begin : begin + 2 * PANEL].contiguous().view(torch.float16)
        return values.permute(0, 2, 1).reshape(panels * PANEL, groups, 1).float()

    both = packed[:, :, ROW_BYTES:].reshape(panels, groups, group_size // 8, PANEL, 4)
    eights = torch.stack([both & 15, both >> 4], 4)  # [panels, groups, eights, outputs, half, 4]
    numbers = eights.permute(0, 3, 1, 2, 4, 5).reshape(panels * PANEL, groups, group_size)
    values = numbers.float() * header(0) + header(2 * PANEL)
    return values.reshape(panels * PANEL, -1)[:out_features, :in_features].contiguous()
