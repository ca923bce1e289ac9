"""Tiny random Llama checkpoints made on the fly, and bundles exported from them."""

import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

BASE = {
    "vocab_size": 300,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
# What each variant changes; together they cover what the Llama family's settings may be.
VARIANTS = {
    "tied": {},
    "gqa3_untied_head_dim": {
        "hidden_size": 66,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 24,
        "tie_word_embeddings": False,
    },
    "gqa8_biases_odd": {
        "hidden_size": 72,
        "num_attention_heads": 8,
        "num_key_value_heads": 1,
        "head_dim": 10,
        "intermediate_size": 101,
        "vocab_size": 301,
        "attention_bias": True,
        "mlp_bias": True,
    },
    "odd_hidden_llama3_rope": {
        "hidden_size": 65,
        "num_attention_heads": 5,
        "num_key_value_heads": 1,
        "head_dim": 12,
        "num_hidden_layers": 3,
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    },
}


def tokenizer_json(vocab_size: int = 0) -> str:
    """A byte-level tokenizer of 256 bytes and three special tokens, and of others that no text has
    up to vocab_size."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {"<unk>": 0, "<s>": 1, "</s>": 2}
    vocabulary |= {character: i + 3 for i, character in enumerate(alphabet)}
    vocabulary |= {f"unused{i}": i for i in range(len(vocabulary), vocab_size)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    return tokenizer.to_str()


def make_checkpoint(name: str, folder: Path) -> Path:
    """The checkpoint of a variant in folder/name, float32, the same numbers every time."""
    target = folder / name
    if (target / "model.safetensors").is_file():
        return target
    settings = {**BASE, **VARIANTS[name]}
    torch.manual_seed(int(hashlib.sha256(name.encode()).hexdigest()[:8], 16))
    model = LlamaForCausalLM(LlamaConfig(**settings)).eval()
    save_random(model, target)
    return target


def save_random(model: PreTrainedModel, target: Path, vocab_size: int = 0) -> None:
    """Fills the model with random numbers and writes it, with a tokenizer, to `target`."""
    with torch.no_grad():
        for parameter in model.parameters():
            # Larger than the default, so that logits differ by more than rounding.
            if parameter.dim() > 1:
                parameter.normal_(std=0.15)
            else:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(target, safe_serialization=True)
    (target / "tokenizer.json").write_text(tokenizer_json(vocab_size))
    (target / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>"}))


def reference(checkpoint: Path) -> LlamaForCausalLM:
    return LlamaForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).eval()


def export(checkpoint: Path, bundle: Path, *arguments: str) -> None:
    """Runs pinfer-export; AssertionError with its messages if it fails."""
    command = [Path(sys.executable).parent / "pinfer-export", checkpoint, "-o", bundle]
    result = subprocess.run([*command, *arguments], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def machine_paths_in(bundle: Path) -> list[str]:
    """Files of a bundle that name where this Python, this project or scratch files stand."""
    places = {sys.prefix, str(Path(torch.__file__).parent), str(Path(__file__).parent.parent)}
    marks = [f"{place}/".encode() for place in (*places, tempfile.gettempdir())]
    return [
        f"{path.relative_to(bundle)}: {mark.decode()}"
        for path in sorted(bundle.rglob("*"))
        if path.is_file()
        for mark in marks
        if mark in path.read_bytes()
    ]
