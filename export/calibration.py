"""Calibrated rounding: what the inputs of each linear weight look like on a text.

Layer by layer, as the weights are written: the text's rows run through the layer in floats, which
shows what its weights are multiplied with; the weights are rounded accordingly; and the rounded
layer hands the rows on, so that later layers see its errors.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from pinfer.export.checkpoint import Checkpoint
from pinfer.export.evaluation import EagerInputs, Embedding, Windows, filled
from pinfer.export.gptq import quantize_int4
from pinfer.export.models.spec import ModelSpec, TensorPlan
from pinfer.export.packed_tensors import PackedTensors, joined
from pinfer.export.weights import WeightFormats, plan_weights
from pinfer.runtime.layers.layer_spec import LayerSpec
from pinfer.runtime.layers.modules import DecoderLayer
from pinfer.runtime.weight_format import FLOAT32, QuantizedWeight


class CalibratedTensors(PackedTensors):
    """Rounds int4 weights of layers by what a text multiplies them with. Weights of experts, of
    which a text may use few, are rounded to the nearest."""

    def __init__(
        self,
        windows: Windows,
        spec: ModelSpec,
        checkpoint: Checkpoint,
        formats: WeightFormats,
        cache_dtype: torch.dtype,
        max_model_len: int,
        embeds: bool = False,
    ) -> None:
        super().__init__(checkpoint)
        self._spec, self._formats = spec, formats
        self._exact = plan_weights(spec, checkpoint, WeightFormats(FLOAT32, FLOAT32), embeds)
        self._layers = plan_weights(spec, checkpoint, formats, embeds).layers
        self._layer_of = {
            plan.name: i for i, layer in enumerate(self._layers) for plan in layer.values()
        }
        inputs = {
            count: EagerInputs(spec, cache_dtype, max_model_len, count)
            for count in {len(ids) for ids in windows.ids}
        }
        embedding = Embedding(spec, self._exact, PackedTensors(checkpoint).tensor)
        self._inputs = [inputs[len(ids)] for ids in windows.ids]
        self._rows = [  # of each window, before the next layer
            embedding(ids, entry.positions)
            for ids, entry in zip(windows.ids, self._inputs, strict=True)
        ]
        self._next = 0
        self._rounded: dict[str, Tensor] = {}  # the last layer's, by the bundle's names
        self._moments: dict[str, Tensor] = {}  # of the layer that is being rounded

    def pieces(self, plan: TensorPlan) -> Iterator[Tensor]:
        """REQUIRES that layers are asked for in order."""
        if plan.name not in self._layer_of:
            yield from super().pieces(plan)
            return
        while self._next <= self._layer_of[plan.name]:
            self._round_next()
        yield self._rounded[plan.name]

    def round(self, plan: TensorPlan, weight: Tensor) -> QuantizedWeight:
        moments = self._moments.get(plan.name)
        if moments is None or plan.format is None or plan.format.name != "int4":
            return super().round(plan, weight)
        return quantize_int4(weight, moments, plan.format)

    @torch.no_grad()
    def _round_next(self) -> None:
        i = self._next
        self._next += 1
        spec, plans = self._spec.layers[i], self._layers[i]
        rotary = self._spec.rotary_of_layer[i]
        exact = PackedTensors(self._checkpoint).tensor
        measured = filled(MeasuredLayer(spec), self._exact.layers[i], exact)
        for inputs, x in zip(self._inputs, self._rows, strict=True):
            inputs.run(measured, rotary, x)
        self._moments = {plans[name].name: value for name, value in measured.moments.items()}
        del measured
        own_pieces = super().pieces
        self._rounded = {plan.name: joined(plan, own_pieces(plan)) for plan in plans.values()}
        layer = filled(
            DecoderLayer(spec, self._formats.linear), plans, lambda plan: self._rounded[plan.name]
        )
        self._rows = [
            inputs.run(layer, rotary, x) for inputs, x in zip(self._inputs, self._rows, strict=True)
        ]


class MeasuredLayer(DecoderLayer):
    """A layer that adds up the moments of the rows that its weights are multiplied with."""

    def __init__(self, spec: LayerSpec) -> None:
        super().__init__(spec, FLOAT32)
        # By the weight's name, float64 [in_features, in_features]: sums of x^T x.
        self.moments: dict[str, Tensor] = {}

    def _linear(self, name: str, x: Tensor, out_features: int) -> Tensor:
        found = (x.T @ x).double()
        weight = f"{name}_weight"
        self.moments[weight] = self.moments[weight] + found if weight in self.moments else found
        return super()._linear(name, x, out_features)
