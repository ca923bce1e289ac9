"""What a family's file tells the exporter about a model: sizes, layers, tensor names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch

from pinfer.runtime.layers.layer_spec import HeadSpec, LayerSpec
from pinfer.runtime.weight_format import WeightFormat


@dataclass(frozen=True)
class RotarySpec:
    """A table of rotary frequencies."""

    inv_freq: torch.Tensor  # float32 [rotary_dim / 2]
    attention_scaling: float = 1.0  # of cosines and sines
    # Where both are set: the frequencies of models that run beyond long_from tokens.
    long_inv_freq: torch.Tensor | None = None
    long_from: int = 0

    def for_length(self, max_model_len: int) -> RotarySpec:
        """The table of a bundle whose contexts have up to max_model_len tokens. One table serves
        every length, for the keys in the cache were rotated by it."""
        if self.long_inv_freq is None or max_model_len <= self.long_from:
            return self
        return replace(self, inv_freq=self.long_inv_freq, long_inv_freq=None)


@dataclass(frozen=True)
class TensorNames:
    """How a family's checkpoints call their tensors, without ".weight" and ".bias"."""

    # Before every name but the head's; which of them a checkpoint uses, its embedding tells.
    bases: tuple[str, ...] = ("model.", "")
    embedding: str = "embed_tokens"
    positions: str = ""  # of learned positions; "": none
    final_norm: str = "norm"
    head: str = "lm_head"
    layer: str = "layers.{}."  # before every name below
    norms: Mapping[str, str] = field(
        default_factory=lambda: {
            "attention_norm": "input_layernorm",
            "mlp_norm": "post_attention_layernorm",
        }
    )
    qkv: tuple[str, ...] = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    q_norm: str = "self_attn.q_norm"
    k_norm: str = "self_attn.k_norm"
    output: str = "self_attn.o_proj"
    up: tuple[str, ...] = ("mlp.gate_proj", "mlp.up_proj")
    down: str = "mlp.down_proj"
    router: str = "mlp.gate"
    experts_up: tuple[str, ...] = ("mlp.experts.{}.gate_proj", "mlp.experts.{}.up_proj")
    experts_down: str = "mlp.experts.{}.down_proj"
    shared_gate: str = "mlp.shared_expert_gate"
    shared_up: tuple[str, ...] = ("mlp.shared_expert.gate_proj", "mlp.shared_expert.up_proj")
    shared_down: str = "mlp.shared_expert.down_proj"
    transposed: bool = False  # linear weights are [in_features, out_features]
    qkv_by_head: bool = False  # one head's query, key and value follow each other
    norm_added: float = 0.0  # to every norm's weight
    ignored: tuple[str, ...] = (".rotary_emb.inv_freq",)  # ends of names that config implies

    def with_norms(self, **norms: str) -> TensorNames:
        return replace(self, norms=norms)

    def base_in(self, names: Iterable[str]) -> str:
        """Which of `bases` a checkpoint with tensors of these names uses; the first if unknown."""
        found = set(names)
        fitting = [base for base in self.bases if f"{base}{self.embedding}.weight" in found]
        return fitting[0] if fitting else self.bases[0]


@dataclass(frozen=True)
class ModelSpec:
    architecture: str
    max_position_embeddings: int
    tie_word_embeddings: bool
    layers: tuple[LayerSpec, ...]
    head: HeadSpec
    rotaries: tuple[RotarySpec, ...] = field(repr=False, compare=False)
    rotary_of_layer: tuple[int, ...]  # indices of rotaries
    names: TensorNames = field(repr=False)
    embedding_scale: float = 1.0  # what embeddings are multiplied by

    @property
    def vocab_size(self) -> int:
        return self.head.vocab_size

    @property
    def hidden_size(self) -> int:
        return self.head.hidden_size

    @property
    def num_kv_heads(self) -> int:
        """One for all layers, as is head_dim."""
        return self.layers[0].num_kv_heads

    @property
    def head_dim(self) -> int:
        return self.layers[0].head_dim

    def layer_kinds(self) -> dict[str, tuple[LayerSpec, int]]:
        """By the name of the artifact: what differs between layers, and its number of rotary
        frequencies."""
        return {name: kind for kind, name in self._kind_names.items()}

    def kind_of_layer(self, index: int) -> str:
        """The artifact's name."""
        return self._kind_names[self._kind(index)]

    @cached_property
    def _kind_names(self) -> dict[tuple[LayerSpec, int], str]:
        kinds = dict.fromkeys(self._kind(i) for i in range(len(self.layers)))
        if len(kinds) == 1:
            return dict.fromkeys(kinds, "decoder_layer")
        return {kind: f"decoder_layer_{i}" for i, kind in enumerate(kinds)}

    def _kind(self, index: int) -> tuple[LayerSpec, int]:
        return self.layers[index], len(self.rotaries[self.rotary_of_layer[index]].inv_freq)


