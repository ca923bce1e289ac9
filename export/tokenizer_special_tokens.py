"""The named special tokens of a model directory (bos_token, eos_token, ...), as transformers finds
them: chat templates read them, and eos_token is one of the end ids.

They only name tokens: which tokens stand around a text is said by tokenizer.json alone, whatever
`add_bos_token` and `add_eos_token` in tokenizer_config.json say (transformers drops both where
there is a tokenizer.json).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pinfer.export.errors import ExportError

NAMES = (
    "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token",
)  # fmt: skip

_GPT2 = {name: "<|endoftext|>" for name in ("unk_token", "bos_token", "eos_token")}
_QWEN2 = {name: "<|endoftext|>" for name in ("unk_token", "eos_token", "pad_token")}
_LLAMA = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
# What the tokenizer classes of decoder models assume where the files say nothing.
CLASS_DEFAULTS: dict[str, dict[str, str]] = {
    "GPT2Tokenizer": _GPT2,
    "GPTNeoXTokenizer": {**_GPT2, "pad_token": "<|padding|>"},
    "LlamaTokenizer": _LLAMA,
    "GemmaTokenizer": {
        "unk_token": "<unk>", "bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>",
        "mask_token": "<mask>",
    },
    "Qwen2Tokenizer": _QWEN2,
    "Qwen3_5Tokenizer": _QWEN2,
    "CohereTokenizer": {
        "unk_token": "<UNK>", "bos_token": "<BOS_TOKEN>", "eos_token": "<|END_OF_TURN_TOKEN|>",
        "pad_token": "<PAD>", "cls_token": "<CLS>", "sep_token": "<SEP>",
        "mask_token": "<MASK_TOKEN>",
    },
}  # fmt: skip

# The class that transformers uses for a model_type if the files name none.
CLASS_OF_MODEL_TYPE: dict[str, str] = {
    **dict.fromkeys(
        ("codegen", "dbrx", "gpt2", "gpt_neo", "gptj", "jais2", "opt", "phi", "starcoder2"),
        "GPT2Tokenizer",
    ),
    **dict.fromkeys(
        ("falcon_mamba", "gpt_neox", "mamba", "mamba2", "mpt", "olmo", "olmoe", "rwkv", "xlstm"),
        "GPTNeoXTokenizer",
    ),
    **dict.fromkeys(
        ("gemma", "gemma2", "gemma3", "gemma3_text", "gemma3n", "gemma3n_text", "recurrent_gemma"),
        "GemmaTokenizer",
    ),
    **dict.fromkeys(
        ("qwen2", "qwen2_moe", "qwen2_vl", "qwen2_5_vl", "qwen3", "qwen3_moe", "qwen3_next",
         "qwen3_vl", "qwen3_vl_moe"),
        "Qwen2Tokenizer",
    ),
    **dict.fromkeys(
        ("qwen3_5", "qwen3_5_moe", "qwen3_5_moe_text", "qwen3_5_text"), "Qwen3_5Tokenizer"
    ),
    **dict.fromkeys(("cohere", "cohere2"), "CohereTokenizer"),
}  # fmt: skip
# Types whose published files name a wrong class, which transformers does not follow.
CLASS_RULES: frozenset[str] = frozenset(("qwen2", "qwen3_5", "qwen3_5_moe", "qwen3_5_moe_text"))
# Types that transformers reads without any class of their own: there are no defaults.
CLASSLESS: frozenset[str] = frozenset((
    "ernie4_5", "ernie4_5_moe", "flex_olmo", "glm", "glm4", "glm4_moe", "gpt_bigcode", "granite",
    "granitemoe", "granitemoehybrid", "granitemoeshared", "hyperclovax", "internlm2", "internlm3",
    "jamba", "kimi_linear", "mimo_v2_flash", "minicpm3", "minimax_m2", "ministral", "ministral3",
    "mistral", "mistral3", "mixtral", "nemotron", "olmo2", "olmo3", "olmo_hybrid", "persimmon",
    "phi3", "phimoe", "pixtral", "stablelm",
))  # fmt: skip


def named_special_tokens(
    tokenizer_config: Mapping[str, Any],
    special_tokens_map: Mapping[str, Any],
    config: Mapping[str, Any],
    tokenizer: Mapping[str, Any],
    source: str = "",
) -> dict[str, str]:
    """Name to text. The arguments are the files' objects; `source` is for messages."""
    found = _named(tokenizer_config, special_tokens_map, config, tokenizer)
    prefix = f"{source}: " if source else ""
    return {
        name: _text(value, f"{prefix}{where}: {name}")
        for name, (value, where) in found.items()
        if value is not None
    }


