"""Runs a compiled part against the module it was compiled from, at sizes from end to end.

The artifact is opened as the engine opens it, over libpinfer's native provider; the module runs in
eager PyTorch over the same ops. Weights and inputs are random. Each free dimension is run at both
ends of what the engine uses and between.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from pinfer.export.artifact import BuiltArtifact
from pinfer.export.errors import ExportError
from pinfer.export.part import Part
from pinfer.runtime import ops
from pinfer.runtime.weight_format import WeightFormat

# Of the largest value, by the weights' dtype: fused loops round in another order than eager ones,
# and where linear rounds its input a last bit becomes one of bfloat16 or of an 8-bit integer.
TOLERANCES = {torch.float32: 1e-4, torch.bfloat16: 2**-7, torch.int8: 2**-6, torch.uint8: 2**-6}
# Numbers that are made or compared at a time: a head of 262,144 tokens is not held several times.
PIECE_NUMBERS = 1 << 22
BLOCK_SIZE_DIMENSION = 2  # of v_cache [num_blocks, kv_heads, block_size, head_dim]
CPU_DEVICE = 0
DTYPE_CODES = {**ops.DTYPE_CODES, torch.int32: 3, torch.int64: 4}


@dataclass(frozen=True)
class Sizes:
    """One run: tokens, requests, context before the step of the first one, unused cache blocks."""

    num_tokens: int
    num_seqs: int
    context: int = 0
    spare_blocks: int = 0


def sizes_to_run(max_model_len: int) -> list[Sizes]:
    """Both ends of each free dimension (num_blocks begins at 2: the null block and one more)."""
    most_tokens = min(2048, max_model_len)
    return [
        Sizes(1, 1),  # num_tokens, num_seqs, max_blocks, num_blocks, num_logits: all at their least
        Sizes(37, 5, context=min(70, max_model_len - 37)),
        Sizes(most_tokens, 1),
        Sizes(256, 256, spare_blocks=3000),
        Sizes(3, 2, context=min(8192, max_model_len - 2)),
    ]


def check_part(part: Part, built: BuiltArtifact, max_model_len: int) -> None:
    """ExportError naming the part, the sizes and the difference if the artifact computes otherwise.
    REQUIRES: this machine runs the artifact's instruction set."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        # Others than the module's own, which stay unwritten, and so take no memory after this.
        weights = {name: torch.empty_like(value) for name, value in part.constants().items()}
        for name, value in weights.items():
            _fill_randomly(name, value, generator)
        with _CompiledPart(part, weights, built.path) as compiled:
            for sizes in sizes_to_run(max_model_len):
                _check_run(part, compiled, sizes, _make_inputs(part, sizes, generator))


def _check_run(
    part: Part, compiled: _CompiledPart, sizes: Sizes, inputs: list[torch.Tensor]
) -> None:
    """One run of each. Nothing of it stays for the next: what it holds is large."""
    expected_inputs = [tensor.clone() for tensor in inputs]
    expected = torch.func.functional_call(part.module, compiled.weights, tuple(expected_inputs))
    with compiled.run(inputs, expected) as found:
        _compare(part, part.output.name, sizes, expected, found)
    for entry, after, tensor in zip(part.inputs, expected_inputs, inputs, strict=True):
        wanted, got = _values(entry.name, after), _values(entry.name, tensor)
        _compare(part, entry.name, sizes, wanted, got)


