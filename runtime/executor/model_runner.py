"""The Executor of the reference: embedding, rotary tables, every layer, the head, in eager PyTorch
over the same ops as compiled code."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from pinfer.runtime import ops
from pinfer.runtime.core.kv_cache_config import KVCacheConfig
from pinfer.runtime.core.scheduler_output import SchedulerOutput
from pinfer.runtime.executor.input_batch import InputBatch
from pinfer.runtime.executor.model import Model
from pinfer.runtime.layers.modules import embed


class ModelRunner:
    """Owns the cache. What recycled or new blocks hold must never matter, so it begins as NaN."""

    def __init__(self, model: Model, kv_cache_config: KVCacheConfig, num_blocks: int) -> None:
        self._model = model
        self._places = kv_cache_config.places()
        self._batch = InputBatch(model.block_size, kv_cache_config.num_groups)
        spec = next(iter(model.layer_kinds.values()))
        shapes = ops.kv_cache_shapes(
            num_blocks, model.block_size, spec.num_kv_heads, spec.head_dim, model.cache_dtype
        )
        self._kv_cache = [
            tuple(_filled_with_nan(shape, model.cache_dtype) for shape in shapes)
            for _ in range(kv_cache_config.num_tensors)
        ]
        self._hidden_states: torch.Tensor | None = None  # [T, hidden]

    @torch.no_grad()
    def execute_model(self, scheduler_output: SchedulerOutput) -> None:
        """Runs the layers over the step's tokens: token ids -> x [T, hidden] -> layers."""
        batch, model = self._batch, self._model
        batch.update(scheduler_output)
        self._hidden_states = None
        if len(batch.token_ids) == 0:
            return
        x = embed(batch.token_ids, batch.positions, model.embedding, model.position_embedding,
                  model.embedding_scale, model.hidden_size)  # fmt: skip
        tables = [
            ops.rotary_embedding(batch.positions, inv_freq, scaling)
            for inv_freq, scaling in model.rotaries
        ]
        for layer, rotary, place in zip(
            model.layers, model.rotary_of_layer, self._places, strict=True
        ):
            k_cache, v_cache = self._kv_cache[place.tensor_id]
            group = batch.groups[place.group_id]
            x = layer(x, *tables[rotary], k_cache, v_cache, group.slot_mapping, group.block_table,
                      batch.seq_lens, batch.query_start_loc)  # fmt: skip
        self._hidden_states = x

    @torch.no_grad()
    def compute_logits(self, rows: Sequence[int]) -> torch.Tensor:
        """Logits [rows, vocab] of some tokens of the last step, by their rows in its flat order."""
        if not rows or self._hidden_states is None:
            return torch.empty(0, self._model.vocab_size)
        return self._model.head(self._hidden_states[list(rows)])

    def compute_hidden_states(self, rows: Sequence[int]) -> torch.Tensor:
        """The same of hidden states [rows, hidden] after the final norm, of a model that embeds."""
        return self.compute_logits(rows)


def _filled_with_nan(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Bytes that are NaN in every float dtype, and as the scales of an int8 cache."""
    return torch.full((*shape[:-1], shape[-1] * dtype.itemsize), 255, dtype=torch.uint8).view(dtype)
