"""The tensors of a GGUF file under the names and in the order of a Hugging Face checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gguf import GGMLQuantizationType, ReaderTensor, dequantize

from pinfer.export import gguf_blocks
from pinfer.export.checkpoint import ALL_ROWS
from pinfer.export.errors import ExportError
from pinfer.export.gguf_architectures import GgufArchitecture
from pinfer.export.gguf_rotary import ROTARY_TENSORS
from pinfer.export.models.spec import TensorNames
from pinfer.runtime.weight_format import QuantizedWeight

PLAIN_TYPES = {
    GGMLQuantizationType.F32: "float32",
    GGMLQuantizationType.F16: "float16",
    GGMLQuantizationType.BF16: "bfloat16",
}
# GGUF's names of layers' modules, by the role that LayerSpec gives to norms.
NORMS = {
    "attn_norm": "attention_norm",
    "post_attention_norm": "attention_output_norm",
    "ffn_norm": "mlp_norm",
    "post_ffw_norm": "mlp_output_norm",
}
LINEARS = frozenset({"attn_qkv", "attn_output", "ffn_up", "ffn_down"})  # those GPT-2 has

RowOrder = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class StoredTensor:
    """Where a tensor of the checkpoint stands in the file, and how it differs there."""

    tensor: ReaderTensor
    expert: int | None = None  # which of those that are stored as one
    rows: RowOrder | None = None  # from the file's order
    transposed: bool = False
    as_row: bool = False  # a vector in the file, a matrix of one row here
    added: float = 0.0  # to every number in the file

    @property
    def data(self) -> np.ndarray:
        return self.tensor.data if self.expert is None else self.tensor.data[self.expert]

    @property
    def shape(self) -> tuple[int, ...]:
        shape = tuple(int(n) for n in reversed(self.tensor.shape))
        if self.expert is not None:
            shape = shape[1:]
        if self.as_row and len(shape) == 1:
            shape = (1, *shape)
        return shape[::-1] if self.transposed else shape


class GgufSource:
    """The tensors of a GGUF file under Hugging Face names (a TensorSource)."""

    def __init__(
        self,
        source: str,
        tensors: Iterable[ReaderTensor],
        architecture: GgufArchitecture,
        config: Mapping[str, Any],
    ) -> None:
        self._source = source
        self._tensors = {
            name: stored
            for tensor in tensors
            if tensor.name not in ROTARY_TENSORS
            for name, stored in _found(tensor, architecture, config)
        }
        self._check_types()

    def names(self) -> Iterable[str]:
        return self._tensors.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        return self._tensors[name].shape

    def load(self, name: str, rows: slice = ALL_ROWS) -> torch.Tensor:
        stored = self._tensors[name]
        if not self.reads_rows(name):
            return self._floats(stored, stored.data)[rows]
        return self._floats(stored, stored.data[rows])

    def reads_rows(self, name: str) -> bool:
        stored = self._tensors[name]
        return stored.rows is None and not stored.transposed and not stored.as_row

    def _floats(self, stored: StoredTensor, data: np.ndarray) -> torch.Tensor:
        values = np.asarray(dequantize(data, stored.tensor.tensor_type), dtype=np.float32)
        loaded = torch.from_numpy(values if values.flags.writeable else values.copy())
        if stored.added:  # float64, so that adding it again gives the same number
            return loaded.double() - stored.added
        if stored.rows is not None:
            loaded = stored.rows(loaded)
        if stored.transposed:
            return loaded.T.contiguous()
        return loaded[None] if stored.as_row and loaded.ndim == 1 else loaded

    def load_quantized(self, name: str, rows: slice = ALL_ROWS) -> QuantizedWeight | None:
        stored = self._tensors[name]
        kind = stored.tensor.tensor_type
        if kind not in gguf_blocks.READERS or stored.transposed:
            return None
        if stored.rows is None:
            return gguf_blocks.read(kind, stored.data[rows])
        blocks = gguf_blocks.read(kind, stored.data)
        ordered = QuantizedWeight(
            stored.rows(blocks.numbers),
            stored.rows(blocks.scales),
            None if blocks.minima is None else stored.rows(blocks.minima),
            blocks.group_size,
        )
        return ordered.rows(rows)

    def is_quantized(self, name: str) -> bool:
        return self._tensors[name].tensor.tensor_type not in PLAIN_TYPES

    def group_size(self) -> int | None:
        kinds = {stored.tensor.tensor_type for stored in self._tensors.values()}
        return gguf_blocks.BLOCK if kinds & gguf_blocks.READERS.keys() else None

    def dtype(self) -> str:
        kinds = {s.tensor.tensor_type for s in self._tensors.values() if len(s.tensor.shape) > 1}
        if len(kinds) == 1:
            return PLAIN_TYPES.get(kinds.pop(), "quantized")
        return "quantized"

    def _check_types(self) -> None:
        """A row of each type is read, so that one that cannot be is known before it is late."""
        by_type = {stored.tensor.tensor_type: stored.tensor for stored in self._tensors.values()}
        for kind, tensor in by_type.items():
            try:
                dequantize(tensor.data[:1] if tensor.data.ndim > 1 else tensor.data, kind)
            except NotImplementedError as error:
                raise ExportError(
                    f"{self._source}: tensor {tensor.name}: type {kind.name} cannot be read"
                ) from error


def _found(
    tensor: ReaderTensor, architecture: GgufArchitecture, config: Mapping[str, Any]
) -> Iterator[tuple[str, StoredTensor]]:
    """The checkpoint's tensors that stand in one of the file's; several where it is experts."""
    names = architecture.names
    base = names.bases[0]
    module, _, kind = tensor.name.rpartition(".")
    outside = {
        "token_embd": base + names.embedding,
        "output_norm": base + names.final_norm,
        "output": names.head,
        **({"position_embd": base + names.positions} if names.positions else {}),
    }
    added = names.norm_added if module.endswith("_norm") else 0.0
    if module in outside:
        yield f"{outside[module]}.{kind}", StoredTensor(tensor, added=added)
        return
    parts = module.split(".")
    layer_modules = _layer_modules(names)
    if len(parts) != 3 or parts[0] != "blk" or parts[2] not in layer_modules:
        yield tensor.name, StoredTensor(tensor)  # the check of the tensor set names it
        return
    name = f"{base}{names.layer.format(parts[1])}{layer_modules[parts[2]]}.{kind}"
    if parts[2].endswith("_exps"):
        for expert in range(int(tensor.shape[-1])):
            yield name.format(expert), StoredTensor(tensor, expert)
        return
    yield (
        name,
        StoredTensor(
            tensor,
            rows=_row_order(parts[2], architecture, config),
            transposed=names.transposed and parts[2] in LINEARS and kind == "weight",
            as_row=parts[2] == "ffn_gate_inp_shexp",
            added=added,
        ),
    )


def _layer_modules(names: TensorNames) -> dict[str, str]:
    """GGUF's names of a layer's modules: the checkpoint's."""
    modules = {
        "attn_q_norm": names.q_norm,
        "attn_k_norm": names.k_norm,
        "attn_output": names.output,
        "ffn_down": names.down,
        "ffn_gate_inp": names.router,
        "ffn_gate_exps": names.experts_up[0],
        "ffn_up_exps": names.experts_up[1],
        "ffn_down_exps": names.experts_down,
        "ffn_gate_inp_shexp": names.shared_gate,
        "ffn_gate_shexp": names.shared_up[0],
        "ffn_up_shexp": names.shared_up[1],
        "ffn_down_shexp": names.shared_down,
    }
    fused_qkv, fused_up = len(names.qkv) == 1, len(names.up) == 1
    attention = ("attn_qkv",) if fused_qkv else ("attn_q", "attn_k", "attn_v")
    modules |= zip(attention, names.qkv, strict=True)
    modules |= zip(("ffn_up",) if fused_up else ("ffn_gate", "ffn_up"), names.up, strict=True)
    modules |= {theirs: names.norms[role] for theirs, role in NORMS.items() if role in names.norms}
    return modules


