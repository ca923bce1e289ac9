"""How much a model loses by its formats: perplexity and KL divergence on a text.

Both models, the one that the bundle will hold and the same checkpoint in float32, run in eager
PyTorch over the ops that the engine runs, over windows of the text that do not see each other.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch
from tokenizers import Tokenizer
from torch import nn

from pinfer.export.checkpoint import Checkpoint
from pinfer.export.errors import ExportError
from pinfer.export.models.spec import ModelSpec, TensorPlan
from pinfer.export.packed_tensors import PackedTensors
from pinfer.export.weights import WeightFormats, WeightsPlan, plan_weights
from pinfer.runtime import ops
from pinfer.runtime.layers.modules import DecoderLayer, Head, embed
from pinfer.runtime.weight_format import FLOAT32

WINDOW = 512  # tokens that see each other; the first of a window predicts only
LOGITS_AT_A_TIME = 64  # rows of a whole vocabulary
BLOCK_SIZE = 16

# The tensor of a plan, as a bundle stores it.
Load = Callable[[TensorPlan], torch.Tensor]
Module = TypeVar("Module", bound=nn.Module)


@dataclass(frozen=True)
class Evaluation:
    text: str  # the file's name
    tokens: int  # predicted ones
    perplexity: float
    perplexity_float32: float
    mean_kl: float  # of the float32 distribution from the model's, nats
    max_kl: float

    def __str__(self) -> str:
        ratio = self.perplexity / self.perplexity_float32
        return (
            f"perplexity {self.perplexity:.4f} ({self.perplexity_float32:.4f} in float32, ratio"
            f" {ratio:.4f}), KL mean {self.mean_kl:.2e}, largest {self.max_kl:.2e},"
            f" over {self.tokens} tokens"
        )


@dataclass(frozen=True)
class Windows:
    """A text, tokenised and cut; each window is evaluated on its own."""

    text: str  # the file's name
    ids: list[torch.Tensor]  # int32 [at least 2]


def evaluate(
    windows: Windows,
    checkpoint: Checkpoint,
    spec: ModelSpec,
    formats: WeightFormats,
    cache_dtype: torch.dtype,
    max_model_len: int,
    progress: Callable[[int, int], None],
    load: Load | None = None,
) -> Evaluation:
    """load: the bundle's own tensors, if they are there already."""
    model = EagerModel(spec, checkpoint, formats, cache_dtype, max_model_len, load)
    exact = WeightFormats(FLOAT32, FLOAT32)
    reference = EagerModel(spec, checkpoint, exact, torch.float32, max_model_len)
    tokens, loss, reference_loss, divergences = 0, 0.0, 0.0, [0.0]
    largest = 0.0
    for i, ids in enumerate(windows.ids):
        hidden, reference_hidden = model.hidden_states(ids), reference.hidden_states(ids)
        for begin in range(0, len(ids) - 1, LOGITS_AT_A_TIME):
            rows = slice(begin, min(begin + LOGITS_AT_A_TIME, len(ids) - 1))
            found = model.log_probabilities(hidden[rows])
            expected = reference.log_probabilities(reference_hidden[rows])
            targets = ids[rows.start + 1 : rows.stop + 1].long()[:, None]
            loss -= float(found.gather(1, targets).double().sum())
            reference_loss -= float(expected.gather(1, targets).double().sum())
            kl = (expected.exp() * (expected - found)).sum(1)
            divergences.append(float(kl.double().sum()))
            largest = max(largest, float(kl.max()))
            tokens += len(targets)
        progress(i + 1, len(windows.ids))
    return Evaluation(
        text=windows.text,
        tokens=tokens,
        perplexity=math.exp(loss / tokens),
        perplexity_float32=math.exp(reference_loss / tokens),
        mean_kl=math.fsum(divergences) / tokens,
        max_kl=largest,
    )


def read_windows(
    option: str, text_file: Path, checkpoint: Checkpoint, max_model_len: int
) -> Windows:
    """option: what names the file, for messages. ExportError if the text cannot be read or has
    fewer than two tokens."""
    try:
        text = text_file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ExportError(f"{option} {text_file}: cannot be read: {error}") from error
    tokenizer = _tokenizer(option, checkpoint)
    ids = torch.tensor(tokenizer.encode(text, add_special_tokens=False).ids, dtype=torch.int32)
    if len(ids) < 2:
        raise ExportError(f"{option} {text_file}: expected at least 2 tokens, found {len(ids)}")
    windows = ids.split(min(WINDOW, max_model_len))
    return Windows(text_file.name, [window for window in windows if len(window) > 1])


