"""Plans, checks and writes the weights file of a bundle.

The file is safetensors, every tensor 64-byte aligned so that the engine can map it and hand it to
the kernels as it lies: the header is padded, and U8 tensors `__pad_N` fill the gaps (the format
allows no holes). Tensors are read, packed and written one at a time, large ones in pieces.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch

from pinfer.export.checkpoint import Checkpoint
from pinfer.export.errors import ExportError
from pinfer.export.kv_scales import kv_scale_names
from pinfer.export.models.decoder import plan_layer, plan_norm
from pinfer.export.models.spec import ModelSpec, TensorPlan
from pinfer.export.packed_tensors import PackedTensors, panel_rows, stored_shape
from pinfer.runtime.bundle.hashing import HashingFile
from pinfer.runtime.weight_format import WeightFormat

ALIGNMENT = 64
SAFETENSORS_DTYPES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.int8: "I8",
                      torch.uint8: "U8", torch.float16: "F16"}  # fmt: skip


@dataclass(frozen=True)
class WeightFormats:
    """How the packed weights of a model are stored."""

    linear: WeightFormat  # of the layers
    embedding: WeightFormat  # and of the head


@dataclass(frozen=True)
class WeightsPlan:
    """Where every tensor of the bundle comes from, checked against the checkpoint."""

    layers: tuple[dict[str, TensorPlan], ...]  # per layer: artifact constant -> tensor
    embedding: TensorPlan
    positions: TensorPlan | None  # learned ones
    # linear_weight is the embedding's where the two are tied; absent where the model embeds.
    head: dict[str, TensorPlan]
    warnings: tuple[str, ...]

    def tensors(self) -> list[TensorPlan]:
        """Every tensor once, in the order in which a step reads them."""
        ordered = [plan for layer in self.layers for plan in layer.values()]
        ordered += [plan for plan in self.head.values() if plan is not self.embedding]
        ordered += [self.embedding] if self.positions is None else [self.positions, self.embedding]
        return ordered


@dataclass(frozen=True)
class WrittenWeights:
    size: int  # of the file, bytes
    sha256: str


def plan_weights(
    spec: ModelSpec, checkpoint: Checkpoint, formats: WeightFormats, embeds: bool = False
) -> WeightsPlan:
    """ExportError naming the tensor for a missing, unexpected or wrongly shaped one. embeds: there
    is no head but its norm."""
    names = spec.names
    base = names.base_in(checkpoint.tensors.names())
    table = (spec.vocab_size, spec.hidden_size)
    embedding = TensorPlan(
        "embedding.weight", ((f"{base}{names.embedding}.weight", table),), formats.embedding
    )
    positions = None
    if names.positions:
        rows = (spec.max_position_embeddings, spec.hidden_size)
        source = ((f"{base}{names.positions}.weight", rows),)
        positions = TensorPlan("embedding.position_weight", source, formats.embedding)
    warnings: tuple[str, ...] = ()
    head: dict[str, TensorPlan] = {}
    plan_norm(
        head, spec.head, names.norm_added, "head.norm", base + names.final_norm, spec.hidden_size
    )
    if not embeds:
        head["linear_weight"], warnings = _plan_head(spec, checkpoint, embedding, table)
    plan = WeightsPlan(
        layers=tuple(plan_layer(spec, i, base, formats.linear) for i in range(len(spec.layers))),
        embedding=embedding,
        positions=positions,
        head=head,
        warnings=warnings,
    )
    is_stored = head.get("linear_weight", embedding) is not embedding
    ignored = {name for pair in kv_scale_names(spec, base) for name in pair}
    if not is_stored:
        ignored.add(f"{names.head}.weight")
    _check_tensor_set(checkpoint, plan, names.ignored, ignored)
    return plan


def _plan_head(
    spec: ModelSpec, checkpoint: Checkpoint, embedding: TensorPlan, table: tuple[int, int]
) -> tuple[TensorPlan, tuple[str, ...]]:
    tensors = checkpoint.tensors
    names = set(tensors.names())
    stored = f"{spec.names.head}.weight"
    if stored not in names:
        if spec.tie_word_embeddings:
            return embedding, ()
        raise ExportError(
            f"{checkpoint.source}: tensor {stored!r} is missing, and tie_word_embeddings is false"
        )
    head = TensorPlan("head.weight", ((stored, table),), embedding.format)
    if not spec.tie_word_embeddings:
        return head, ()
    other = embedding.sources[0][0]
    same = other in names and tensors.shape(stored) == tensors.shape(other)
    if same and all(
        torch.equal(tensors.load(stored, rows), tensors.load(other, rows))
        for rows in panel_rows(*table)
    ):
        return embedding, ()
    return head, (
        f"tie_word_embeddings is true, but {stored} differs from the embedding:"
        f" the checkpoint's {stored} is used",
    )


def _check_tensor_set(
    checkpoint: Checkpoint, plan: WeightsPlan, ignored_ends: tuple[str, ...], ignored: set[str]
) -> None:
    tensors = checkpoint.tensors
    found = set(tensors.names())
    expected = dict(source for entry in plan.tensors() for source in entry.sources)
    missing = sorted(set(expected) - found)
    if missing:
        raise ExportError(f"{checkpoint.source}: missing tensors: {_shown(missing)}")
    unexpected = sorted(
        name
        for name in found - set(expected) - ignored
        if not name.endswith(ignored_ends) and not _adds_nothing(name, checkpoint)
    )
    if unexpected:
        raise ExportError(f"{checkpoint.source}: tensors not supported: {_shown(unexpected)}")
    for name, shape in expected.items():
        if tensors.shape(name) != shape:
            raise ExportError(
                f"{checkpoint.source}: tensor {name!r}: expected shape {list(shape)},"
                f" found {list(tensors.shape(name))}"
            )


def _adds_nothing(name: str, checkpoint: Checkpoint) -> bool:
    """A bias of zeros, as quantisers write them for layers without one."""
    return name.endswith(".bias") and not checkpoint.tensors.load(name).any()


def _shown(names: list[str]) -> str:
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return ", ".join(names[:4]) + more


def write_weights(
    path: Path,
    plan: WeightsPlan,
    packed: PackedTensors,
    extra: dict[str, torch.Tensor],
    progress: Callable[[int, int], None],
) -> WrittenWeights:
    """Writes and fsyncs the file. `extra` are tensors stored as is."""
    tensors = plan.tensors()
    layout = [(entry.name, *stored_shape(entry)) for entry in tensors]
    layout += [(name, tuple(value.shape), value.dtype) for name, value in extra.items()]
    header, padding = _header(layout)
    # A piece is hashed and written while the next one is read and packed.
    with HashingFile(path) as file, ThreadPoolExecutor(max_workers=1) as writer:
        pending = writer.submit(file.write, struct.pack("<Q", len(header)) + header)
        for i, (name, shape, stored_dtype) in enumerate(layout):
            numbers = 0
            pieces: Iterable[torch.Tensor]
            if name in extra:
                pieces = (extra[name],)
            else:
                pieces = packed.pieces(tensors[i])
            for value in pieces:
                assert value.dtype == stored_dtype, name
                numbers += value.numel()
                pending.result()
                pending = writer.submit(file.write, _bytes(value))
            assert numbers == torch.Size(shape).numel(), name
            pending.result()
            pending = writer.submit(file.write, bytes(padding[i]))
            progress(i + 1, len(layout))
        pending.result()
        size, digest = file.finish()
    return WrittenWeights(size, digest)


def _bytes(value: torch.Tensor) -> memoryview:
    return value.contiguous().view(torch.uint8).numpy().data


def _header(layout: list[tuple[str, tuple[int, ...], torch.dtype]]) -> tuple[bytes, list[int]]:
    entries: dict[str, object] = {}
    padding: list[int] = []
    offset = 0
    for i, (name, shape, dtype) in enumerate(layout):
        size = torch.Size(shape).numel() * dtype.itemsize
        entries[name] = {
            "dtype": SAFETENSORS_DTYPES[dtype],
            "shape": list(shape),
            "data_offsets": [offset, offset + size],
        }
        offset += size
        gap = -offset % ALIGNMENT
        if gap:
            entries[f"__pad_{i}"] = {
                "dtype": "U8",
                "shape": [gap],
                "data_offsets": [offset, offset + gap],
            }
        padding.append(gap)
        offset += gap
    text = json.dumps(entries, separators=(",", ":")).encode()
    return text + b" " * (-(len(text) + 8) % ALIGNMENT), padding
