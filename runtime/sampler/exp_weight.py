"""Unnormalised probabilities as integers: weight(x) = round(2^40 * exp(x)) for x <= 0.

Sums of integers do not depend on their order, so the filters may look at tokens in any order; and
the C++ twin, which does the same IEEE operations in the same order for each element, gets the same
weights to the bit. No library's exp is used: its last bits change with libc and CPU. A token more
than 2^41 times less likely than the best one has weight 0 and is never chosen.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

WEIGHT_BITS = 40
_SMALLEST_EXPONENT = -28.5  # exp of it is below 2^-41: weight 0
_SMALLEST_ARGUMENT = -700.0

_LOG2_E = 1.4426950408889634
# ln 2 in two parts; the first ends in 21 zero bits, so that its multiples here are exact.
_LN2_HIGH = 6.93147180369123816490e-01
_LN2_LOW = 1.90821492927058770002e-10

Doubles = npt.NDArray[np.float64]


def exp_of(x: Doubles) -> Doubles:
    """exp(x) with a relative error below 1e-14, for x in [-700, 0]."""
    return _scaled_exp(x, 0)


def exp_weights(
    logits: npt.NDArray[np.float32], max_logit: float, temperature: float
) -> npt.NDArray[np.int64]:
    """weight((logits - max_logit) * (1 / temperature)). logits: [n], none above max_logit."""
    rate = 1.0 / temperature
    x = np.maximum((logits.astype(np.float64) - max_logit) * rate, _SMALLEST_EXPONENT)
    return np.rint(_scaled_exp(x, WEIGHT_BITS)).astype(np.int64)


def exp_sum(logits: npt.NDArray[np.float32], max_logit: float) -> float:
    """The sum of exp(logits - max_logit), for log-softmax."""
    terms = exp_of(np.maximum(logits.astype(np.float64) - max_logit, _SMALLEST_ARGUMENT))
    return math.fsum(terms.tolist())


def _scaled_exp(x: Doubles, scale: int) -> Doubles:
    """exp(x) * 2^scale. numpy does each operation apart, so that nothing is fused."""
    k = np.rint(x * _LOG2_E)
    r = (x - k * _LN2_HIGH) - k * _LN2_LOW  # |r| <= ln(2) / 2
    p = np.full_like(r, 1.0 / math.factorial(11))  # Taylor: 1/11!, 1/10!, ..., 1
    for n in range(10, -1, -1):
        p = p * r + 1.0 / math.factorial(n)
    return np.ldexp(p, k.astype(np.int64) + scale)
