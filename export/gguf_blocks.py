"""Blocks of quantised GGUF tensors, read without going through floats.

A row is cut into blocks of 32 numbers: a float16 scale, for Q4_1 a float16 minimum, then the
numbers. Four bits are stored two to a byte, the first half of the block in the low ones.
"""

from __future__ import annotations

import numpy as np
import torch
from gguf import GGMLQuantizationType

from pinfer.runtime.weight_format import QuantizedWeight, half_scales

BLOCK = 32
HALF_BYTES = 2  # of a float16


def read(kind: GGMLQuantizationType, data: np.ndarray) -> QuantizedWeight:
    """`data`: uint8 [rows, bytes of a row]. ValueError if a minimum is beyond float16."""
    blocks = torch.from_numpy(np.array(data)).view(data.shape[0], -1, _block_bytes(kind))
    return READERS[kind](blocks)


def _block_bytes(kind: GGMLQuantizationType) -> int:
    if kind == GGMLQuantizationType.Q8_0:
        return HALF_BYTES + BLOCK
    return (2 if kind == GGMLQuantizationType.Q4_1 else 1) * HALF_BYTES + BLOCK // 2


def _halves(blocks: torch.Tensor, begin: int) -> torch.Tensor:
    """float16 [rows, blocks]."""
    return blocks[:, :, begin : begin + HALF_BYTES].contiguous().view(torch.float16).squeeze(2)


def _nibbles(blocks: torch.Tensor) -> torch.Tensor:
    """uint8 [rows, numbers] of the last 16 bytes of each block."""
    both = blocks[:, :, -BLOCK // 2 :]
    return torch.cat([both & 15, both >> 4], 2).reshape(len(blocks), -1)


def _read_q8_0(blocks: torch.Tensor) -> QuantizedWeight:
    numbers = blocks[:, :, HALF_BYTES:].reshape(len(blocks), -1).view(torch.int8)
    return QuantizedWeight(numbers, _halves(blocks, 0), None, BLOCK)


def _read_q4_0(blocks: torch.Tensor) -> QuantizedWeight:
    """A number stands for scale * (number - 8)."""
    scales = _halves(blocks, 0)
    return QuantizedWeight(_nibbles(blocks), scales, half_scales(-8 * scales.float()), BLOCK)


def _read_q4_1(blocks: torch.Tensor) -> QuantizedWeight:
    return QuantizedWeight(_nibbles(blocks), _halves(blocks, 0), _halves(blocks, HALF_BYTES), BLOCK)


READERS = {
    GGMLQuantizationType.Q8_0: _read_q8_0,
    GGMLQuantizationType.Q4_0: _read_q4_0,
    GGMLQuantizationType.Q4_1: _read_q4_1,
}
