"""Reads a GGUF file into a Checkpoint: the model of the llama architecture, the text of any.

Names and settings become those of a Hugging Face directory, so that everything behind this file
sees one spelling. Tensors are read one at a time, quantised ones in floats or as they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGMLQuantizationType, GGUFReader, dequantize

from pinfer.export import gguf_blocks
from pinfer.export.checkpoint import Checkpoint, NoTensors
from pinfer.export.errors import ExportError
from pinfer.export.model_dir import find_licences
from pinfer.export.tokenizer_gguf import tokenizer_from_gguf
from pinfer.runtime.weight_format import QuantizedWeight

ARCHITECTURES = {"llama": "LlamaForCausalLM"}
TENSOR_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
LAYER_TENSOR_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
# Ends of a text, of a turn and of a message; a request ends at any of them.
END_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")
SPECIAL_TOKEN_KEYS = {
    "bos": "bos_token",
    "eos": "eos_token",
    "unknown": "unk_token",
    "padding": "pad_token",
    "seperator": "sep_token",  # as GGUF spells it
    "cls": "cls_token",
    "mask": "mask_token",
}
TEMPLATE_KEY = "tokenizer.chat_template"
ROPE_FACTORS = "rope_freqs.weight"  # Llama 3's per-frequency divisors
PLAIN_TYPES = {
    GGMLQuantizationType.F32: "float32",
    GGMLQuantizationType.F16: "float16",
    GGMLQuantizationType.BF16: "bfloat16",
}


class GgufSource:
    """The tensors of a GGUF file under Hugging Face names (a TensorSource)."""

    def __init__(self, reader: GGUFReader, num_heads: int, num_kv_heads: int) -> None:
        self._heads = {"q_proj": num_heads, "k_proj": num_kv_heads}
        self._tensors = {_hugging_face_name(t.name): t for t in reader.tensors}

    def names(self) -> Iterable[str]:
        return self._tensors.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(int(n) for n in reversed(self._tensors[name].shape))

    def load(self, name: str) -> torch.Tensor:
        tensor = self._tensors[name]
        values = dequantize(tensor.data, tensor.tensor_type)
        loaded = torch.from_numpy(np.array(values, dtype=np.float32))
        return self._in_order(name, loaded.reshape(self.shape(name)))

    def load_quantized(self, name: str) -> QuantizedWeight | None:
        tensor = self._tensors[name]
        if tensor.tensor_type not in gguf_blocks.READERS:
            return None
        stored = gguf_blocks.read(tensor.tensor_type, tensor.data)
        return QuantizedWeight(
            self._in_order(name, stored.numbers),
            self._in_order(name, stored.scales),
            None if stored.minima is None else self._in_order(name, stored.minima),
            stored.group_size,
        )

    def is_quantized(self, name: str) -> bool:
        return self._tensors[name].tensor_type not in PLAIN_TYPES

    def group_size(self) -> int | None:
        kinds = {t.tensor_type for t in self._tensors.values()}
        return gguf_blocks.BLOCK if kinds & gguf_blocks.READERS.keys() else None

    def _in_order(self, name: str, rows: torch.Tensor) -> torch.Tensor:
        """Rows of a tensor, or of what belongs to each, in the order of Hugging Face."""
        projection = name.split(".")[-2]
        if projection in self._heads:
            return _halves_from_pairs(rows, self._heads[projection])
        return rows

    def dtype(self) -> str:
        kinds = {t.tensor_type for t in self._tensors.values() if len(t.shape) > 1}
        if len(kinds) == 1:
            return PLAIN_TYPES.get(kinds.pop(), "quantized")
        return "quantized"


def _hugging_face_name(name: str) -> str:
    if name in TENSOR_NAMES:
        return TENSOR_NAMES[name]
    parts = name.split(".")
    if len(parts) == 4 and parts[0] == "blk" and parts[2] in LAYER_TENSOR_NAMES:
        return f"model.layers.{parts[1]}.{LAYER_TENSOR_NAMES[parts[2]]}.{parts[3]}"
    return name  # the family's check of the tensor set names it


def _halves_from_pairs(weight: torch.Tensor, num_heads: int) -> torch.Tensor:
    """GGUF stores the rows of a rotated head as pairs; the halves are what rotary here expects."""
    head_dim = weight.shape[0] // num_heads
    return (
        weight.reshape(num_heads, head_dim // 2, 2, *weight.shape[1:])
        .transpose(1, 2)
        .reshape(weight.shape)
        .contiguous()
    )


def read_gguf(path: Path, text_only: bool = False) -> Checkpoint:
    """The checkpoint in a GGUF file. ExportError for other architectures or missing metadata; the
    text alone can be had of any architecture."""
    try:
        reader = GGUFReader(path)
    except Exception as error:  # the package raises many kinds for a damaged file
        raise ExportError(f"{path}: not a readable GGUF file: {error}") from error
    metadata = {name: field.contents() for name, field in reader.fields.items()}
    if text_only:
        config, tensors = _text_config(metadata), None
    else:
        config, tensors = _model(path, reader, metadata)
    return Checkpoint(
        name=path.stem,
        source=str(path),
        config=config,
        tensors=tensors or NoTensors(),
        dtype="" if tensors is None else tensors.dtype(),
        tokenizer=tokenizer_from_gguf(metadata),
        tokenizer_config=_tokenizer_config(metadata),
        generation_config={"eos_token_id": _end_ids(metadata)},
        chat_template=_chat_template(metadata),
        licence_files=find_licences(path.parent),
    )


def _model(
    path: Path, reader: GGUFReader, metadata: dict[str, Any]
) -> tuple[dict[str, Any], GgufSource]:
    config = _config(path, metadata)
    if any(t.name == ROPE_FACTORS for t in reader.tensors):
        raise ExportError(f"{path}: tensor {ROPE_FACTORS!r} (scaled rotary) is not supported")
    config["tie_word_embeddings"] = all(t.name != "output.weight" for t in reader.tensors)
    tensors = GgufSource(reader, config["num_attention_heads"], config["num_key_value_heads"])
    return config, tensors


def _text_config(metadata: dict[str, Any]) -> dict[str, Any]:
    """What the text part reads of config.json."""
    return {
        "bos_token_id": metadata.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": metadata.get("tokenizer.ggml.eos_token_id"),
    }


def _chat_template(metadata: dict[str, Any]) -> str | list[dict[str, str]] | None:
    """One template, or all of them with their names."""
    main = metadata.get(TEMPLATE_KEY)
    named = {
        key.removeprefix(f"{TEMPLATE_KEY}."): template
        for key, template in metadata.items()
        if key.startswith(f"{TEMPLATE_KEY}.")
    }
    for name, template in {"": main or "", **named}.items():
        if not isinstance(template, str):
            key = f"{TEMPLATE_KEY}.{name}".rstrip(".")
            raise ExportError(f"GGUF: {key}: expected text, found {template!r}")
    if not named:
        return main
    listed = [{"name": name, "template": template} for name, template in sorted(named.items())]
    return listed if main is None else [{"name": "default", "template": main}, *listed]


def _config(path: Path, metadata: dict[str, Any]) -> dict[str, Any]:
    architecture = metadata.get("general.architecture")
    if architecture not in ARCHITECTURES:
        raise ExportError(
            f"{path}: general.architecture is {architecture!r}, expected one of"
            f" {', '.join(sorted(ARCHITECTURES))}"
        )

    def setting(key: str, default: Any = None) -> Any:
        value = metadata.get(f"{architecture}.{key}", default)
        if value is None:
            raise ExportError(f"{path}: metadata {architecture}.{key} is missing")
        return value

    for key in metadata:
        if key.startswith(f"{architecture}.rope.scaling.") and metadata[key] not in ("none", None):
            raise ExportError(f"{path}: metadata {key} (scaled rotary) is not supported")
    num_heads = setting("attention.head_count")
    head_dim = setting("attention.key_length", setting("embedding_length") // num_heads)
    rotary_dim = setting("rope.dimension_count", head_dim)
    if rotary_dim != head_dim:
        raise ExportError(
            f"{path}: rope.dimension_count is {rotary_dim}, expected the head size {head_dim}"
        )
    vocabulary = metadata.get("tokenizer.ggml.tokens")
    if not vocabulary:
        raise ExportError(f"{path}: metadata tokenizer.ggml.tokens is missing")
    return {
        "architectures": [ARCHITECTURES[architecture]],
        "model_type": architecture,
        "num_hidden_layers": setting("block_count"),
        "max_position_embeddings": setting("context_length"),
        "hidden_size": setting("embedding_length"),
        "intermediate_size": setting("feed_forward_length"),
        "num_attention_heads": num_heads,
        "num_key_value_heads": setting("attention.head_count_kv", num_heads),
        "head_dim": head_dim,
        "rms_norm_eps": setting("attention.layer_norm_rms_epsilon"),
        "rope_theta": setting("rope.freq_base", 10000.0),
        "vocab_size": setting("vocab_size", len(vocabulary)),
        "hidden_act": "silu",
        **_text_config(metadata),
    }


def _end_ids(metadata: dict[str, Any]) -> list[Any]:
    found = [metadata.get(f"tokenizer.ggml.{key}") for key in END_KEYS]
    return [value for value in found if value is not None]


def _tokenizer_config(metadata: dict[str, Any]) -> dict[str, Any]:
    tokens = metadata.get("tokenizer.ggml.tokens") or []
    config: dict[str, Any] = {}
    for kind, name in SPECIAL_TOKEN_KEYS.items():
        index = metadata.get(f"tokenizer.ggml.{kind}_token_id")
        if index is not None and 0 <= index < len(tokens):
            config[name] = tokens[index]
    return config
