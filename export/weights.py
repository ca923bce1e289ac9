"""Plans, checks and writes the weights file of a bundle.

The file is safetensors, every tensor 64-byte aligned so that the engine can map it and hand it to
the kernels as it lies: the header is padded, and U8 tensors `__pad_N` fill the gaps (the format
allows no holes). Tensors are read, packed and written one at a time, large ones in pieces.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch

from pinfer.export.checkpoint import ALL_ROWS, Checkpoint
from pinfer.export.errors import ExportError
from pinfer.export.models.decoder import plan_layer, plan_norm
from pinfer.export.models.spec import ModelSpec, TensorPlan
from pinfer.runtime.bundle.hashing import HashingFile
from pinfer.runtime.weight_format import PANEL, QuantizedWeight, WeightFormat

ALIGNMENT = 64
PIECE = 1 << 24  # numbers of a large tensor that are held at a time
SAFETENSORS_DTYPES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.int8: "I8",
                      torch.uint8: "U8"}  # fmt: skip


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
    rounded: tuple[str, ...]  # tensors of the checkpoint whose integers became others


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
    ignored = set() if is_stored else {f"{names.head}.weight"}
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
        for rows in _pieces(*table)
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


def stored_tensor(plan: TensorPlan, checkpoint: Checkpoint) -> torch.Tensor:
    """The tensor as the bundle stores it. ExportError if a value is not finite."""
    shape, dtype = stored_shape(plan)
    stored = torch.empty(shape, dtype=dtype)
    begin = 0
    for piece in stored_pieces(plan, checkpoint, {}):
        stored.view(-1)[begin : begin + piece.numel()] = piece.flatten()
        begin += piece.numel()
    return stored


def stored_pieces(
    plan: TensorPlan, checkpoint: Checkpoint, rounded: dict[str, None]
) -> Iterator[torch.Tensor]:
    """What stored_tensor gives, in pieces that follow each other in memory. Names of tensors that
    were integers and are rounded to others are added to `rounded`."""
    names = [name for name, _ in plan.sources]
    if plan.num_experts:
        each = len(names) // plan.num_experts
        for i in range(0, len(names), each):
            yield _stored(plan, names[i : i + each], checkpoint, rounded)
    elif _is_read_by_rows(plan, checkpoint):
        for rows in _pieces(*plan.shape):
            yield _stored(plan, names, checkpoint, rounded, rows)
    else:
        yield _stored(plan, names, checkpoint, rounded)


def _is_read_by_rows(plan: TensorPlan, checkpoint: Checkpoint) -> bool:
    if len(plan.sources) != 1 or len(plan.shape) != 2 or plan.transposed or plan.by_head:
        return False
    return checkpoint.tensors.reads_rows(plan.sources[0][0])


def _pieces(num_rows: int, num_columns: int) -> Iterator[slice]:
    """Whole panels, so that each is packed alone."""
    at_a_time = max(1, PIECE // (PANEL * num_columns)) * PANEL
    for begin in range(0, num_rows, at_a_time):
        yield slice(begin, min(begin + at_a_time, num_rows))


def _stored(
    plan: TensorPlan,
    names: list[str],
    checkpoint: Checkpoint,
    rounded: dict[str, None],
    rows: slice = ALL_ROWS,
) -> torch.Tensor:
    """Some of the plan's sources, or rows of one, as one tensor."""
    format = plan.format
    if format is not None and format.is_quantized:
        parts = [
            None if plan.transposed else _kept(format, name, checkpoint, rows) for name in names
        ]
        is_quantized = checkpoint.tensors.is_quantized
        again = zip(names, parts, strict=True)
        rounded |= {name: None for name, part in again if part is None and is_quantized(name)}
        parts = [
            _rounded(plan, format, name, checkpoint, rows) if part is None else part
            for name, part in zip(names, parts, strict=True)
        ]
        whole = QuantizedWeight.cat(parts)
        if plan.by_head:
            whole = whole.rows(_rows_by_kind(plan))
        return whole.pack()
    dtype = torch.float32 if format is None else format.dtype
    values = [_load(plan, name, checkpoint, dtype, rows) for name in names]
    value = values[0] if len(values) == 1 else torch.cat(values)
    if plan.by_head:
        value = value[_rows_by_kind(plan)]
    return value if format is None else format.pack(value)


