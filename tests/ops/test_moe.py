"""moe against a mixture of experts in plain torch, in float64."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from pinfer.runtime import ops
from pinfer.runtime.weight_format import BFLOAT16, FLOAT32, INT8, WeightFormat

from .conftest import TOLERANCE

FORMATS = [FLOAT32, BFLOAT16, INT8, WeightFormat("int4", 32), WeightFormat("int4", 128)]
ACTIVATIONS = {
    "silu": functional.silu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
}
# tokens, hidden, intermediate, experts, experts per token
SHAPES = [
    (1, 1, 1, 1, 1),
    (1, 64, 96, 8, 2),
    (2, 33, 17, 5, 5),
    (17, 100, 70, 3, 2),
    (6, 129, 31, 12, 4),
    (97, 48, 40, 16, 1),
]


@pytest.fixture(params=FORMATS, ids=lambda format: f"{format.name}_{format.group_size}")
def format(request: pytest.FixtureRequest) -> WeightFormat:
    return request.param


@dataclass
class Experts:
    """Weights as the op takes them, and what they stand for, in float64."""

    intermediate: int
    gate_up: Tensor
    down: Tensor
    gate_up_values: Tensor  # [experts, 2 * intermediate, hidden]
    down_values: Tensor  # [experts, hidden, intermediate]

    @staticmethod
    def random(format: WeightFormat, hidden: int, intermediate: int, experts: int) -> Experts:
        def stack(out_features: int, in_features: int) -> tuple[Tensor, Tensor]:
            packed = [
                format.pack(torch.randn(out_features, in_features) / in_features**0.5)
                for _ in range(experts)
            ]
            values = [format.unpack(one, out_features, in_features).double() for one in packed]
            return torch.stack(packed), torch.stack(values)

        gate_up, gate_up_values = stack(2 * intermediate, hidden)
        down, down_values = stack(hidden, intermediate)
        return Experts(intermediate, gate_up, down, gate_up_values, down_values)

    def run(self, x: Tensor, logits: Tensor, per_token: int, normalize: bool, name: str) -> Tensor:
        code = ops.ACTIVATION_CODES[name]
        return ops.moe(
            x, logits, self.gate_up, self.down, self.intermediate, per_token, normalize, code
        )

    def reference(
        self, x: Tensor, logits: Tensor, per_token: int, normalize: bool, name: str
    ) -> Tensor:
        weights, chosen = torch.softmax(logits, -1).topk(per_token)
        weights = weights.double()
        if normalize:
            weights = weights / weights.sum(-1, keepdim=True)
        out = torch.zeros(x.shape, dtype=torch.float64)
        for token in range(x.shape[0]):
            for weight, expert in zip(weights[token], chosen[token].tolist(), strict=True):
                gate, up = (self.gate_up_values[expert] @ x[token].double()).chunk(2)
                result = self.down_values[expert] @ (ACTIVATIONS[name](gate) * up)
                out[token] += weight * result
        return out


def worst_error(out: Tensor, expected: Tensor) -> float:
    return ((out - expected).abs().amax(-1) / expected.abs().amax(-1).clamp(min=1e-3)).max().item()


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_moe(isa, format, shape, normalize):
    tokens, hidden, intermediate, num_experts, per_token = shape
    experts = Experts.random(format, hidden, intermediate, num_experts)
    x, logits = torch.randn(tokens, hidden), torch.randn(tokens, num_experts)
    out = experts.run(x, logits, per_token, normalize, "silu")
    assert out.dtype == torch.float32
    expected = experts.reference(x, logits, per_token, normalize, "silu")
    assert worst_error(out, expected) <= TOLERANCE["moe", format.dtype]


@pytest.mark.parametrize("name", list(ACTIVATIONS))
def test_activations(isa, name):
    experts = Experts.random(FLOAT32, 40, 24, 4)
    x, logits = 3 * torch.randn(9, 40), torch.randn(9, 4)
    expected = experts.reference(x, logits, 2, True, name)
    assert (
        worst_error(experts.run(x, logits, 2, True, name), expected)
        <= TOLERANCE["moe", torch.float32]
    )
    for other in set(ACTIVATIONS) - {name}:
        # The two forms of gelu differ by little, but by more than the tolerance.
        assert worst_error(experts.run(x, logits, 2, True, other), expected) > 1e-5


@pytest.mark.parametrize("num_threads", [1, 2, 3])
def test_rows_do_not_depend_on_each_other(isa, format, num_threads):
    before = ops.get_num_threads()
    ops.set_num_threads(num_threads)
    experts = Experts.random(format, 65, 50, 7)
    x, logits = torch.randn(60, 65), torch.randn(60, 7)
    alone = torch.cat(
        [experts.run(x[i : i + 1], logits[i : i + 1], 3, True, "silu") for i in range(60)]
    )
    assert torch.equal(experts.run(x, logits, 3, True, "silu"), alone)
    assert torch.equal(experts.run(x[9:31], logits[9:31], 3, True, "silu"), alone[9:31])
    ops.set_num_threads(before)


def test_of_equal_experts_the_lower_ones_are_chosen(format):
    experts = Experts.random(format, 32, 16, 6)
    x, out = torch.randn(2, 32), []
    # Experts 1 and 3 of the four equal ones, then the same two without competitors.
    for others in (1.0, -1.0):
        logits = torch.tensor([[0.0, 1.0, 0.0, 1.0, others, others]]).repeat(2, 1)
        out.append(experts.run(x, logits, 2, True, "silu"))
    assert torch.equal(*out)


@pytest.mark.parametrize("damage", [float("nan"), float("inf")])
def test_bad_logits_spoil_their_row_alone(format, damage):
    experts = Experts.random(format, 20, 12, 9)
    x, logits = torch.randn(4, 20), torch.randn(4, 9)
    clean = experts.run(x, logits, 3, True, "silu")
    logits[2, 5] = damage
    out = experts.run(x, logits, 3, True, "silu")
    assert out[2].isnan().all()
    assert torch.equal(out[[0, 1, 3]], clean[[0, 1, 3]])


def test_no_rows(format):
    experts = Experts.random(format, 20, 12, 3)
    assert experts.run(torch.empty(0, 20), torch.empty(0, 3), 2, True, "silu").shape == (0, 20)


def test_rows_with_strides(format):
    experts = Experts.random(format, 10, 12, 3)
    x, logits = torch.randn(8, 20)[::2, ::2], torch.randn(3, 4).t()
    expected = experts.run(x.contiguous(), logits.contiguous(), 2, True, "silu")
    assert torch.equal(experts.run(x, logits, 2, True, "silu"), expected)


def test_errors(format):
    good = Experts.random(format, 20, 17, 3)
    x, logits = torch.randn(2, 20), torch.randn(2, 3)

    def refused(message: str, **changes: object) -> None:
        arguments: dict[str, object] = {
            "x": x,
            "router_logits": logits,
            "gate_up_weight": good.gate_up,
            "down_weight": good.down,
            "intermediate_size": 17,
            "experts_per_token": 2,
            "normalize": True,
            "activation": 0,
        }
        with pytest.raises(ValueError, match=message):
            ops.moe(**(arguments | changes))

    refused(r"x must be torch\.float32 with 2 dimensions", x=x.double())
    refused("router_logits must be torch", router_logits=logits[0])
    refused(r"router_logits must have shape \(2, 3\), got \(1, 3\)", router_logits=logits[:1])
    refused("at least 1 expert, got 0", router_logits=torch.empty(2, 0))
    refused("gate_up_weight must be contiguous with the weights of 3", gate_up_weight=x[:2])
    refused("down_weight must be contiguous with the weights of 3", down_weight=good.down[:2])
    refused("gate_up_weight of an expert for 66 outputs and 20 inputs", intermediate_size=33)
    refused("down_weight of an expert for 20 outputs", down_weight=good.gate_up)
    refused(r"experts_per_token must be 1 to num_experts \(3\), got 4", experts_per_token=4)
    refused("activation must be silu", activation=7)


def test_weights_of_two_formats_are_refused():
    wide, narrow = (Experts.random(WeightFormat("int4", size), 20, 12, 2) for size in (64, 32))
    with pytest.raises(ValueError, match="one format, got .* groups of 64 and .* groups of 32"):
        ops.moe(torch.randn(1, 20), torch.randn(1, 2), wide.gate_up, narrow.down, 12, 1, True, 0)
    floats = Experts.random(BFLOAT16, 20, 12, 2)
    with pytest.raises(ValueError, match=r"torch\.uint8 .* and torch\.bfloat16"):
        ops.moe(torch.randn(1, 20), torch.randn(1, 2), wide.gate_up, floats.down, 12, 1, True, 0)