def _tokenizer(option: str, checkpoint: Checkpoint) -> Tokenizer:
    if checkpoint.tokenizer is None:
        raise ExportError(f"{checkpoint.source}: {option} needs a tokenizer, and none was found")
    tokenizer = Tokenizer.from_str(json.dumps(checkpoint.tokenizer))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


class EagerInputs:
    """What the layers of a model are called with beside their rows, for one sequence."""

    def __init__(
        self, spec: ModelSpec, cache_dtype: torch.dtype, max_model_len: int, num_tokens: int
    ) -> None:
        num_blocks = -(-num_tokens // BLOCK_SIZE)
        self._cache_dtype = cache_dtype
        self._cache_shapes = ops.kv_cache_shapes(
            num_blocks, BLOCK_SIZE, spec.num_kv_heads, spec.head_dim, cache_dtype
        )
        self.positions = torch.arange(num_tokens, dtype=torch.int32)
        rotaries = [rotary.for_length(max_model_len) for rotary in spec.rotaries]
        self._tables = [
            ops.rotary_embedding(self.positions, rotary.inv_freq, rotary.attention_scaling)
            for rotary in rotaries
        ]
        self._inputs = (
            self.positions.long(),
            torch.arange(num_blocks, dtype=torch.int32)[None],
            torch.tensor([num_tokens], dtype=torch.int32),
            torch.tensor([0, num_tokens], dtype=torch.int32),
        )

    def run(self, layer: DecoderLayer, rotary: int, x: torch.Tensor) -> torch.Tensor:
        """The layer's rows after rows x, float32 [tokens, hidden]; rotary: index of its table."""
        caches = [torch.zeros(shape, dtype=self._cache_dtype) for shape in self._cache_shapes]
        return layer(x, *self._tables[rotary], *caches, *self._inputs)


class EagerModel:
    """A checkpoint's model in eager PyTorch, for one sequence at a time."""

    def __init__(
        self,
        spec: ModelSpec,
        checkpoint: Checkpoint,
        formats: WeightFormats,
        cache_dtype: torch.dtype,
        max_model_len: int,
        load: Load | None = None,
    ) -> None:
        plan = plan_weights(spec, checkpoint, formats)
        load = load or PackedTensors(checkpoint).tensor
        self._spec = spec
        self._max_model_len = max_model_len
        self._cache_dtype = cache_dtype
        self._embedding = Embedding(spec, plan, load)
        self._layers = [
            filled(DecoderLayer(layer, formats.linear), plans, load)
            for layer, plans in zip(spec.layers, plan.layers, strict=True)
        ]
        table = {plan.embedding.name: self._embedding.weight}
        self._head = filled(Head(spec.head, formats.embedding), plan.head, load, table)

    @torch.no_grad()
    def hidden_states(self, ids: torch.Tensor) -> torch.Tensor:
        """float32 [tokens, hidden] of a whole sequence, int32 [tokens]."""
        inputs = EagerInputs(self._spec, self._cache_dtype, self._max_model_len, len(ids))
        x = self._embedding(ids, inputs.positions)
        for layer, rotary in zip(self._layers, self._spec.rotary_of_layer, strict=True):
            x = inputs.run(layer, rotary, x)
        return x

    @torch.no_grad()
    def logits(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """float32 [rows, vocab] of rows of hidden_states()."""
        return self._head(hidden_states)

    def log_probabilities(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """float32 [rows, vocab] of rows of hidden_states()."""
        return self.logits(hidden_states).log_softmax(-1)


class Embedding:
    """The rows that the first layer gets."""

    def __init__(self, spec: ModelSpec, plan: WeightsPlan, load: Load) -> None:
        self._spec = spec
        self.weight = load(plan.embedding)
        self._positions = None if plan.positions is None else load(plan.positions)

    def __call__(self, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """float32 [tokens, hidden] of int32 [tokens] twice."""
        scale, size = self._spec.embedding_scale, self._spec.hidden_size
        return embed(ids, positions, self.weight, self._positions, scale, size)


def filled(
    module: Module,
    plans: dict[str, TensorPlan],
    load: Load,
    shared: Mapping[str, torch.Tensor] | None = None,
) -> Module:
    """The module with its weights. shared: tensors that are there already, by the bundle's
    names."""
    for name, parameter in module.named_parameters():
        found = (shared or {}).get(plans[name].name)
        parameter.data = load(plans[name]) if found is None else found
    return module
