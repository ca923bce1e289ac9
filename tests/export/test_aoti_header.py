"""csrc/shim/aoti.h against torch's own headers: same functions, same parameters."""

import re
from pathlib import Path

import torch

ROOT = Path(__file__).parents[2]
INCLUDE = Path(torch.__file__).parent / "include" / "torch" / "csrc" / "inductor"


def without_comments(text: str) -> str:
    return re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.S)


def normalised(parameters: str) -> list[str]:
    """Types of the parameters, without names and spelling differences."""
    types = []
    for parameter in parameters.split(","):
        words = parameter.replace("*", " * ").split()
        if len(words) > 1 and re.fullmatch(r"\w+", words[-1]):
            words.pop()
        types.append(" ".join(words))
    return types


def test_container_functions():
    ours = (ROOT / "csrc/shim/aoti.h").read_text()
    theirs = without_comments((INCLUDE / "aoti_runtime/interface.h").read_text())
    declared = re.findall(r"typedef AOTIRuntimeError \(\*(\w+)Fn\)\(([^;]*)\);", ours)
    assert len(declared) >= 10
    for name, parameters in declared:
        match = re.search(rf"AOTI_API AOTIRuntimeError\s+{name}\(([^;]*?)\);", theirs)
        assert match is not None, name
        assert normalised(parameters) == normalised(match.group(1)), name


def test_tensor_functions():
    """The functions of TensorFunctions (csrc/shim/provider.h) have torch's parameters."""
    ours = (ROOT / "csrc/shim/provider.h").read_text()
    theirs = without_comments((INCLUDE / "aoti_torch/c/shim.h").read_text())
    declared = re.findall(r"AOTITorchError \(\*(\w+)\)\(([^;]*)\);", ours)
    assert len(declared) == 9
    for name, parameters in declared:
        match = re.search(rf"AOTITorchError\s+aoti_torch_{name}\(([^;]*?)\);", theirs, re.S)
        assert match is not None, name
        assert normalised(parameters) == normalised(match.group(1)), name


def test_constants():
    """dtype, device and layout codes are what torch's functions return."""
    ours = (ROOT / "csrc/shim/aoti.h").read_text()
    codes = {name: int(code) for name, code in re.findall(r"AOTI_(\w+) = (\d+)", ours)}
    scalar_types = {
        "UINT8": torch.uint8, "INT8": torch.int8, "INT16": torch.int16, "INT32": torch.int32,
        "INT64": torch.int64, "FLOAT16": torch.float16, "FLOAT32": torch.float32,
        "FLOAT64": torch.float64, "BOOL": torch.bool, "BFLOAT16": torch.bfloat16,
    }  # fmt: skip
    for name, dtype in scalar_types.items():
        assert codes[f"DTYPE_{name}"] == _scalar_type(dtype), name
    assert codes["DEVICE_CPU"] == 0 and codes["LAYOUT_STRIDED"] == 0


def _scalar_type(dtype: torch.dtype) -> int:
    include = Path(torch.__file__).parent / "include"
    header = (include / "torch/headeronly/core/ScalarType.h").read_text()
    names = re.findall(r"_\(\w+(?:::\w+)*(?:<[^>]*>)?, (\w+)\) /\* (\d+) \*/", header)
    table = {name: int(code) for name, code in names}
    spelled = {
        torch.uint8: "Byte", torch.int8: "Char", torch.int16: "Short", torch.int32: "Int",
        torch.int64: "Long", torch.float16: "Half", torch.float32: "Float",
        torch.float64: "Double", torch.bool: "Bool", torch.bfloat16: "BFloat16",
    }  # fmt: skip
    return table[spelled[dtype]]