def named_special_values(
    tokenizer_config: Mapping[str, Any],
    special_tokens_map: Mapping[str, Any],
    config: Mapping[str, Any],
    tokenizer: Mapping[str, Any],
) -> dict[str, Any]:
    """The same as the files write them, in transformers' order: texts, or objects with flags."""
    found = _named(tokenizer_config, special_tokens_map, config, tokenizer)
    order = [*NAMES, *(name for name in found if name not in NAMES)]
    values = {name: found[name][0] for name in order if name in found}
    return {name: value for name, value in values.items() if value is not None}


def _named(
    tokenizer_config: Mapping[str, Any],
    special_tokens_map: Mapping[str, Any],
    config: Mapping[str, Any],
    tokenizer: Mapping[str, Any],
) -> dict[str, tuple[Any, str]]:
    """Name to (value, where it stands)."""
    found: dict[str, Any] = {
        name: (text, f"class {_class_name(tokenizer_config, config, tokenizer)}")
        for name, text in _class_defaults(tokenizer_config, config, tokenizer).items()
    }
    sources = [("tokenizer_config.json", tokenizer_config)]
    # The map is of old; where tokens are described in tokenizer_config.json, it is not read.
    if "added_tokens_decoder" not in tokenizer_config:
        sources.append(("special_tokens_map.json", special_tokens_map))
    for file, values in sources:
        for name, value in values.items():
            if name in NAMES or (name.endswith("_token") and isinstance(value, str | dict)):
                found[name] = (value, file)
        for key in ("additional_special_tokens", "extra_special_tokens"):
            named = values.get(key)
            if isinstance(named, dict):
                found.update({name: (value, f"{file}: {key}") for name, value in named.items()})
    padding = tokenizer.get("padding")
    # The last resort; GPT2Tokenizer says that it has none.
    if isinstance(padding, Mapping) and "pad_token" in padding and "pad_token" not in found:
        if _class_name(tokenizer_config, config, tokenizer) != "GPT2Tokenizer":
            found["pad_token"] = (padding["pad_token"], "tokenizer.json: padding")
    return found


def token_id(tokenizer: Mapping[str, Any], token: str | None) -> int | None:
    """The id of a token's text in tokenizer.json; None if it has none."""
    if token is None:
        return None
    for added in tokenizer.get("added_tokens") or []:
        if added.get("content") == token:
            return added["id"]
    vocabulary = (tokenizer.get("model") or {}).get("vocab")
    if isinstance(vocabulary, dict):
        return vocabulary.get(token)
    # Unigram: [[token, score], ...]; of a token that stands there twice, the last place counts.
    listed = vocabulary if isinstance(vocabulary, list) else []
    places = [index for index, entry in enumerate(listed) if entry[:1] == [token]]
    return places[-1] if places else None


def _class_defaults(
    tokenizer_config: Mapping[str, Any], config: Mapping[str, Any], tokenizer: Mapping[str, Any]
) -> dict[str, str]:
    name = _class_name(tokenizer_config, config, tokenizer)
    return {} if name is None else CLASS_DEFAULTS.get(name, {})


def _class_name(
    tokenizer_config: Mapping[str, Any], config: Mapping[str, Any], tokenizer: Mapping[str, Any]
) -> str | None:
    """The class that AutoTokenizer takes, if it is one that has defaults of its own."""
    model_type = config.get("model_type")
    by_type = CLASS_OF_MODEL_TYPE.get(model_type) if isinstance(model_type, str) else None
    named = tokenizer_config.get("tokenizer_class") or config.get("tokenizer_class")
    if not isinstance(named, str):
        return by_type
    named = named.removesuffix("Fast")
    if model_type in CLASSLESS:
        return None
    if model_type in CLASS_RULES:
        return by_type
    if named == "LlamaTokenizer" and _has_byte_level(tokenizer):
        return None
    return named


def _has_byte_level(part: Any) -> bool:
    """Whether a component of tokenizer.json is of this type."""
    if isinstance(part, list):
        return any(map(_has_byte_level, part))
    if not isinstance(part, Mapping):
        return False
    if part.get("type") == "ByteLevel":
        return True
    return any(_has_byte_level(value) for key, value in part.items() if key not in _TOKEN_LISTS)


_TOKEN_LISTS = ("vocab", "merges", "added_tokens")


def _text(value: Any, where: str) -> str:
    """A token is written as its text or as an object."""
    text = value.get("content") if isinstance(value, Mapping) else value
    if not isinstance(text, str):
        raise ExportError(f"{where}: expected a token's text, found {value!r}")
    return text
