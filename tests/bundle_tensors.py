"""The tensors that a float32 bundle of a checkpoint would hold, without one being written."""

from pathlib import Path

import torch

from pinfer.export.exporter import read_checkpoint
from pinfer.export.models.registry import read_spec
from pinfer.export.packed_tensors import PackedTensors
from pinfer.export.weights import WeightFormats, plan_weights
from pinfer.runtime.weight_format import FLOAT32


def bundle_tensors(path: Path) -> dict[str, torch.Tensor]:
    """By their names in the bundle, packed. AssertionError with the warnings if there are any."""
    checkpoint = read_checkpoint(path)
    plan = plan_weights(read_spec(checkpoint), checkpoint, WeightFormats(FLOAT32, FLOAT32))
    assert plan.warnings == ()
    return {entry.name: PackedTensors(checkpoint).tensor(entry) for entry in plan.tensors()}
