"""What the exporter patches in torch's Inductor still does what is needed."""

import inspect

import pytest
import torch
import torch._inductor.codecache as codecache
import torch._inductor.cpu_vec_isa as cpu_vec_isa
from torch import nn

from pinfer.export import inductor_sources, trace
from pinfer.export.part import Part, PartInput


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64))

    def forward(self, x):
        return torch.nn.functional.silu(x) * self.weight


@pytest.fixture(scope="module")
def part():
    rows = PartInput("x", torch.float32, ("num_tokens", 64))
    return Part("scaled", Scaled(), (rows,), PartInput("y", torch.float32, ("num_tokens", 64)))


@pytest.mark.parametrize("cpu_isa", inductor_sources.VECTOR_ISAS)
def test_sources_are_for_the_named_instruction_set(part, cpu_isa, monkeypatch):
    """Whatever this machine has: nothing is probed, nothing is compiled."""

    def forbidden(*args, **kwargs):
        raise AssertionError("Inductor ran a compiler or a program")

    monkeypatch.setattr(cpu_vec_isa.VecISA, "check_build", forbidden)
    monkeypatch.setattr("torch._inductor.cpp_builder.CppBuilder.build", forbidden)
    sources = inductor_sources.generate(part, trace.trace(part), cpu_isa)
    width = inductor_sources.VECTOR_ISAS[cpu_isa]().nelements()
    assert f"static_cast<int64_t>({width})" in sources.kernels
    assert "AOTInductorModel" in sources.wrapper
    assert sources.constants == ("weight",)


def test_the_patched_functions_exist():
    parameters = list(inspect.signature(codecache.AotCodeCompiler.compile).parameters)
    assert parameters[:3] == ["graph", "wrapper_code", "kernel_code"]
    assert callable(codecache.pick_vec_isa) and callable(cpu_vec_isa.pick_vec_isa)
    assert callable(cpu_vec_isa.valid_vec_isa_list)


def test_nothing_stays_patched(part):
    before = codecache.AotCodeCompiler.__dict__["compile"], cpu_vec_isa.pick_vec_isa
    inductor_sources.generate(part, trace.trace(part), "x86-64-v3")
    assert (codecache.AotCodeCompiler.__dict__["compile"], cpu_vec_isa.pick_vec_isa) == before
