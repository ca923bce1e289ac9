"""What a family's file tells the exporter about a model: sizes, layers, tensor names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from pinfer.runtime.layers.layer_spec import LayerSpec
from pinfer.runtime.weight_format import WeightFormat


@dataclass(frozen=True)
class RotarySpec:
    inv_freq: torch.Tensor  # float32 [rotary_dim / 2]
    attention_scaling: float = 1.0


@dataclass(frozen=True)
class ModelSpec:
    architecture: str
    num_layers: int
    vocab_size: int
    max_position_embeddings: int
    tie_word_embeddings: bool
    layer: LayerSpec
    rotary: RotarySpec = field(repr=False)


class ConfigReader:
    """Reads the keys of config.json, remembers which were read, and refuses the others.

    A setting that nobody reads could change the numbers, so dropping it in silence is worse than
    failing. Keys that never change inference (COMMON_KEYS) and empty values are let through.
    """

    COMMON_KEYS = frozenset(
        """architectures model_type torch_dtype dtype transformers_version use_cache
        bos_token_id eos_token_id pad_token_id sep_token_id unk_token_id decoder_start_token_id
        initializer_range attention_dropout hidden_dropout resid_pdrop embd_pdrop
        output_attentions output_hidden_states return_dict problem_type id2label label2id
        chunk_size_feed_forward is_encoder_decoder finetuning_task task_specific_params
        gradient_checkpointing max_length name_or_path auto_map""".split()
    )

    def __init__(self, source: str, config: Mapping[str, Any]) -> None:
        self.source = source
        self._config = config
        self._read: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        """The value of `key`; the default where it is absent or null."""
        self._read.add(key)
        value = self._config.get(key)
        return default if value is None else value

    def unread_keys(self) -> list[str]:
        return sorted(
            key
            for key, value in self._config.items()
            if key not in self._read
            and key not in self.COMMON_KEYS
            and not key.startswith(("_", "transformers."))
            and value not in (None, False, {}, [])
        )


@dataclass(frozen=True)
class TensorPlan:
    """One tensor of the bundle: which tensors of the checkpoint it is made of.

    `sources` are (name, shape) pairs, concatenated along dimension 0. A tensor with a format is a
    weight [out_features, in_features], packed for pinfer::linear; others are stored as float32.
    """

    name: str
    sources: tuple[tuple[str, tuple[int, ...]], ...]
    format: WeightFormat | None
