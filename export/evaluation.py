"""How much a model loses by its formats: perplexity and KL divergence on a text.

Both models, the one that the bundle will hold and the same checkpoint in float32, run in eager
PyTorch over the ops that the engine runs, over windows of the text that do not see each other.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import nn

from pinfer.export.checkpoint import Checkpoint
from pinfer.export.errors import ExportError
from pinfer.export.models.spec import ModelSpec, TensorPlan
from pinfer.export.weights import WeightFormats, plan_weights, stored_tensor
from pinfer.runtime import ops
from pinfer.runtime.layers.modules import DecoderLayer, Head, embed
from pinfer.runtime.weight_format import FLOAT32

WINDOW = 512  # tokens that see each other; the first of a window predicts only
LOGITS_AT_A_TIME = 64  # rows of a whole vocabulary
BLOCK_SIZE = 16


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
) -> Evaluation:
    model = EagerModel(spec, checkpoint, formats, cache_dtype, max_model_len)
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


def read_windows(text_file: Path, checkpoint: Checkpoint, max_model_len: int) -> Windows:
    """ExportError if the text cannot be read or has fewer than two tokens."""
    try:
        text = text_file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ExportError(f"--eval {text_file}: cannot be read: {error}") from error
    tokenizer = _tokenizer(checkpoint)
    ids = torch.tensor(tokenizer.encode(text, add_special_tokens=False).ids, dtype=torch.int32)
    if len(ids) < 2:
        raise ExportError(f"--eval {text_file}: expected at least 2 tokens, found {len(ids)}")
    windows = ids.split(min(WINDOW, max_model_len))
    return Windows(text_file.name, [window for window in windows if len(window) > 1])


def _tokenizer(checkpoint: Checkpoint) -> Tokenizer:
    if checkpoint.tokenizer is None:
        raise ExportError(f"{checkpoint.source}: --eval needs a tokenizer, and none was found")
    tokenizer = Tokenizer.from_str(json.dumps(checkpoint.tokenizer))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


class EagerModel:
    """A checkpoint's model in eager PyTorch, for one sequence at a time."""

    def __init__(
        self,
        spec: ModelSpec,
        checkpoint: Checkpoint,
        formats: WeightFormats,
        cache_dtype: torch.dtype,
        max_model_len: int,
    ) -> None:
        plan = plan_weights(spec, checkpoint, formats)
        self._spec = spec
        self._rotaries = [rotary.for_length(max_model_len) for rotary in spec.rotaries]
        self._cache_dtype = cache_dtype
        self._embedding = stored_tensor(plan.embedding, checkpoint)
        self._positions = None
        if plan.positions is not None:
            self._positions = stored_tensor(plan.positions, checkpoint)
        self._layers = [
            _filled(DecoderLayer(layer, formats.linear), plans, checkpoint, {})
            for layer, plans in zip(spec.layers, plan.layers, strict=True)
        ]
        self._head = _filled(
            Head(spec.head, formats.embedding),
            plan.head,
            checkpoint,
            {plan.embedding.name: self._embedding},
        )

    @torch.no_grad()
    def hidden_states(self, ids: torch.Tensor) -> torch.Tensor:
        """float32 [tokens, hidden] of a whole sequence, int32 [tokens]."""
        spec = self._spec
        count = len(ids)
        num_blocks = -(-count // BLOCK_SIZE)
        shapes = ops.kv_cache_shapes(
            num_blocks, BLOCK_SIZE, spec.num_kv_heads, spec.head_dim, self._cache_dtype
        )
        positions = torch.arange(count, dtype=torch.int32)
        x = embed(ids, positions, self._embedding, self._positions, spec.embedding_scale,
                  spec.hidden_size)  # fmt: skip
        tables = [
            ops.rotary_embedding(positions, rotary.inv_freq, rotary.attention_scaling)
            for rotary in self._rotaries
        ]
        inputs = (
            positions.long(),
            torch.arange(num_blocks, dtype=torch.int32)[None],
            torch.tensor([count], dtype=torch.int32),
            torch.tensor([0, count], dtype=torch.int32),
        )
        for module, table in zip(self._layers, spec.rotary_of_layer, strict=True):
            caches = [torch.zeros(shape, dtype=self._cache_dtype) for shape in shapes]
            x = module(x, *tables[table], *caches, *inputs)
        return x

    @torch.no_grad()
    def logits(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """float32 [rows, vocab] of rows of hidden_states()."""
        return self._head(hidden_states)

    def log_probabilities(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """float32 [rows, vocab] of rows of hidden_states()."""
        return self.logits(hidden_states).log_softmax(-1)


def _filled(
    module: nn.Module,
    plans: dict[str, TensorPlan],
    checkpoint: Checkpoint,
    shared: dict[str, torch.Tensor],
) -> nn.Module:
    """`shared`: tensors that are there already, by the bundle's names."""
    for name, parameter in module.named_parameters():
        plan = plans[name]
        found = shared.get(plan.name)
        parameter.data = stored_tensor(plan, checkpoint) if found is None else found
    return module
