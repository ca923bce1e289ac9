"""Which family reads which architecture. One file per family; this is the only list of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pinfer.export.checkpoint import Checkpoint
from pinfer.export.errors import ExportError
from pinfer.export.models import (
    gemma,
    gemma2,
    gemma3,
    gpt2,
    gpt_neox,
    granite,
    llama,
    mistral,
    mixtral,
    olmo2,
    phi3,
    qwen2,
    qwen2_moe,
    qwen3,
    qwen3_moe,
    smollm3,
    starcoder2,
)
from pinfer.export.models.settings import require
from pinfer.export.models.spec import ConfigReader, ModelSpec


@dataclass(frozen=True)
class Family:
    """One architecture, as checkpoints name it."""

    models: str  # published ones that say so
    read_spec: Callable[[ConfigReader, str], ModelSpec]
    window: bool = False  # some have layers with a sliding window
    experts: bool = False


FAMILIES: dict[str, Family] = {
    "GPT2LMHeadModel": Family("GPT-2, DistilGPT2", gpt2.read_spec),
    "GPTNeoXForCausalLM": Family("GPT-NeoX, Pythia", gpt_neox.read_spec),
    "Gemma2ForCausalLM": Family("Gemma 2", gemma2.read_spec, window=True),
    "Gemma3ForCausalLM": Family("Gemma 3 (text)", gemma3.read_spec, window=True),
    "GemmaForCausalLM": Family("Gemma 1", gemma.read_spec),
    "GraniteForCausalLM": Family("Granite 3", granite.read_spec),
    "LlamaForCausalLM": Family("Llama 1 to 3.3, SmolLM 1 and 2, Falcon 3", llama.read_spec),
    "MistralForCausalLM": Family("Mistral, Ministral", mistral.read_spec, window=True),
    "MixtralForCausalLM": Family("Mixtral", mixtral.read_spec, window=True, experts=True),
    "Olmo2ForCausalLM": Family("OLMo 2", olmo2.read_spec),
    "Phi3ForCausalLM": Family("Phi 3, 3.5, 4 and 4-mini", phi3.read_spec, window=True),
    "Qwen2ForCausalLM": Family("Qwen 1.5, 2, 2.5, QwQ", qwen2.read_spec, window=True),
    "Qwen2MoeForCausalLM": Family(
        "Qwen 1.5 and 2 MoE", qwen2_moe.read_spec, window=True, experts=True
    ),
    "Qwen3ForCausalLM": Family("Qwen 3", qwen3.read_spec, window=True),
    "Qwen3MoeForCausalLM": Family("Qwen 3 MoE", qwen3_moe.read_spec, window=True, experts=True),
    "SmolLM3ForCausalLM": Family("SmolLM3", smollm3.read_spec, window=True),
    "Starcoder2ForCausalLM": Family("StarCoder 2", starcoder2.read_spec, window=True),
}
# The same models without a head, by the names that checkpoints of embedding models have.
BASE_MODELS = {
    "GPT2Model": "GPT2LMHeadModel",
    "Gemma3TextModel": "Gemma3ForCausalLM",
    **{name.replace("ForCausalLM", "Model"): name for name in FAMILIES if "ForCausalLM" in name},
}
OLDER_NAMES = {"LLaMAForCausalLM": "LlamaForCausalLM"}  # of the first conversions


def read_spec(checkpoint: Checkpoint, embeds: bool = False) -> ModelSpec:
    """The spec of a checkpoint; refuses unknown architectures and unread config keys by name."""
    config = checkpoint.config
    names = config.get("architectures")
    name = names[0] if isinstance(names, list) and len(names) == 1 else None
    name = OLDER_NAMES.get(name, name)
    if name in BASE_MODELS and not embeds:
        raise ExportError(
            f"{checkpoint.source}: architectures {names!r} has no head to generate text with"
            " (--task embed: an embedding model)"
        )
    family = FAMILIES.get(BASE_MODELS.get(name, name))
    if family is None:
        raise ExportError(
            f"{checkpoint.source}: architectures {names!r} is not supported"
            f" (supported: {', '.join(sorted(FAMILIES))})"
        )
    reader = ConfigReader(checkpoint.source, config)
    require(reader, "is_causal", True, True)
    spec = family.read_spec(reader, name)
    unread = reader.unread_keys()
    if unread:
        shown = ", ".join(f"{key}={config[key]!r}"[:80] for key in unread)
        raise ExportError(f"{checkpoint.source}: config keys that are not supported: {shown}")
    return spec
