"""paged_attention against torch in float64, over odd shapes, permuted blocks and mixed steps."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
import torch

from pinfer.runtime import ops

from .conftest import TOLERANCE

CACHE_DTYPES = [torch.float32, torch.bfloat16, torch.int8]


@pytest.fixture(params=CACHE_DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))
def dtype(request):
    return request.param


def kept(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """K or V [..., head_dim] as a cache holds them, in float32."""
    if dtype != torch.int8:
        return values.to(dtype).float()
    largest = values.abs().amax(-1, keepdim=True)
    inverse = torch.full_like(largest, 127) / largest  # a number over a tensor rounds twice
    return largest / 127 * (values * inverse).round()


def tolerance(dtype: torch.dtype) -> float:
    """An int8 cache is multiplied in float32."""
    return TOLERANCE["attention", torch.float32 if dtype == torch.int8 else dtype]


def fill_with_nan(cache: torch.Tensor) -> None:
    """Bytes that are NaN in floats, and as the scales of int8."""
    cache.view(torch.uint8).fill_(255)


@dataclass
class Case:
    """Requests in one step: each has a context of seq_len, whose last `rows` are computed."""

    seq_lens: list[int]
    rows: list[int]
    num_heads: int = 3
    num_kv_heads: int = 1
    head_dim: int = 64
    block_size: int = 16
    dtype: torch.dtype = torch.float32
    sliding_window: int = 0
    logit_softcap: float = 0.0

    q: list[torch.Tensor] = field(default_factory=list)
    k: list[torch.Tensor] = field(default_factory=list)
    v: list[torch.Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        for seq_len in self.seq_lens:
            self.q.append(torch.randn(seq_len, self.num_heads, self.head_dim))
            self.k.append(torch.randn(seq_len, self.num_kv_heads, self.head_dim))
            self.v.append(torch.randn(seq_len, self.num_kv_heads, self.head_dim))
        self.max_blocks = max(-(-n // self.block_size) for n in self.seq_lens) + 1
        self.num_blocks = self.max_blocks * len(self.seq_lens) + 3
        table = torch.randperm(self.num_blocks)[: self.max_blocks * len(self.seq_lens)]
        self.block_table = table.view(len(self.seq_lens), self.max_blocks).int()
        shapes = ops.kv_cache_shapes(
            self.num_blocks, self.block_size, self.num_kv_heads, self.head_dim, self.dtype
        )
        self.k_cache, self.v_cache = (torch.empty(s, dtype=self.dtype) for s in shapes)
        self.recycle()

    def recycle(self) -> None:
        """Recycled blocks may hold anything."""
        fill_with_nan(self.k_cache)
        fill_with_nan(self.v_cache)

    def slots(self, request: int, begin: int, end: int) -> torch.Tensor:
        positions = torch.arange(begin, end)
        blocks = self.block_table[request][positions // self.block_size].long()
        return blocks * self.block_size + positions % self.block_size

    def run(self, ranges: list[tuple[int, int, int]]) -> list[torch.Tensor]:
        """One step over (request, begin, end): the outputs of each range."""
        lengths = [end - begin for _, begin, end in ranges]
        out = ops.paged_attention(
            torch.cat([self.q[s][b:e] for s, b, e in ranges]),
            torch.cat([self.k[s][b:e] for s, b, e in ranges]),
            torch.cat([self.v[s][b:e] for s, b, e in ranges]),
            self.k_cache,
            self.v_cache,
            torch.cat([self.slots(s, b, e) for s, b, e in ranges]),
            self.block_table[[s for s, _, _ in ranges]],
            torch.tensor([e for _, _, e in ranges], dtype=torch.int32),
            torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()], dtype=torch.int32),
            self.head_dim**-0.5,
            self.sliding_window,
            self.logit_softcap,
        )
        return list(out.split(lengths))

    def run_step(self) -> list[torch.Tensor]:
        """The history in a step of its own, then the step."""
        starts = [n - r for n, r in zip(self.seq_lens, self.rows, strict=True)]
        history = [(s, 0, start) for s, start in enumerate(starts) if start > 0]
        if history:
            self.run(history)
        return self.run([(s, starts[s], n) for s, n in enumerate(self.seq_lens)])

    def reference(self, request: int) -> torch.Tensor:
        seq_len, rows = self.seq_lens[request], self.rows[request]
        repeat = self.num_heads // self.num_kv_heads
        q_dtype = torch.bfloat16 if self.dtype == torch.bfloat16 else torch.float32
        q = self.q[request][seq_len - rows :].to(q_dtype).double()
        k = kept(self.k[request], self.dtype).double().repeat_interleave(repeat, 1)
        v = kept(self.v[request], self.dtype).double().repeat_interleave(repeat, 1)
        scores = torch.einsum("qhd,khd->hqk", q, k) * self.head_dim**-0.5
        if self.logit_softcap:
            scores = self.logit_softcap * torch.tanh(scores / self.logit_softcap)
        distance = torch.arange(seq_len - rows, seq_len)[:, None] - torch.arange(seq_len)[None]
        hidden = distance < 0
        if self.sliding_window:
            hidden |= distance >= self.sliding_window
        weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
        return torch.einsum("hqk,khd->qhd", weights, v)

    def check(self) -> None:
        for request, out in enumerate(self.run_step()):
            error = (out - self.reference(request)).abs().max().item()
            assert error <= tolerance(self.dtype), f"request {request}"


@pytest.mark.parametrize("rows", [1, 7, 15, 16, 17])
@pytest.mark.parametrize("history", [0, 1, 15, 16, 300])
def test_block_boundaries(isa, dtype, rows, history):
    Case([history + rows], [rows], dtype=dtype).check()


@pytest.mark.parametrize("head_dim", [2, 4, 6, 16, 40, 64, 80, 96, 128, 256])
@pytest.mark.parametrize(("num_heads", "num_kv_heads"), [(3, 3), (3, 1), (6, 2), (8, 1)])
def test_heads(isa, dtype, head_dim, num_heads, num_kv_heads):
    Case([50, 20], [9, 1], num_heads, num_kv_heads, head_dim, dtype=dtype).check()


def test_odd_head_dim(isa):
    Case([50, 20], [9, 1], head_dim=7).check()
    Case([50, 20], [9, 1], head_dim=7, dtype=torch.int8).check()
    with pytest.raises(ValueError, match="head_dim must be even in a bfloat16 cache, got 7"):
        Case([2], [2], head_dim=7, dtype=torch.bfloat16).run_step()


def test_mixed_prefill_and_decode(isa, dtype, two_threads):
    Case([1, 270, 33, 600, 16], [1, 250, 1, 1, 5], 9, 3, dtype=dtype).check()


@pytest.mark.parametrize("block_size", [16, 32, 48, 256])
def test_block_sizes(isa, dtype, block_size):
    Case([130, 300], [130, 2], block_size=block_size, dtype=dtype).check()


@pytest.mark.parametrize("window", [1, 5, 64, 300, 1000])
def test_sliding_window(isa, dtype, window):
    Case([530, 20], [40, 20], sliding_window=window, dtype=dtype).check()


def test_logit_softcap(isa, dtype):
    Case([100, 20], [40, 1], logit_softcap=1.5, dtype=dtype).check()


def test_rows_read_what_other_rows_of_the_step_write(isa, dtype):
    # Request 1 shares the first two blocks of request 0, which this step fills.
    case = Case([40, 40], [40, 8], dtype=dtype)
    case.k[1][:32], case.v[1][:32] = case.k[0][:32], case.v[0][:32]
    case.block_table[1, :2] = case.block_table[0, :2]
    outputs = case.run([(0, 0, 40), (1, 32, 40)])
    for request, out in enumerate(outputs):
        error = (out - case.reference(request)).abs().max().item()
        assert error <= tolerance(dtype)


@pytest.mark.parametrize("num_threads", [1, 2, 3])
def test_chunks_of_any_size_give_the_same_bits(isa, dtype, num_threads):
    before = ops.get_num_threads()
    ops.set_num_threads(num_threads)
    case = Case([330, 60], [330, 60], 6, 2, 32, dtype=dtype)
    whole = case.run([(0, 0, 330), (1, 0, 60)])
    for chunk in (1, 5, 16, 100):
        case.recycle()
        pieces = [case.run([(0, b, min(b + chunk, 330))])[0] for b in range(0, 330, chunk)]
        assert torch.equal(torch.cat(pieces), whole[0]), f"chunks of {chunk}"
    ops.set_num_threads(before)


def test_cache_holds_what_was_written(isa, dtype):
    case = Case([50, 20], [50, 20], dtype=dtype)
    case.run_step()
    keys, values = ops.unpack_kv_cache(case.k_cache, case.v_cache)
    written = torch.zeros(case.num_blocks, case.block_size, dtype=torch.bool)
    for request, length in enumerate(case.seq_lens):
        for position, slot in enumerate(case.slots(request, 0, length).tolist()):
            block, offset = divmod(slot, case.block_size)
            written[block, offset] = True
            for found, rows in ((keys, case.k), (values, case.v)):
                expected = kept(rows[request][position], dtype)
                assert torch.equal(found[block, offset].float(), expected)
    assert keys[~written].isnan().all() and values[~written].isnan().all()


def test_unwritten_slots(isa, dtype):
    case = Case([20], [20], dtype=dtype)
    case.run_step()
    before = case.k_cache.clone(), case.v_cache.clone()
    case.slots = lambda request, begin, end: torch.full((end - begin,), -1)
    case.k[0].zero_()
    case.run([(0, 0, 20)])
    assert torch.equal(case.k_cache.nan_to_num(), before[0].nan_to_num())
    assert torch.equal(case.v_cache.nan_to_num(), before[1].nan_to_num())


def test_errors():
    case = Case([20], [20])
    case.block_table[0, 0] = -1
    with pytest.raises(ValueError, match=r"block_table\[0, 0\] must be in \[0, 6\), got -1"):
        case.run([(0, 16, 20)])
    case = Case([20], [20])
    case.k[0] = case.k[0][:, :, :8]
    with pytest.raises(ValueError, match=r"k must have shape \(20, 1, 64\), got \(20, 1, 8\)"):
        case.run([(0, 0, 20)])
    case = Case([20], [20])
    case.v_cache = case.v_cache.bfloat16()
    with pytest.raises(ValueError, match="must have one dtype"):
        case.run([(0, 0, 20)])
    case = Case([20], [20])
    case.k_cache = torch.zeros(6, 1, 16, 64).transpose(2, 3)
    with pytest.raises(ValueError, match="k_cache must be contiguous"):
        case.run([(0, 0, 20)])
