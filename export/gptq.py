"""int4 rounding that knows what a weight is multiplied with (GPTQ).

A number is rounded so that the error of the ones before it in its row is made up for: what counts
is the error of the products with a calibration text's rows, not that of the weight.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pinfer.runtime.weight_format import QuantizedWeight, WeightFormat

# Added to the moments' diagonal, as a part of its mean: directions that the text hardly has must
# not be free.
DAMPING = 0.01
COLUMNS_AT_A_TIME = 128


def quantize_int4(weight: Tensor, moments: Tensor, format: WeightFormat) -> QuantizedWeight:
    """A weight [out_features, in_features] in floats, rounded to an int4 format. moments: float64
    [in_features, in_features], the sum of x^T x over the rows x that the weight is multiplied with.
    ValueError if a scale is beyond what float16 holds."""
    start = format.quantize(weight, importance=moments.diagonal())
    assert start.minima is not None
    factors, order = _error_factors(moments)
    of_number = (torch.arange(weight.shape[1]) // start.group_size)[order]
    scales, minima = start.scales.float()[:, of_number], start.minima.float()[:, of_number]
    divisors = torch.where(scales == 0, 1, scales)
    left = weight.float()[:, order]  # what rounded numbers have still to make up for
    numbers = torch.empty_like(left)
    for begin in range(0, left.shape[1], COLUMNS_AT_A_TIME):
        block = slice(begin, min(begin + COLUMNS_AT_A_TIME, left.shape[1]))
        errors = torch.empty_like(left[:, block])
        for i in range(block.start, block.stop):
            number = ((left[:, i] - minima[:, i]) / divisors[:, i]).round().clamp(0, 15)
            numbers[:, i] = number
            error = (left[:, i] - (number * scales[:, i] + minima[:, i])) / factors[i, i]
            left[:, i : block.stop] -= error[:, None] * factors[i, i : block.stop]
            errors[:, i - block.start] = error
        left[:, block.stop :] -= errors @ factors[block, block.stop :]
    in_order = numbers[:, order.argsort()].to(torch.uint8)
    return QuantizedWeight(in_order, start.scales, start.minima, start.group_size)


def _error_factors(moments: Tensor) -> tuple[Tensor, Tensor]:
    """(float32 [in_features, in_features], order): row i, divided by its number on the diagonal,
    says what the error of column order[i] asks of the columns behind it. The columns that matter
    most come first, while there are many left to make up for them."""
    diagonal = moments.diagonal()
    order = diagonal.argsort(descending=True)
    damped = moments[order][:, order].clone()
    # A column that no row has used cannot be inverted, and any number does for it.
    mean = float(diagonal.mean()) or 1.0
    damped.diagonal().add_(DAMPING * mean)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(damped))
    return torch.linalg.cholesky(inverse, upper=True).float(), order