def _values(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """What an input stands for."""
    if tensor.dtype == torch.int8:
        return ops.unpack_int8_cache(tensor, is_v=name == "v_cache")
    return tensor


def _compare(
    part: Part, what: str, sizes: Sizes, expected: torch.Tensor, found: torch.Tensor
) -> None:
    differences, sizes_of_values = [], []
    for wanted, got in zip(
        expected.flatten().split(PIECE_NUMBERS), found.flatten().split(PIECE_NUMBERS), strict=True
    ):
        differences.append((wanted.double() - got.double()).abs().max())
        sizes_of_values.append(wanted.double().abs().max())
    # NaN stays NaN, wherever it is.
    difference = torch.stack(differences).max().item()
    scale = torch.stack(sizes_of_values).max().item()
    dtypes = [value.dtype for value in part.constants().values()]
    dtypes += [entry.dtype for entry in part.inputs if entry.dtype in TOLERANCES]
    tolerance = max(TOLERANCES[dtype] for dtype in dtypes)
    if not difference <= tolerance * max(scale, 1.0):
        raise ExportError(
            f"{part.name}: compiled code differs from eager in {what} by {difference:.3g}"
            f" (largest value {scale:.3g}) at {sizes}"
        )


def _fill_randomly(name: str, value: torch.Tensor, generator: torch.Generator) -> None:
    if value.dim() == 1:
        value.copy_(1.0 + 0.1 * torch.randn(value.shape, generator=generator))
        return
    if name.startswith("experts_"):  # weights of equal shapes, one after another
        for expert in value:
            _fill_randomly("", expert, generator)
        return
    format = _format_of(value)
    in_features = ops.packed_in_features(value)
    panels = max(1, PIECE_NUMBERS // (in_features * ops.PANEL_WIDTH))
    for piece in value.split(panels):
        out_features = piece.shape[0] * ops.PANEL_WIDTH
        numbers = torch.randn(out_features, in_features, generator=generator) * in_features**-0.5
        piece.copy_(format.pack(numbers))


def _format_of(packed: torch.Tensor) -> WeightFormat:
    if packed.dtype == torch.uint8:
        return WeightFormat("int4", ops.int4_group_size(packed))
    return WeightFormat({torch.int8: "int8"}.get(packed.dtype, str(packed.dtype)[6:]))


def _make_inputs(part: Part, sizes: Sizes, generator: torch.Generator) -> list[torch.Tensor]:
    """The part's inputs by name; what is not about attention is random numbers."""
    dimensions = {"num_tokens": sizes.num_tokens, "num_logits": min(sizes.num_tokens, 256)}
    attention: dict[str, torch.Tensor] = {}
    block_size = 0
    cache = next((entry for entry in part.inputs if entry.name == "v_cache"), None)
    if cache is not None:
        block_size = cache.shape[BLOCK_SIZE_DIMENSION]
        assert isinstance(block_size, int)
        attention = _attention_inputs(sizes, block_size, generator)
        dimensions["num_blocks"] = int(attention.pop("num_blocks"))
    made = []
    for entry in part.inputs:
        if entry.name in attention:
            made.append(attention[entry.name])
            continue
        shape = [n if isinstance(n, int) else dimensions[n] for n in entry.shape]
        if entry.dtype == torch.int8:
            made.append(_random_int8_cache(shape, block_size, generator))
        else:
            made.append(torch.randn(shape, generator=generator).to(entry.dtype))
    return made


def _random_int8_cache(
    shape: list[int], block_size: int, generator: torch.Generator
) -> torch.Tensor:
    """Tiles of 16 tokens: scales, then numbers."""
    cache = torch.randint(-127, 128, shape, generator=generator, dtype=torch.int8)
    scales, _ = ops.int8_cache_tiles(cache, block_size)
    numbers = torch.rand(*scales.shape[:3], ops.PANEL_WIDTH, generator=generator)
    scales.copy_((0.01 + 0.01 * numbers).view(torch.int8))
    return cache


def _attention_inputs(
    sizes: Sizes, block_size: int, generator: torch.Generator
) -> dict[str, torch.Tensor]:
    """Requests of nearly equal numbers of tokens over blocks in random order."""
    num_tokens, num_seqs = sizes.num_tokens, sizes.num_seqs
    starts = [num_tokens * i // num_seqs for i in range(num_seqs + 1)]
    lengths = [end - begin for begin, end in itertools.pairwise(starts)]
    lengths[0] += sizes.context
    num_blocks = [-(-length // block_size) for length in lengths]
    total = 1 + sum(num_blocks) + sizes.spare_blocks
    free = (torch.randperm(total - 1, generator=generator) + 1).tolist()
    table = torch.zeros(num_seqs, max(num_blocks), dtype=torch.int32)
    slots = []
    for i, count in enumerate(num_blocks):
        table[i, :count] = torch.tensor([free.pop() for _ in range(count)], dtype=torch.int32)
        first = lengths[i] - (starts[i + 1] - starts[i])
        for position in range(first, lengths[i]):
            block_id = int(table[i, position // block_size])
            slots.append(block_id * block_size + position % block_size)
    return {
        "slot_mapping": torch.tensor(slots, dtype=torch.int64),
        "block_table": table,
        "seq_lens": torch.tensor(lengths, dtype=torch.int32),
        "query_start_loc": torch.tensor(starts, dtype=torch.int32),
        "num_blocks": torch.tensor(total),
    }


class _CompiledPart:
    """An opened artifact with one container over these weights. A context manager."""

    def __init__(self, part: Part, weights: dict[str, torch.Tensor], path: Path) -> None:
        self.weights = weights
        self._part = part
        self._library = ctypes.CDLL(str(path))
        self._host = ops.library()
        self._host.pinfer_native_symbol.restype = ctypes.c_void_p
        self._host.pinfer_native_symbol.argtypes = [ctypes.c_char_p]
        self._bind_symbols()
        self._container = ctypes.c_void_p()

    def __enter__(self) -> _CompiledPart:
        self._call("AOTInductorModelContainerCreateWithDevice", ctypes.byref(self._container),
                   ctypes.c_size_t(1), b"cpu", None)  # fmt: skip
        self._bind_weights()
        return self

    def __exit__(self, *_: object) -> None:
        self._call("AOTInductorModelContainerDelete", self._container)

    @contextmanager
    def run(self, inputs: list[torch.Tensor], like: torch.Tensor) -> Iterator[torch.Tensor]:
        """The output, which has the shape and dtype of `like`, where the artifact has put it."""
        handles = (ctypes.c_void_p * len(inputs))(*(self._wrap(tensor) for tensor in inputs))
        outputs = (ctypes.c_void_p * 1)()
        self._call("AOTInductorModelContainerRunSingleThreaded", self._container, handles,
                   ctypes.c_size_t(len(inputs)), outputs, ctypes.c_size_t(1), None,
                   None)  # fmt: skip
        data = ctypes.c_void_p()
        output = ctypes.c_void_p(outputs[0])
        self._host_function("aoti_torch_get_data_ptr")(output, ctypes.byref(data))
        assert data.value is not None
        memory = (ctypes.c_char * like.nbytes).from_address(data.value)
        try:
            yield torch.frombuffer(memory, dtype=like.dtype).view(like.shape)
        finally:
            self._host_function("aoti_torch_delete_tensor_object")(output)

    def _bind_symbols(self) -> None:
        # Zero-terminated names, one after the other, an empty one at the end.
        address = ctypes.addressof(ctypes.c_char.in_dll(self._library, "pinfer_artifact_names"))
        table = []
        while name := ctypes.string_at(address):
            function = self._host.pinfer_native_symbol(name)
            if not function:
                raise ExportError(f"{self._part.name}: provider native lacks {name.decode()}")
            table.append(function)
            address += len(name) + 1
        self._library.pinfer_artifact_bind((ctypes.c_void_p * len(table))(*table))

    def _bind_weights(self) -> None:
        class Pair(ctypes.Structure):
            _fields_ = (("name", ctypes.c_char_p), ("handle", ctypes.c_void_p))

        pairs = (Pair * len(self.weights))(
            *(Pair(name.encode(), self._wrap(value)) for name, value in self.weights.items())
        )
        self._call("AOTInductorModelContainerUpdateUserManagedConstantBufferPairs",
                   self._container, pairs, ctypes.c_size_t(len(pairs)), ctypes.c_bool(False),
                   ctypes.c_bool(True))  # fmt: skip
        for pair in pairs:
            self._host_function("aoti_torch_delete_tensor_object")(ctypes.c_void_p(pair.handle))

    def _wrap(self, tensor: torch.Tensor) -> int:
        """A handle over the tensor's memory."""
        assert tensor.is_contiguous()
        handle = ctypes.c_void_p()
        sizes = (ctypes.c_int64 * tensor.dim())(*tensor.shape)
        strides = (ctypes.c_int64 * tensor.dim())(*tensor.stride())
        error = self._host_function("aoti_torch_create_tensor_from_blob")(
            ctypes.c_void_p(tensor.data_ptr()), ctypes.c_int64(tensor.dim()), sizes, strides,
            ctypes.c_int64(0), ctypes.c_int32(DTYPE_CODES[tensor.dtype]),
            ctypes.c_int32(CPU_DEVICE), ctypes.c_int32(0), ctypes.byref(handle),
        )  # fmt: skip
        if error != 0 or handle.value is None:
            raise ExportError(f"{self._part.name}: no handle for a tensor of {tuple(tensor.shape)}")
        return handle.value

    def _host_function(self, name: str) -> Callable[..., int]:
        return ctypes.CFUNCTYPE(ctypes.c_int32)(self._host.pinfer_native_symbol(name.encode()))

    def _call(self, name: str, *arguments: Any) -> None:
        if getattr(self._library, name)(*arguments) == 0:
            return
        message = ctypes.c_char_p()
        self._library.AOTInductorGetLastError(ctypes.byref(message))
        raise ExportError(f"{self._part.name}: {name}: {(message.value or b'').decode()}")
