"""Schema, fakes and C declarations of the ops say the same thing."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from pinfer.runtime import ops

OPS_HEADER = Path(__file__).resolve().parents[2] / "csrc" / "ops.h"

C_TYPES = {
    "int32_t": ctypes.c_int32,
    "int64_t": ctypes.c_int64,
    "double": ctypes.c_double,
    "const char*": ctypes.c_char_p,
    "void": None,
}


def c_type(text: str) -> object:
    text = " ".join(text.replace("*", "* ").split())
    if text in C_TYPES:
        return C_TYPES[text]
    assert text.endswith("*"), f"unexpected C type {text!r}"
    return ctypes.c_void_p


def header_functions() -> dict[str, tuple[object, list[tuple[str, object]]]]:
    text = re.sub(r"//[^\n]*", "", OPS_HEADER.read_text())
    functions = {}
    for result, name, parameters in re.findall(
        r"PINFER_API\s+([\w ]+\*?)\s*(pinfer_\w+)\(([^)]*)\);", text
    ):
        split = []
        for parameter in parameters.split(","):
            if parameter.strip() == "void":
                continue
            kind, parameter_name = re.fullmatch(r"\s*(.*?)(\w+)\s*", parameter, re.S).groups()
            split.append((parameter_name, c_type(kind)))
        functions[name] = (c_type(result.strip()), split)
    return functions


def schema_arguments(name: str) -> list[tuple[str, str]]:
    schema = getattr(torch.ops.pinfer, name).default._schema
    return [(argument.name, str(argument.type)) for argument in schema.arguments]


def test_ctypes_declarations_equal_the_header():
    header = header_functions()
    assert set(header) == set(ops.C_FUNCTIONS)
    for name, (result, parameters) in ops.C_FUNCTIONS.items():
        assert header[name][0] == result, name
        assert [kind for _, kind in header[name][1]] == parameters, name


@pytest.mark.parametrize("name", list(ops.SCHEMAS))
def test_schema_arguments_are_parameters_of_the_c_function(name):
    parameters = header_functions()[f"pinfer_{name}"][1]
    names = [parameter for parameter, _ in parameters]
    arguments = schema_arguments(name)
    kinds = {
        "Tensor": ctypes.c_void_p,
        "int": None,
        "bool": ctypes.c_int32,
        "float": ctypes.c_double,
    }
    order = []
    for argument, kind in arguments:
        assert argument in names, f"{argument} is missing in pinfer_{name}"
        order.append(names.index(argument))
        expected = kinds[kind]
        found = parameters[names.index(argument)][1]
        assert found in (ctypes.c_int32, ctypes.c_int64) if expected is None else found == expected
    if name == "paged_attention":
        assert order == sorted(order)


@pytest.mark.parametrize("name", list(ops.SCHEMAS))
def test_shims_equal_the_schema(name):
    overload = getattr(torch.ops.pinfer, name).default
    (declaration,) = ops.SHIMS[overload]
    match = re.fullmatch(r"AOTITorchError aoti_torch_cpu_(\w+)\((.*)\)", declaration)
    assert match is not None and match[1] == name
    kinds = {
        "Tensor": "AtenTensorHandle",
        "int": "int64_t",
        "bool": "int32_t",  # as Inductor passes it
        "float": "double",
    }
    expected = [f"{kinds[kind]} {argument}" for argument, kind in schema_arguments(name)]
    parameters = [parameter.strip() for parameter in match[2].split(",")]
    assert parameters[: len(expected)] == expected
    outputs = parameters[len(expected) :]
    assert len(outputs) == len(overload._schema.returns)
    assert all(output.startswith("AtenTensorHandle* ") for output in outputs)


def test_caches_are_declared_mutable():
    arguments = torch.ops.pinfer.paged_attention.default._schema.arguments
    mutable = [a.name for a in arguments if a.alias_info is not None and a.alias_info.is_write]
    assert mutable == ["k_cache", "v_cache"]


def make_arguments(name: str) -> tuple[object, ...]:
    int32 = torch.int32
    if name == "linear":
        return torch.randn(3, 10), ops.pack_linear(torch.randn(20, 10)), 20
    if name == "embedding":
        return torch.tensor([1, 2], dtype=int32), ops.pack_linear(torch.randn(20, 10)), 10
    if name == "rotary_embedding":
        return torch.tensor([1, 2], dtype=int32), torch.rand(4), 1.0
    if name == "moe":
        gate_up = torch.stack([ops.pack_linear(torch.randn(18, 10)) for _ in range(4)])
        down = torch.stack([ops.pack_linear(torch.randn(10, 9)) for _ in range(4)])
        return torch.randn(3, 10), torch.randn(3, 4), gate_up, down, 9, 2, True, 0
    k_shape, v_shape = ops.kv_cache_shapes(4, 16, 1, 8, torch.float32)
    return (
        torch.randn(3, 2, 8),
        torch.randn(3, 1, 8),
        torch.randn(3, 1, 8),
        torch.zeros(k_shape),
        torch.zeros(v_shape),
        torch.tensor([16, 17, 18]),
        torch.tensor([[1]], dtype=int32),
        torch.tensor([3], dtype=int32),
        torch.tensor([0, 3], dtype=int32),
        0.5,
        0,
        0.0,
    )


@pytest.mark.parametrize("name", list(ops.SCHEMAS))
def test_fakes_equal_real_outputs(name):
    arguments = make_arguments(name)
    overload = getattr(torch.ops.pinfer, name).default
    real = overload(*arguments)
    with FakeTensorMode() as mode:
        fake = overload(
            *(mode.from_tensor(a) if isinstance(a, torch.Tensor) else a for a in arguments)
        )
    reals = real if isinstance(real, tuple) else (real,)
    fakes = fake if isinstance(fake, tuple) else (fake,)
    assert [(t.shape, t.dtype, t.stride()) for t in reals] == [
        (t.shape, t.dtype, t.stride()) for t in fakes
    ]


@pytest.mark.parametrize("name", list(ops.SCHEMAS))
def test_opcheck(name):
    overload = getattr(torch.ops.pinfer, name).default
    torch.library.opcheck(
        overload,
        make_arguments(name),
        test_utils=("test_schema", "test_faketensor"),
    )


def test_export_with_a_dynamic_number_of_tokens():
    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(ops.pack_linear(torch.randn(20, 10)))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return ops.linear(torch.relu(x), self.weight, 20)

    layer = Layer()
    num_tokens = torch.export.Dim("T", min=1, max=4096)
    with torch.no_grad():
        program = torch.export.export(
            layer, (torch.randn(5, 10),), dynamic_shapes=({0: num_tokens},)
        )
        x = torch.randn(1, 10)
        assert torch.equal(program.module()(x), layer(x))


def test_missing_library_is_named(monkeypatch, tmp_path):
    ops.library.cache_clear()
    missing = tmp_path / "libpinfer.so"
    with monkeypatch.context() as patch:
        patch.setenv("PINFER_LIBRARY", str(missing))
        with pytest.raises(FileNotFoundError, match=re.escape(str(missing))):
            ops.linear(*make_arguments("linear"))
    ops.library.cache_clear()
    assert ops.library() is not None
