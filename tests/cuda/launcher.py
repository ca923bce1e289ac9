"""Computes an artifact's Triton kernels on the CPU, with Triton's own interpreter, where the fake
driver launches them: with the emulation of our own kernels a whole model is computed as a GPU would
compute it, apart from rounding inside of instructions. TRITON_INTERPRET=1 must be set.
"""

from __future__ import annotations

import ctypes
import re
import textwrap

import torch
import triton
import triton.language as tl

assert triton.knobs.runtime.interpret


class Libdevice:
    """Functions of CUDA's libdevice that kernels call, as the interpreter knows them."""

    rsqrt = staticmethod(lambda x: tl.math.rsqrt(x))
    sqrt = staticmethod(lambda x: tl.math.sqrt(x))
    exp = staticmethod(lambda x: tl.exp(x))
    erf = staticmethod(lambda x: tl.math.erf(x))

    @staticmethod
    def tanh(x):
        e = tl.exp(-2.0 * tl.abs(x))
        magnitude = (1.0 - e) / (1.0 + e)
        return tl.where(x < 0, -magnitude, magnitude)


class Helpers:
    """Of torch's triton_helpers, which need a GPU's compiler when they are imported for one."""

    @staticmethod
    def promote_to_tensor(x):
        return x + tl.zeros((1,), tl.int1)

    @staticmethod
    def maximum(a, b):
        return tl.maximum(a, b)


class Kernel:
    def __init__(self, name: str, source: str, config: dict[str, int]) -> None:
        lines = source.splitlines(True)
        begin = next(i for i, line in enumerate(lines) if line.strip() == "@triton.jit")
        end = next(i for i in range(begin, len(lines)) if lines[i].lstrip().startswith("'''"))
        body = textwrap.dedent("".join(lines[begin:end]))
        parameters = re.search(rf"def {name}\((.*?)\):", body)[1]
        self._names = [each.split(":")[0].strip() for each in parameters.split(",")]
        constants = [each for each in parameters.split(",") if "constexpr" in each]
        self._constants = [each.split(":")[0].strip() for each in constants]
        self._config = config
        types = re.search(r"'signature': \{(.*?)\}", source)[1]
        self._types = dict(re.findall(r"'(\w+)': '([\w*]+)'", types))
        self._function = _compiled(body, name)

    def run(self, grid: list[int], parameters, extent) -> None:
        """parameters: pointers to values, as cuLaunchKernel takes them, without the constants."""
        arguments, buffers = [], []
        values = iter(parameters)
        for name in self._names:
            kind = self._types.get(name, "constexpr")
            if kind == "constexpr":
                continue
            value = next(values)
            if kind.startswith("*"):
                address = ctypes.cast(value, ctypes.POINTER(ctypes.c_uint64))[0]
                dtype = {"*fp32": torch.float32, "*bf16": torch.bfloat16, "*fp16": torch.float16}[
                    kind
                ]
                size = extent(address) // dtype.itemsize
                memory = (ctypes.c_char * (size * dtype.itemsize)).from_address(address)
                arguments.append(torch.frombuffer(memory, dtype=dtype))
                buffers.append(memory)
            else:
                number = {"i32": ctypes.c_int32, "i64": ctypes.c_int64, "fp32": ctypes.c_float}[
                    kind
                ]
                arguments.append(ctypes.cast(value, ctypes.POINTER(number))[0])
        chosen = {name: self._config[name] for name in self._constants if name in self._config}
        self._function[tuple(grid)](*arguments, **chosen)


def _compiled(body: str, name: str):
    # The interpreter reads a function's source from its file.
    import linecache

    file = f"<{name}>"
    linecache.cache[file] = (len(body), None, body.splitlines(True), file)
    scope = {"triton": triton, "tl": tl, "libdevice": Libdevice, "tl_math": tl.math,
             "triton_helpers": Helpers}  # fmt: skip
    exec(compile(body, file, "exec"), scope)
    return scope[name]
