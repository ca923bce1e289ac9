"""GGUF files of Hugging Face checkpoints, as llama.cpp's converter writes them.

Nothing of the exporter is used here: names of tensors come from the gguf package, and what the
converter does to each family's weights is written down again.
"""

import json
import math
import re
from pathlib import Path

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Kind
from safetensors.torch import load_file

# config.json's model_type: the architecture's name.
ARCHITECTURES = {
    "llama": "llama", "mistral": "llama", "mixtral": "llama", "qwen2": "qwen2",
    "qwen2_moe": "qwen2moe", "qwen3": "qwen3", "qwen3_moe": "qwen3moe", "gemma": "gemma",
    "gemma2": "gemma2", "gemma3_text": "gemma3", "phi3": "phi3", "starcoder2": "starcoder2",
    "gpt2": "gpt2", "gpt_neox": "gptneox", "olmo2": "olmo2", "granite": "granite",
    "smollm3": "smollm3",
}  # fmt: skip
PERMUTED = {"llama", "granite", "smollm3"}
EXPERT = re.compile(r"(.*\.experts)\.(\d+)\.(\w+)\.weight")
TOKENS = ["<unk>", "<s>", "</s>"]
KEYS = {
    "num_hidden_layers": "block_count", "n_layer": "block_count",
    "max_position_embeddings": "context_length", "n_positions": "context_length",
    "hidden_size": "embedding_length", "n_embd": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_attention_heads": "attention.head_count", "n_head": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "moe_intermediate_size": "expert_feed_forward_length",
    "shared_expert_intermediate_size": "expert_shared_feed_forward_length",
    "num_experts": "expert_count", "num_local_experts": "expert_count",
    "num_experts_per_tok": "expert_used_count",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "norm_epsilon": "attention.layer_norm_epsilon",
    "layer_norm_eps": "attention.layer_norm_epsilon",
    "layer_norm_epsilon": "attention.layer_norm_epsilon",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "use_parallel_residual": "use_parallel_residual",
    "embedding_multiplier": "embedding_scale", "residual_multiplier": "residual_scale",
    "attention_multiplier": "attention.scale", "logits_scaling": "logit_scale",
}  # fmt: skip
HAVE_WINDOW = {"gemma2", "gemma3", "phi3"}


def write_gguf(checkpoint: Path, target: Path, kind=Kind.F32, metadata=None) -> Path:
    """`kind`: of matrices whose rows have a multiple of its block; others are F32. `metadata`: keys
    of the architecture's namespace that are changed, or left out where None."""
    config = json.loads((checkpoint / "config.json").read_text())
    architecture = ARCHITECTURES[config["model_type"]]
    writer = gguf.GGUFWriter(target, architecture)
    writer.add_name(checkpoint.name)
    for key, value in {**settings(config, architecture), **(metadata or {})}.items():
        add(writer, f"{architecture}.{key}", value)
    vocabulary(writer, config["vocab_size"])
    tensors = {**rotary_tensors(config, architecture)}
    for name, values in layer_tensors(load_file(checkpoint / "model.safetensors")).items():
        tensors |= converted(name, values, config, architecture)
    for name, values in tensors.items():
        data = values.numpy().astype(np.float32)
        fits = data.ndim > 1 and data.shape[-1] % gguf.GGML_QUANT_SIZES[kind][0] == 0
        this = kind if fits and kind != Kind.F32 else Kind.F32
        writer.add_tensor(name, gguf.quantize(data, this), raw_dtype=this)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


def add(writer, key, value) -> None:
    if value is None:
        return
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)


def vocabulary(writer, size: int) -> None:
    tokens = [*TOKENS, *(f"▁{i}" for i in range(len(TOKENS), size))]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([-float(i) for i in range(size)])
    writer.add_token_types([2, 3, 3, *[1] * (size - 3)])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)


