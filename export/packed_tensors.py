"""The tensors of a bundle as it stores them: read, checked, rounded and packed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch

from pinfer.export.checkpoint import ALL_ROWS, Checkpoint
from pinfer.export.errors import ExportError
from pinfer.export.models.spec import TensorPlan
from pinfer.runtime.weight_format import PANEL, QuantizedWeight, WeightFormat

PIECE = 1 << 24  # numbers of a large tensor that are held at a time


class PackedTensors:
    """Makes tensors of a bundle out of a checkpoint's, one at a time."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        # Names of tensors that were integers and have been rounded to others, in order.
        self.rounded: dict[str, None] = {}

    def tensor(self, plan: TensorPlan) -> torch.Tensor:
        """ExportError if a value is not finite."""
        return joined(plan, self.pieces(plan))

    def pieces(self, plan: TensorPlan) -> Iterator[torch.Tensor]:
        """The tensor in pieces that follow each other in memory; large ones in several."""
        names = [name for name, _ in plan.sources]
        if plan.num_experts:
            each = len(names) // plan.num_experts
            for i in range(0, len(names), each):
                yield self._stored(plan, names[i : i + each])
        elif self._is_read_by_rows(plan):
            for rows in panel_rows(*plan.shape):
                yield self._stored(plan, names, rows)
        else:
            yield self._stored(plan, names)

    def round(self, plan: TensorPlan, weight: torch.Tensor) -> QuantizedWeight:
        """Rows of one of the plan's sources, float32, in its format. ValueError if a scale is
        beyond what float16 holds."""
        assert plan.format is not None
        return plan.format.quantize(weight)

    def _is_read_by_rows(self, plan: TensorPlan) -> bool:
        if len(plan.sources) != 1 or len(plan.shape) != 2 or plan.transposed or plan.by_head:
            return False
        if plan.format is not None and not plan.format.is_packed_by_rows:
            return False
        return self._checkpoint.tensors.reads_rows(plan.sources[0][0])

    def _stored(self, plan: TensorPlan, names: list[str], rows: slice = ALL_ROWS) -> torch.Tensor:
        """Some of the plan's sources, or rows of one, as one tensor."""
        format = plan.format
        if format is not None and format.is_quantized:
            whole = QuantizedWeight.cat(
                [self._quantized(plan, format, name, rows) for name in names]
            )
            if plan.by_head:
                whole = whole.rows(_rows_by_kind(plan))
            return format.pack_quantized(whole)
        dtype = torch.float32 if format is None else format.load_dtype
        values = [self._load(plan, name, dtype, rows) for name in names]
        value = values[0] if len(values) == 1 else torch.cat(values)
        if plan.by_head:
            value = value[_rows_by_kind(plan)]
        return value if format is None else format.pack(value)

    def _quantized(
        self, plan: TensorPlan, format: WeightFormat, name: str, rows: slice
    ) -> QuantizedWeight:
        """The checkpoint's own numbers, or others."""
        try:
            kept = None if plan.transposed else self._kept(format, name, rows)
            if kept is not None:
                return kept
            if self._checkpoint.tensors.is_quantized(name):
                self.rounded[name] = None
            return self.round(plan, self._load(plan, name, torch.float32, rows))
        except ValueError as error:
            raise ExportError(f"{self._checkpoint.source}: tensor {name}: {error}") from error

    def _kept(self, format: WeightFormat, name: str, rows: slice) -> QuantizedWeight | None:
        """None unless they are integers that the format can hold."""
        stored = self._checkpoint.tensors.load_quantized(name, rows)
        kept = None if stored is None else stored.in_format(format)
        if kept is not None:
            for values in (kept.scales, kept.minima):
                if values is not None:
                    self._check_finite(name, values)
        return kept

    def _load(self, plan: TensorPlan, name: str, dtype: torch.dtype, rows: slice) -> torch.Tensor:
        value = self._checkpoint.tensors.load(name, rows)
        if not value.is_floating_point():
            raise ExportError(
                f"{self._checkpoint.source}: tensor {name}: expected floats, found {value.dtype}"
            )
        if plan.added:  # in float64: a GGUF file's norms come as a difference, and are whole again
            value = value.double() + plan.added
        value = value.to(dtype)
        self._check_finite(name, value)
        return value.T.contiguous() if plan.transposed else value

    def _check_finite(self, name: str, value: torch.Tensor) -> None:
        if not torch.stack(value.aminmax()).isfinite().all():  # one pass; a NaN is both
            raise ExportError(f"{self._checkpoint.source}: tensor {name}: a value is not finite")


def joined(plan: TensorPlan, pieces: Iterable[torch.Tensor]) -> torch.Tensor:
    shape, dtype = stored_shape(plan)
    stored = torch.empty(shape, dtype=dtype)
    begin = 0
    for piece in pieces:
        stored.view(-1)[begin : begin + piece.numel()] = piece.flatten()
        begin += piece.numel()
    return stored


def stored_shape(plan: TensorPlan) -> tuple[tuple[int, ...], torch.dtype]:
    if plan.format is None:
        return plan.shape, torch.float32
    shape = plan.format.packed_shape(*plan.shape)
    return ((plan.num_experts, *shape) if plan.num_experts else shape), plan.format.dtype


def panel_rows(num_rows: int, num_columns: int) -> Iterator[slice]:
    """Parts of a matrix of whole panels, so that each is packed alone."""
    at_a_time = max(1, PIECE // (PANEL * num_columns)) * PANEL
    for begin in range(0, num_rows, at_a_time):
        yield slice(begin, min(begin + at_a_time, num_rows))


def _rows_by_kind(plan: TensorPlan) -> torch.Tensor:
    """From the rows of one head after another to those of all queries, all keys, all values."""
    rows = torch.arange(plan.shape[0]).view(plan.by_head, 3, -1)
    return rows.transpose(0, 1).flatten()
