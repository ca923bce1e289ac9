"""The architectures that GGUF files name, and their settings in the spelling of config.json.

Sources of each entry: what llama.cpp's converter writes, and what its reader assumes where a file
says nothing. One entry per architecture; a family's own defaults stand in models/.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gguf import ReaderTensor

from pinfer.export.errors import ExportError
from pinfer.export.gguf_metadata import Metadata
from pinfer.export.gguf_rotary import rotary_config
from pinfer.export.models import (
    gemma,
    gemma2,
    gpt2,
    gpt_neox,
    mixtral,
    olmo2,
    phi3,
    starcoder2,
)
from pinfer.export.models.spec import TensorNames

Config = dict[str, Any]
Tensors = Mapping[str, ReaderTensor]


@dataclass(frozen=True)
class GgufArchitecture:
    model: str  # as config.json's architectures name it
    names: TensorNames = TensorNames()  # noqa: RUF009  (frozen)
    keys: Mapping[str, str] = field(default_factory=dict)  # config.json's, beside COMMON_KEYS
    norm_eps: str = "rms_norm_eps"  # config.json's key
    norm: str = "rms"  # or "layer"
    # Switches of config.json, each by the module whose bias shows it.
    biases: Mapping[str, str] = field(default_factory=dict)
    rotary: str = "whole"  # of each head; "partial": as the file says; "none"
    # Rows of queries and keys are stored in pairs that rotate together, not in halves.
    in_pairs: bool = False
    more: Callable[[Metadata, Config], Config] = lambda *_: {}


COMMON_KEYS = {
    "block_count": "num_hidden_layers",
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
}
EPSILON = {
    "rms": "attention.layer_norm_rms_epsilon",
    "layer": "attention.layer_norm_epsilon",
}
EXPERT_KEYS = {
    "expert_count": "num_experts",
    "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "moe_intermediate_size",
}
ATTENTION_BIAS = {"attention_bias": "attn_q"}
LAYER_BIASES = {**ATTENTION_BIAS, "mlp_bias": "ffn_up"}
# Gemmas of so many layers scale attention by the hidden size of a head, not by the head's own.
GEMMA_27B_LAYERS = (46, 62)


def _gemma_scale(metadata: Metadata, config: Config) -> Config:
    """The file leaves it out; llama.cpp tells it from the number of layers."""
    size = config["head_dim"]
    if config["num_hidden_layers"] in GEMMA_27B_LAYERS:
        size = config["hidden_size"] / config["num_attention_heads"]
    return {"query_pre_attn_scalar": size}


def _layer_types(metadata: Metadata) -> Config:
    """A pattern is a list of switches, or the number of layers in a period."""
    pattern = metadata.listed("attention.sliding_window_pattern")
    if pattern is None:
        return {}
    if not isinstance(pattern, list):
        return {"sliding_window_pattern": pattern}
    kinds = {True: "sliding_attention", False: "full_attention"}
    return {"layer_types": [kinds[bool(switch)] for switch in pattern]}


def _gemma2(metadata: Metadata, config: Config) -> Config:
    return _gemma_scale(metadata, config) | _layer_types(metadata)


def _gemma3(metadata: Metadata, config: Config) -> Config:
    local = metadata.number("rope.freq_base_swa", 10000.0)
    return _gemma2(metadata, config) | {"rope_local_base_freq": local}


def _phi3(metadata: Metadata, config: Config) -> Config:
    window = metadata.get("attention.sliding_window", 0)
    original = metadata.get("rope.scaling.original_context_length")
    return {
        "sliding_window": window or None,
        "original_max_position_embeddings": original,
    }


def _granite(metadata: Metadata, config: Config) -> Config:
    scale = metadata.number("attention.scale", 0.0)
    return {"attention_multiplier": scale or config["head_dim"] ** -0.5}


def _qwen3_moe(metadata: Metadata, config: Config) -> Config:
    return {"norm_topk_prob": True}


MIXTRAL = GgufArchitecture(
    "MixtralForCausalLM",
    mixtral.NAMES,
    {"expert_count": "num_local_experts", "expert_used_count": "num_experts_per_tok"},
    in_pairs=True,
)
ARCHITECTURES: Mapping[str, GgufArchitecture] = {
    "llama": GgufArchitecture("LlamaForCausalLM", biases=LAYER_BIASES, in_pairs=True),
    "qwen2": GgufArchitecture("Qwen2ForCausalLM"),
    "qwen2moe": GgufArchitecture(
        "Qwen2MoeForCausalLM",
        keys={
            **EXPERT_KEYS,
            "expert_shared_feed_forward_length": "shared_expert_intermediate_size",
        },
        biases={"qkv_bias": "attn_q"},
    ),
    "qwen3": GgufArchitecture("Qwen3ForCausalLM", biases=ATTENTION_BIAS),
    "qwen3moe": GgufArchitecture(
        "Qwen3MoeForCausalLM", keys=EXPERT_KEYS, biases=ATTENTION_BIAS, more=_qwen3_moe
    ),
    "gemma": GgufArchitecture("GemmaForCausalLM", gemma.NAMES, biases=ATTENTION_BIAS),
    "gemma2": GgufArchitecture(
        "Gemma2ForCausalLM",
        gemma2.NAMES,
        {
            "attention.sliding_window": "sliding_window",
            "attn_logit_softcapping": "attn_logit_softcapping",
            "final_logit_softcapping": "final_logit_softcapping",
        },
        biases=ATTENTION_BIAS,
        more=_gemma2,
    ),
    "gemma3": GgufArchitecture(
        "Gemma3ForCausalLM",
        gemma2.NAMES,
        {
            "attention.sliding_window": "sliding_window",
            "final_logit_softcapping": "final_logit_softcapping",
        },
        biases=ATTENTION_BIAS,
        more=_gemma3,
    ),
    "phi3": GgufArchitecture("Phi3ForCausalLM", phi3.NAMES, rotary="partial", more=_phi3),
    "starcoder2": GgufArchitecture(
        "Starcoder2ForCausalLM",
        starcoder2.NAMES,
        norm="layer",
        norm_eps="norm_epsilon",
        biases={"use_bias": "attn_q"},
    ),
    "gpt2": GgufArchitecture(
        "GPT2LMHeadModel",
        gpt2.NAMES,
        norm="layer",
        norm_eps="layer_norm_epsilon",
        rotary="none",
    ),
    "gptneox": GgufArchitecture(
        "GPTNeoXForCausalLM",
        gpt_neox.NAMES,
        {"use_parallel_residual": "use_parallel_residual"},
        norm="layer",
        norm_eps="layer_norm_eps",
        biases={"attention_bias": "attn_qkv"},
        rotary="partial",
    ),
    "olmo2": GgufArchitecture("Olmo2ForCausalLM", olmo2.NAMES, biases=ATTENTION_BIAS),
    "granite": GgufArchitecture(
        "GraniteForCausalLM",
        keys={
            "embedding_scale": "embedding_multiplier",
            "residual_scale": "residual_multiplier",
            "logit_scale": "logits_scaling",
        },
        biases=LAYER_BIASES,
        in_pairs=True,
        more=_granite,
    ),
    "smollm3": GgufArchitecture("SmolLM3ForCausalLM", biases=LAYER_BIASES, in_pairs=True),
}


def find_architecture(source: str, values: Mapping[str, Any]) -> GgufArchitecture:
    name = values.get("general.architecture")
    if name not in ARCHITECTURES:
        raise ExportError(
            f"{source}: general.architecture is {name!r}, expected one of"
            f" {', '.join(sorted(ARCHITECTURES))}"
        )
    kind = values.get("general.type", "model")
    if kind != "model":
        raise ExportError(f"{source}: general.type is {kind!r}, expected 'model'")
    if name == "llama" and values.get("llama.expert_count"):
        return MIXTRAL
    return ARCHITECTURES[name]


def model_config(
    source: str, values: Mapping[str, Any], architecture: GgufArchitecture, tensors: Tensors
) -> Config:
    """config.json's keys for the model. ExportError names a setting that is missing, wrong, or not
    understood."""
    name = values["general.architecture"]
    metadata = Metadata(source, name, values)
    vocabulary = values.get("tokenizer.ggml.tokens")
    if not vocabulary:
        raise ExportError(f"{source}: metadata tokenizer.ggml.tokens is missing")
    config: Config = {
        "architectures": [architecture.model],
        "model_type": name,
        "vocab_size": metadata.integer("vocab_size", len(vocabulary)),
        "tie_word_embeddings": "output.weight" not in tensors,
        **{key: metadata.integer(theirs) for theirs, key in COMMON_KEYS.items()},
        **_heads(metadata),
        architecture.norm_eps: metadata.number(EPSILON[architecture.norm]),
    }
    for theirs, key in architecture.keys.items():
        value = metadata.get(theirs)
        if value is not None:
            config[key] = value
    for key, module in architecture.biases.items():
        config[key] = f"blk.0.{module}.bias" in tensors
    if architecture.rotary != "none":
        partial = architecture.rotary == "partial"
        config |= rotary_config(metadata, tensors, config["head_dim"], partial)
    config |= architecture.more(metadata, config)
    metadata.refuse_unread()
    return config


def _heads(metadata: Metadata) -> Config:
    num_heads = metadata.integer("attention.head_count")
    hidden_size = metadata.integer("embedding_length")
    head_dim = metadata.get("attention.key_length")
    if head_dim is None and hidden_size % num_heads:
        raise metadata.error(
            "embedding_length",
            f"{hidden_size} is not a multiple of the {num_heads} heads, and"
            " attention.key_length is not given",
        )
    head_dim = metadata.integer("attention.key_length", hidden_size // num_heads)
    values = metadata.integer("attention.value_length", head_dim)
    if values != head_dim:
        raise metadata.error("attention.value_length", f"{head_dim} expected, found {values}")
    return {
        "num_attention_heads": num_heads,
        "num_key_value_heads": metadata.integer("attention.head_count_kv", num_heads),
        "head_dim": head_dim,
    }