def _row_order(
    module: str, architecture: GgufArchitecture, config: Mapping[str, Any]
) -> RowOrder | None:
    counts = {"attn_q": "num_attention_heads", "attn_k": "num_key_value_heads"}
    if architecture.in_pairs and module in counts:
        num_heads = config[counts[module]]
        return lambda rows: _halves_from_pairs(rows, num_heads)
    if architecture.names.qkv_by_head and module == "attn_qkv":
        return lambda rows: _heads_from_kinds(rows, config["num_attention_heads"])
    return None


def _halves_from_pairs(weight: torch.Tensor, num_heads: int) -> torch.Tensor:
    """The file has the rows of a rotated head as pairs; the halves are what rotary here expects."""
    head_dim = weight.shape[0] // num_heads
    return (
        weight.reshape(num_heads, head_dim // 2, 2, *weight.shape[1:])
        .transpose(1, 2)
        .reshape(weight.shape)
        .contiguous()
    )


def _heads_from_kinds(weight: torch.Tensor, num_heads: int) -> torch.Tensor:
    """The file has all queries, then all keys, then all values; the checkpoint those of one head
    after another."""
    return (
        weight.reshape(3, num_heads, -1, *weight.shape[1:])
        .transpose(0, 1)
        .reshape(weight.shape)
        .contiguous()
    )