class ConfigReader:
    """Reads the keys of config.json, remembers which were read, and refuses the others.

    A setting that nobody reads could change the numbers, so dropping it in silence is worse than
    failing. Keys that never change logits (COMMON_KEYS, GENERATION_KEYS) and empty values are let
    through.
    """

    COMMON_KEYS = frozenset(
        """architectures model_type torch_dtype dtype transformers_version use_cache
        bos_token_id eos_token_id pad_token_id sep_token_id unk_token_id decoder_start_token_id
        initializer_range attention_dropout hidden_dropout resid_pdrop embd_pdrop
        output_attentions output_hidden_states return_dict problem_type id2label label2id
        chunk_size_feed_forward is_encoder_decoder finetuning_task task_specific_params
        gradient_checkpointing max_length name_or_path auto_map custom_pipelines
        cache_implementation num_labels tokenizer_class model_max_length
        unsloth_fixed unsloth_version""".split()
    )
    # How to generate is generation_config.json's; what older files say about it here, transformers
    # drops too.
    GENERATION_KEYS = frozenset(
        """assistant_confidence_threshold assistant_lookbehind bad_words_ids begin_suppress_tokens
        diversity_penalty do_sample early_stopping encoder_no_repeat_ngram_size
        encoder_repetition_penalty epsilon_cutoff eta_cutoff exponential_decay_length_penalty
        forced_bos_token_id forced_eos_token_id length_penalty min_length no_repeat_ngram_size
        num_assistant_tokens num_assistant_tokens_schedule num_beam_groups num_beams
        num_return_sequences output_scores prefix remove_invalid_values repetition_penalty
        return_dict_in_generate suppress_tokens target_lookbehind temperature top_k top_p
        typical_p""".split()
    )

    def __init__(self, source: str, config: Mapping[str, Any]) -> None:
        self.source = source
        self._config = config
        self._read: set[str] = set()
        self._ignored: set[str] = set()
        self._renamed: Mapping[str, str] = {}

    def get(self, key: str, default: Any = None) -> Any:
        """The value of `key`; the default where it is absent or null."""
        value = self.get_or_null(key, None)
        return default if value is None else value

    def get_or_null(self, key: str, default: Any) -> Any:
        """The value of `key`, None where it is null; the default only where it is absent."""
        self._read.add(key)
        other = self._renamed.get(key, key)
        self._read.add(other)
        return self._config.get(key, self._config.get(other, default))

    def ignore(self, *keys: str) -> None:
        """Lets keys through that do not change what a trained model computes."""
        self._read.update(keys)
        self._ignored.update(keys)

    def was_read(self, key: str) -> bool:
        return key in self._read

    def is_ignored(self, key: str) -> bool:
        return key in self._ignored

    def renamed(self, keys: Mapping[str, str]) -> ConfigReader:
        """A reader of the same config that takes `keys`' values for what has no entry under their
        keys."""
        reader = ConfigReader(self.source, self._config)
        reader._read, reader._ignored = self._read, self._ignored
        reader._renamed = keys
        return reader

    def unread_keys(self) -> list[str]:
        return sorted(
            key
            for key, value in self._config.items()
            if key not in self._read
            and key not in self.COMMON_KEYS | self.GENERATION_KEYS
            and not key.startswith(("_", "transformers."))
            and value not in (None, False, {}, [])
        )


@dataclass(frozen=True)
class TensorPlan:
    """One tensor of the bundle: which tensors of the checkpoint it is made of.

    `sources` are (name, shape) pairs, concatenated along the outputs. A tensor with a format is a
    weight [out_features, in_features], packed for pinfer::linear; others are stored as float32.
    """

    name: str
    sources: tuple[tuple[str, tuple[int, ...]], ...]
    format: WeightFormat | None
    num_experts: int = 0  # so many weights, each of an equal part of the sources, are stacked
    transposed: bool = False  # the sources are [in_features, out_features]
    by_head: int = 0  # so many heads, each with its query, key and value rows
    added: float = 0.0  # to every number

    @property
    def shape(self) -> tuple[int, ...]:
        """Of what the sources make together, of one expert where there are several."""
        parts = self.sources[: len(self.sources) // max(1, self.num_experts)]
        shapes = [shape[::-1] if self.transposed else shape for _, shape in parts]
        return (sum(shape[0] for shape in shapes), *shapes[0][1:])
