"""How weights of linear layers are stored for the CUDA kernels: rows, padded with zeros.

The layouts are those of `Weight` in csrc/kernels/kernels_cuda.h. A quantised weight is one tensor
of bytes: its numbers, then its scales, then (int4) its minima, each part at a multiple of 64 bytes.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pinfer.runtime.weight_format import QuantizedWeight, WeightFormat, quantize_int4

PART_ALIGNMENT = 64  # bytes
FLOAT8 = torch.float8_e4m3fn
FLOAT8_MAX = 448.0
# Numbers that a row is padded to a multiple of.
STEPS = {"bfloat16": 32, "float16": 32, "float8": 64, "int4": 128}
# dtype codes of csrc/ops.h.
CODES = {"bfloat16": 15, "float16": 5, "float8": 24, "int4": 0}


class CudaWeightFormat(WeightFormat):
    """bfloat16, float16, float8 (e4m3, a scale for each output) or int4."""

    def __post_init__(self) -> None:
        if self.name not in STEPS:
            raise ValueError(
                f"weights on CUDA are bfloat16, float16, float8 or int4, got {self.name!r}"
            )
        sizes = (32, 64, 128, 256)
        if self.group_size not in (sizes if self.name == "int4" else (0,)):
            raise ValueError(
                f"group_size must be one of {sizes} for int4 and 0 for other formats, got"
                f" {self.group_size} for {self.name}"
            )

    @property
    def code(self) -> int:
        return CODES[self.name]

    @property
    def dtype(self) -> torch.dtype:
        """Of the packed tensor; quantised weights are bytes."""
        return {"bfloat16": torch.bfloat16, "float16": torch.float16}.get(self.name, torch.uint8)

    @property
    def load_dtype(self) -> torch.dtype:
        return torch.float32 if self.name == "float8" else self.dtype

    @property
    def is_quantized(self) -> bool:
        """Whether it is made of a QuantizedWeight's integers."""
        return self.name == "int4"

    @property
    def is_packed_by_rows(self) -> bool:
        return self.name in ("bfloat16", "float16")

    def padded(self, in_features: int) -> int:
        return -(-in_features // STEPS[self.name]) * STEPS[self.name]

    def num_groups(self, in_features: int) -> int:
        """Of a row of int4, those of the padding included."""
        return -(-self.padded(in_features) // self.group_size)

    def part_bytes(self, out_features: int, in_features: int) -> tuple[int, ...]:
        """Of a quantised weight: numbers, scales, minima, each filled up to the alignment."""
        padded = self.padded(in_features)
        if self.name == "float8":
            parts = (out_features * padded, out_features * 4)
        else:
            each = out_features * self.num_groups(in_features) * 2
            parts = (out_features * padded // 2, each, each)
        return tuple(-(-size // PART_ALIGNMENT) * PART_ALIGNMENT for size in parts)

    def packed_shape(self, out_features: int, in_features: int) -> tuple[int, ...]:
        if self.is_packed_by_rows:
            return (out_features, self.padded(in_features))
        return (sum(self.part_bytes(out_features, in_features)),)

    def quantize(self, weight: Tensor, importance: Tensor | None = None) -> QuantizedWeight:
        """REQUIRES int4."""
        return QuantizedWeight(*quantize_int4(weight, self.group_size, importance), self.group_size)

    def pack_quantized(self, weight: QuantizedWeight) -> Tensor:
        """REQUIRES int4, and integers in groups of this format's size."""
        assert weight.minima is not None and weight.group_size == self.group_size
        out_features, in_features = weight.numbers.shape
        padding = self.padded(in_features) - in_features
        numbers = nn.functional.pad(weight.numbers, (0, padding)).to(torch.int64)
        # Number 32 * j + 8 * t + i of 128 is in word 4 * t + j; odd i in the upper half.
        eights = numbers.view(out_features, -1, 4, 4, 8).transpose(2, 3)
        shifts = torch.tensor([2 * i if i % 2 == 0 else 16 + 2 * (i - 1) for i in range(8)])
        words = (eights << shifts).sum(-1)
        words = torch.where(words >= 1 << 31, words - (1 << 32), words).to(torch.int32)
        missing = self.num_groups(in_features) - weight.scales.shape[1]
        scales, minima = (
            nn.functional.pad(values, (0, missing)) for values in (weight.scales, weight.minima)
        )
        return self._joined((words, scales, minima), out_features, in_features)

    def pack(self, weight: Tensor) -> Tensor:
        out_features, in_features = weight.shape
        if self.is_quantized:
            return self.pack_quantized(self.quantize(weight))
        padding = (0, self.padded(in_features) - in_features)
        if self.name != "float8":
            return nn.functional.pad(weight.to(self.dtype), padding).contiguous()
        weight = weight.float()
        scales = weight.abs().amax(1) / FLOAT8_MAX
        # Not beyond the largest: torch makes NaN of what lies above it.
        numbers = weight / torch.where(scales == 0, 1, scales)[:, None]
        numbers = nn.functional.pad(numbers.clamp(-FLOAT8_MAX, FLOAT8_MAX), padding).to(FLOAT8)
        return self._joined((numbers, scales), out_features, in_features)

    def unpack(self, packed: Tensor, out_features: int, in_features: int) -> Tensor:
        """What the packed weight stands for, float32 [out_features, in_features]."""
        shape = self.packed_shape(out_features, in_features)
        if tuple(packed.shape) != shape or packed.dtype != self.dtype:
            raise ValueError(
                f"packed {self.name} weight must be {self.dtype} with shape {shape}, got"
                f" {packed.dtype} with {tuple(packed.shape)}"
            )
        if self.is_packed_by_rows:
            return packed[:, :in_features].float()
        parts = packed.split(self.part_bytes(out_features, in_features))
        if self.name == "float8":
            count = out_features * self.padded(in_features)
            numbers = parts[0][:count].view(FLOAT8).view(out_features, -1).float()
            scales = parts[1][: out_features * 4].view(torch.float32)
            return (numbers * scales[:, None])[:, :in_features].contiguous()
        count = out_features * self.padded(in_features) // 2
        words = parts[0][:count].view(torch.int32).view(out_features, -1, 4, 4, 1)
        shifts = torch.tensor([2 * i if i % 2 == 0 else 16 + 2 * (i - 1) for i in range(8)])
        numbers = (words >> shifts & 15).transpose(2, 3).reshape(out_features, -1)
        groups = self.num_groups(in_features)
        scales, minima = (
            part[: out_features * groups * 2]
            .view(torch.float16)
            .view(out_features, groups)
            .float()
            .repeat_interleave(self.group_size, 1)[:, : numbers.shape[1]]
            for part in parts[1:]
        )
        return (numbers * scales + minima)[:, :in_features].contiguous()

    def _joined(self, parts: tuple[Tensor, ...], out_features: int, in_features: int) -> Tensor:
        """Each part's bytes, filled up with zeros."""
        sizes = self.part_bytes(out_features, in_features)
        flat = [part.contiguous().flatten().view(torch.uint8) for part in parts]
        return torch.cat(
            [
                nn.functional.pad(f, (0, size - f.numel()))
                for f, size in zip(flat, sizes, strict=True)
            ]
        )