def _rows_by_kind(plan: TensorPlan) -> torch.Tensor:
    """From the rows of one head after another to those of all queries, all keys, all values."""
    rows = torch.arange(plan.shape[0]).view(plan.by_head, 3, -1)
    return rows.transpose(0, 1).flatten()


def _load(
    plan: TensorPlan, name: str, checkpoint: Checkpoint, dtype: torch.dtype, rows: slice
) -> torch.Tensor:
    value = checkpoint.tensors.load(name, rows)
    if not value.is_floating_point():
        raise ExportError(
            f"{checkpoint.source}: tensor {name}: expected floats, found {value.dtype}"
        )
    if plan.added:  # in float64: a GGUF file's norms come as a difference, and are whole again
        value = value.double() + plan.added
    value = value.to(dtype)
    _check_finite(name, checkpoint, value)
    return value.T.contiguous() if plan.transposed else value


def _check_finite(name: str, checkpoint: Checkpoint, value: torch.Tensor) -> None:
    if not torch.stack(value.aminmax()).isfinite().all():  # one pass; a NaN is both
        raise ExportError(f"{checkpoint.source}: tensor {name}: a value is not finite")


def _kept(
    format: WeightFormat, name: str, checkpoint: Checkpoint, rows: slice
) -> QuantizedWeight | None:
    """The checkpoint's own numbers, if they are integers that the format can hold."""
    try:
        stored = checkpoint.tensors.load_quantized(name, rows)
    except ValueError as error:
        raise ExportError(f"{checkpoint.source}: tensor {name}: {error}") from error
    kept = None if stored is None else stored.in_format(format)
    if kept is not None:
        for values in (kept.scales, kept.minima):
            if values is not None:
                _check_finite(name, checkpoint, values)
    return kept


def _rounded(
    plan: TensorPlan, format: WeightFormat, name: str, checkpoint: Checkpoint, rows: slice
) -> QuantizedWeight:
    try:
        return format.quantize(_load(plan, name, checkpoint, torch.float32, rows))
    except ValueError as error:
        raise ExportError(f"{checkpoint.source}: tensor {name}: {error}") from error


def stored_shape(plan: TensorPlan) -> tuple[tuple[int, ...], torch.dtype]:
    if plan.format is None:
        return plan.shape, torch.float32
    shape = plan.format.packed_shape(*plan.shape)
    return ((plan.num_experts, *shape) if plan.num_experts else shape), plan.format.dtype


def write_weights(
    path: Path,
    plan: WeightsPlan,
    checkpoint: Checkpoint,
    extra: dict[str, torch.Tensor],
    progress: Callable[[int, int], None],
) -> WrittenWeights:
    """Writes and fsyncs the file. `extra` are tensors stored as is."""
    tensors = plan.tensors()
    layout = [(entry.name, *stored_shape(entry)) for entry in tensors]
    layout += [(name, tuple(value.shape), value.dtype) for name, value in extra.items()]
    header, padding = _header(layout)
    rounded: dict[str, None] = {}
    # A piece is hashed and written while the next one is read and packed.
    with HashingFile(path) as file, ThreadPoolExecutor(max_workers=1) as writer:
        pending = writer.submit(file.write, struct.pack("<Q", len(header)) + header)
        for i, (name, shape, stored_dtype) in enumerate(layout):
            numbers = 0
            pieces: Iterable[torch.Tensor]
            if name in extra:
                pieces = (extra[name],)
            else:
                pieces = stored_pieces(tensors[i], checkpoint, rounded)
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
    return WrittenWeights(size, digest, tuple(rounded))


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
