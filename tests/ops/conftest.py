"""Fixtures of the op tests: the instruction sets of this machine, tolerances, torch references."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from pinfer.runtime import ops

ISAS = ["portable", "avx2", "avx2_vnni", "avx512", "avx512_vnni", "avx512_bf16"]

# Largest error per unit of the sum of absolute products (linear), absolute (attention, whose
# values are of order 1), and per unit of the row's largest number (moe): sums are in float32 for
# both dtypes, and the references round the operands to bfloat16 as the kernels do; moe's does not
# round rows, which costs what the tolerances of its formats say.
TOLERANCE = {
    ("linear", torch.float32): 2e-6,
    ("linear", torch.bfloat16): 2e-6,
    ("attention", torch.float32): 5e-6,
    ("attention", torch.bfloat16): 5e-6,
    ("rotary", torch.float32): 2e-7,
    ("moe", torch.float32): 5e-6,
    ("moe", torch.bfloat16): 2e-2,
    ("moe", torch.int8): 3e-2,
    ("moe", torch.uint8): 3e-2,
}


def supported_isas() -> list[str]:
    supported = []
    for name in ISAS:
        try:
            ops.force_isa(name)
        except ValueError:
            continue
        supported.append(name)
    ops.force_isa("")
    return supported


@pytest.fixture(params=supported_isas())
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    ops.force_isa(request.param)
    yield request.param
    ops.force_isa("")


@pytest.fixture(params=[torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    return request.param


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = ops.get_num_threads()
    ops.set_num_threads(2)
    yield
    ops.set_num_threads(before)
