"""Tiny random checkpoints of every model family, with awkward sizes and every switch that changes
what is computed. VARIANTS: family -> variant -> what it changes of the family's base."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tiny_models
import torch
import transformers

USUAL = {
    "vocab_size": 301,
    "hidden_size": 64,
    "intermediate_size": 101,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": None,
}
ROPE = {"rope_theta": 10000.0}
LLAMA3 = {
    **ROPE,
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {**ROPE, "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
LINEAR = {**ROPE, "rope_type": "linear", "factor": 3.0}
EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 37}
ODD_HEADS = {"hidden_size": 66, "num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 10}


@dataclass(frozen=True)
class Family:
    config: str  # transformers' config class; the model's name follows from it
    base: dict[str, Any]
    variants: dict[str, dict[str, Any]]
    model: str = ""
    without: frozenset[str] = frozenset()  # keys of USUAL that the family does not have


FAMILIES = {
    "llama": Family("LlamaConfig", {}, {
        "plain": {},
        "llama3_biases_tied": {"rope_parameters": LLAMA3, "attention_bias": True, "mlp_bias": True,
                               "tie_word_embeddings": True},
        "yarn_odd_heads": {"rope_parameters": YARN, **ODD_HEADS},
        "linear_gelu": {"rope_parameters": LINEAR, "hidden_act": "gelu"},
        "yarn_scaled": {"rope_parameters": {**YARN, "mscale": 1.0, "mscale_all_dim": 0.8,
                                            "beta_fast": 16, "beta_slow": 2, "truncate": False}},
        "yarn_by_default": {"rope_parameters": {**ROPE, "rope_type": "yarn", "factor": 2.0}},
    }),
    "mistral": Family("MistralConfig", {}, {
        "window": {"sliding_window": 16},
        "no_window": {"sliding_window": None, "head_dim": 24},
        "window_odd": {"sliding_window": 33, **ODD_HEADS, "num_hidden_layers": 3},
    }),
    "mixtral": Family("MixtralConfig", {"num_local_experts": 5}, {
        "plain": {},
        "window": {"sliding_window": 16, "num_experts_per_tok": 3},
        "odd_tied": {**ODD_HEADS, "tie_word_embeddings": True, "num_experts_per_tok": 1},
    }),
    "qwen2": Family("Qwen2Config", {}, {
        "plain": {"use_sliding_window": False, "sliding_window": 16},
        "late_window": {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 1,
                        "num_hidden_layers": 3},
        "yarn_tied": {"rope_parameters": YARN, "tie_word_embeddings": True, "hidden_size": 56},
    }),
    "qwen2_moe": Family("Qwen2MoeConfig", {**EXPERTS, "shared_expert_intermediate_size": 45}, {
        "plain": {},
        "sparse_step_window": {"decoder_sparse_step": 2, "num_hidden_layers": 4,
                               "use_sliding_window": True, "sliding_window": 16,
                               "max_window_layers": 2, "norm_topk_prob": True},
        "mlp_only_no_bias": {"mlp_only_layers": [1], "qkv_bias": False, "num_hidden_layers": 3,
                             "tie_word_embeddings": True},
    }),
    "qwen3": Family("Qwen3Config", {"head_dim": 24}, {
        "plain": {},
        "biases_tied": {"attention_bias": True, "tie_word_embeddings": True},
        "window": {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 1,
                   **ODD_HEADS},
    }),
    "qwen3_moe": Family("Qwen3MoeConfig", {**EXPERTS, "head_dim": 24}, {
        "plain": {},
        "normalised_window": {"norm_topk_prob": True, "use_sliding_window": True,
                              "sliding_window": 16, "attention_bias": True},
        "sparse_step": {"decoder_sparse_step": 2, "mlp_only_layers": [3], "num_hidden_layers": 4,
                        "tie_word_embeddings": True},
    }),
    "gemma": Family("GemmaConfig", {"head_dim": 32}, {
        "plain": {},
        "one_kv_head_bias": {"num_key_value_heads": 1, "attention_bias": True, "head_dim": 18},
        "gelu_untied": {"hidden_act": "gelu", "tie_word_embeddings": False},
    }),
    "gemma2": Family("Gemma2Config", {"head_dim": 32, "sliding_window": 16}, {
        "plain": {"num_hidden_layers": 3},
        "no_caps": {"attn_logit_softcapping": None, "final_logit_softcapping": None,
                    "query_pre_attn_scalar": 100},
        "low_caps_types": {"attn_logit_softcapping": 3.0, "final_logit_softcapping": 5.0,
                           "layer_types": ["full_attention", "sliding_attention"], "head_dim": 18},
    }),
    "gemma3": Family("Gemma3TextConfig", {"head_dim": 32, "sliding_window": 16}, {
        "plain": {"num_hidden_layers": 7},
        "linear_global": {"num_hidden_layers": 3, "layer_types": [
            "sliding_attention", "full_attention", "sliding_attention"],
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                "sliding_attention": {"rope_type": "default", "rope_theta": 5000.0}},
            "query_pre_attn_scalar": 48},
        "caps_bias": {"final_logit_softcapping": 4.0,
                      "attention_bias": True, "head_dim": 18,
                      "layer_types": ["full_attention", "sliding_attention"]},
    }, "Gemma3ForCausalLM"),
    "phi3": Family("Phi3Config", {}, {
        "plain": {},
        "partial_window": {"sliding_window": 16, "rope_parameters": {
            **ROPE, "rope_type": "default", "partial_rotary_factor": 0.75}},
        "longrope": {"original_max_position_embeddings": 64, "rope_parameters": {
            **ROPE, "rope_type": "longrope", "short_factor": [1.0 + i / 9 for i in range(8)],
            "long_factor": [1.5 + i for i in range(8)]}},
    }),
    "smollm3": Family("SmolLM3Config", {}, {
        "plain": {"num_hidden_layers": 5},
        "listed": {"no_rope_layers": [0, 1], "attention_bias": True, "mlp_bias": True,
                   "tie_word_embeddings": False},
        "window": {"use_sliding_window": True, "sliding_window": 16, "no_rope_layer_interval": 2},
    }),
    "olmo2": Family("Olmo2Config", {}, {
        "plain": {},
        "bias_tied": {"attention_bias": True, "tie_word_embeddings": True},
        "yarn_odd": {"rope_parameters": YARN, "hidden_size": 60, "num_attention_heads": 5,
                     "num_key_value_heads": 5},
    }),
    "granite": Family("GraniteConfig", {
        "embedding_multiplier": 12.0, "logits_scaling": 8.0, "residual_multiplier": 0.22,
        "attention_multiplier": 0.015625}, {
        "plain": {},
        "biases": {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
        "other_multipliers": {"residual_multiplier": 1.5, "attention_multiplier": 0.3,
                              "embedding_multiplier": 1.0, "logits_scaling": 0.5},
    }),
    "starcoder2": Family("Starcoder2Config", {}, {
        "plain": {},
        "window_no_bias": {"sliding_window": 16, "use_bias": False},
        "untied_gelu": {"tie_word_embeddings": False, "hidden_act": "gelu", "norm_epsilon": 1e-3},
    }),
    "gpt2": Family("GPT2Config", {"n_embd": 64, "n_head": 4, "n_layer": 2, "n_positions": 256}, {
        "plain": {},
        "inner_untied": {"n_inner": 101, "tie_word_embeddings": False,
                         "activation_function": "relu"},
        "unscaled": {"scale_attn_weights": False, "n_embd": 56, "layer_norm_epsilon": 1e-3},
    }, "GPT2LMHeadModel", frozenset(USUAL) - {"vocab_size", "bos_token_id", "eos_token_id"}),
    "gpt_neox": Family("GPTNeoXConfig", {}, {
        "plain": {"hidden_size": 128},
        "serial": {"use_parallel_residual": False, "attention_bias": False,
                   "tie_word_embeddings": True},
        "rotated_whole": {"rope_parameters": {**ROPE, "partial_rotary_factor": 1.0,
                                              "rope_type": "default"}},
    }, without=frozenset({"num_key_value_heads"})),
}  # fmt: skip
# One model of each layer structure.
STRUCTURES = {
    ("llama", "llama3_biases_tied"),
    ("mixtral", "window"),
    ("qwen2", "late_window"),
    ("qwen2_moe", "sparse_step_window"),
    ("qwen3", "biases_tied"),
    ("gemma2", "plain"),
    ("gemma3", "linear_global"),
    ("phi3", "longrope"),
    ("smollm3", "plain"),
    ("olmo2", "plain"),
    ("granite", "plain"),
    ("starcoder2", "plain"),
    ("gpt2", "plain"),
    ("gpt_neox", "plain"),
}
CASES = [(family, variant) for family, entry in FAMILIES.items() for variant in entry.variants]


def make_checkpoint(family: str, variant: str, folder: Path) -> Path:
    """The checkpoint in folder/family-variant, float32, the same numbers every time."""
    name = f"{family}-{variant}"
    target = folder / name
    if (target / "tokenizer_config.json").is_file():
        return target
    entry = FAMILIES[family]
    usual = {k: v for k, v in USUAL.items() if k not in entry.without}
    config = getattr(transformers, entry.config)(
        **{**usual, **entry.base, **entry.variants[variant]}
    )
    name_of_model = entry.model or entry.config.replace("Config", "ForCausalLM")
    torch.manual_seed(int(hashlib.sha256(name.encode()).hexdigest()[:8], 16))
    model = getattr(transformers, name_of_model)(config).eval()
    tiny_models.save_random(model, target, USUAL["vocab_size"])
    return target


def reference(checkpoint: Path) -> transformers.PreTrainedModel:
    return transformers.AutoModelForCausalLM.from_pretrained(
        checkpoint,
        dtype=torch.float32,
        attn_implementation="eager",
        experts_implementation="eager",
    ).eval()
