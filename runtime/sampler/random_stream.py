"""Philox4x32-10 (Salmon et al., 2011): a counter-based generator. A draw depends on nothing but
(seed, choice index, output position), so that batching, preemption and restarts do not move it."""

from __future__ import annotations

_MULTIPLIER_0 = 0xD2511F53
_MULTIPLIER_1 = 0xCD9E8D57
_WEYL_0 = 0x9E3779B9
_WEYL_1 = 0xBB67AE85
_NUM_ROUNDS = 10
_MASK = 0xFFFFFFFF


def random_bits(seed: int, choice_index: int, position: int) -> int:
    """64 uniform random bits. Key = seed; counter = (position, choice_index, 0, 0)."""
    c0, c1, c2, c3 = position & _MASK, choice_index & _MASK, 0, 0
    k0, k1 = seed & _MASK, (seed >> 32) & _MASK
    for _ in range(_NUM_ROUNDS):
        product_0 = _MULTIPLIER_0 * c0
        product_1 = _MULTIPLIER_1 * c2
        c0 = (product_1 >> 32) ^ c1 ^ k0
        c1 = product_1 & _MASK
        c2 = (product_0 >> 32) ^ c3 ^ k1
        c3 = product_0 & _MASK
        k0 = (k0 + _WEYL_0) & _MASK
        k1 = (k1 + _WEYL_1) & _MASK
    return (c1 << 32) | c0