def settings(config, architecture):
    found = {theirs: config[ours] for ours, theirs in KEYS.items() if config.get(ours) is not None}
    for key in ("attention.scale", "embedding_scale", "residual_scale", "logit_scale"):
        if key in found:
            found[key] = float(found[key])
    if architecture in HAVE_WINDOW:
        found["attention.sliding_window"] = config.get("sliding_window") or 0
    if architecture == "gpt2":
        return {**found, "feed_forward_length": config.get("n_inner") or 4 * config["n_embd"]}
    if not architecture.startswith("qwen") or "moe" not in architecture:
        for key in ("expert_feed_forward_length",):
            found.pop(key, None)
    heads = config["num_attention_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    if config.get("head_dim"):
        found |= {"attention.key_length": head_dim, "attention.value_length": head_dim}
    rope = config.get("rope_parameters") or {}
    local = rope.get("sliding_attention")
    rope = rope.get("full_attention", rope)
    partial = rope.get("partial_rotary_factor", config.get("partial_rotary_factor") or 1.0)
    found |= {
        "rope.dimension_count": int(head_dim * partial),
        "rope.freq_base": float(rope["rope_theta"]),
    }
    if local and local["rope_theta"] != 10000.0:
        found["rope.freq_base_swa"] = float(local["rope_theta"])
    original = rope.get("original_max_position_embeddings")
    if rope["rope_type"] == "linear":
        found |= {"rope.scaling.type": "linear", "rope.scaling.factor": float(rope["factor"])}
    elif rope["rope_type"] == "yarn":
        found |= {"rope.scaling.type": "yarn", "rope.scaling.factor": float(rope["factor"]),
                  "rope.scaling.original_context_length": original}  # fmt: skip
    elif rope["rope_type"] == "longrope":
        factor = config["max_position_embeddings"] / original
        scale = math.sqrt(1 + math.log(factor) / math.log(original))
        found |= {"rope.scaling.type": "longrope", "rope.scaling.attn_factor": max(scale, 1.0)}
    if architecture == "phi3":
        found["rope.scaling.original_context_length"] = (
            original or config["max_position_embeddings"]
        )
    return found


def rotary_tensors(config, architecture):
    rope = config.get("rope_parameters") or {}
    rope = rope.get("full_attention", rope)
    if rope.get("rope_type") == "longrope":
        return {f"rope_factors_{which}.weight": torch.tensor(rope[f"{which}_factor"])
                for which in ("long", "short")}  # fmt: skip
    if rope.get("rope_type") != "llama3":
        return {}
    dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    factors = []
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    length = rope["original_max_position_embeddings"]
    for i in range(0, dim, 2):
        wavelength = 2 * math.pi * rope["rope_theta"] ** (i / dim)
        if wavelength < length / high:
            factors.append(1.0)
        elif wavelength > length / low:
            factors.append(rope["factor"])
        else:
            smooth = (length / wavelength - low) / (high - low)
            factors.append(1 / ((1 - smooth) / rope["factor"] + smooth))
    return {"rope_freqs.weight": torch.tensor(factors)}


def layer_tensors(tensors):
    """With the experts of a layer stacked."""
    stacked, found = {}, {}
    for name, values in tensors.items():
        if match := EXPERT.fullmatch(name):
            stacked.setdefault(f"{match[1]}.{match[3]}.weight", {})[int(match[2])] = values
        else:
            found[name] = values
    for name, experts in stacked.items():
        found[name] = torch.stack([experts[i] for i in sorted(experts)])
    return found


def converted(name, values, config, architecture):
    if name == "lm_head.weight" and architecture.startswith("gemma"):
        if architecture != "gemma3" or config.get("tie_word_embeddings", True):
            return {}
    arch = next(k for k, v in gguf.MODEL_ARCH_NAMES.items() if v == architecture)
    layers = config.get("num_hidden_layers") or config["n_layer"]
    known = gguf.get_tensor_name_map(arch, layers)
    target = known.get_name(name, try_suffixes=(".weight", ".bias"))
    assert target is not None, name
    heads = config.get("num_attention_heads")
    if architecture in PERMUTED and "self_attn.q_proj" in name:
        values = permuted(values, heads)
    elif architecture in PERMUTED and "self_attn.k_proj" in name:
        values = permuted(values, config["num_key_value_heads"])
    elif architecture.startswith("gemma") and name.endswith("norm.weight"):
        values = values + 1
    elif architecture == "gpt2" and re.search(r"\.(c_attn|c_proj|c_fc)\.weight$", name):
        values = values.T.contiguous()
    elif architecture == "gptneox" and "query_key_value" in name:
        dim = config["hidden_size"] // heads
        by_head = values.reshape(heads, 3, dim, *values.shape[1:])
        values = torch.cat([by_head[:, i].flatten(0, 1) for i in range(3)])
    elif name.endswith("shared_expert_gate.weight"):
        values = values.squeeze()
    return {target: values}


def permuted(weights, num_heads):
    halves = weights.reshape(num_heads, 2, weights.shape[0] // num_heads // 2, *weights.shape[1:])
    return halves.swapaxes(1, 2).reshape(weights.shape)
