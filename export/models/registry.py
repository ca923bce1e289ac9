"""Which family reads which architecture. One file per family; this is the only list of them."""

from __future__ import annotations

from collections.abc import Callable

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

FAMILIES: dict[str, Callable[[ConfigReader, str], ModelSpec]] = {
    "GPT2LMHeadModel": gpt2.read_spec,
    "GPTNeoXForCausalLM": gpt_neox.read_spec,
    "Gemma2ForCausalLM": gemma2.read_spec,
    "Gemma3ForCausalLM": gemma3.read_spec,
    "GemmaForCausalLM": gemma.read_spec,
    "GraniteForCausalLM": granite.read_spec,
    "LlamaForCausalLM": llama.read_spec,
    "MistralForCausalLM": mistral.read_spec,
    "MixtralForCausalLM": mixtral.read_spec,
    "Olmo2ForCausalLM": olmo2.read_spec,
    "Phi3ForCausalLM": phi3.read_spec,
    "Qwen2ForCausalLM": qwen2.read_spec,
    "Qwen2MoeForCausalLM": qwen2_moe.read_spec,
    "Qwen3ForCausalLM": qwen3.read_spec,
    "Qwen3MoeForCausalLM": qwen3_moe.read_spec,
    "SmolLM3ForCausalLM": smollm3.read_spec,
    "Starcoder2ForCausalLM": starcoder2.read_spec,
}
# The same models without a head, by the names that checkpoints of embedding models have.
BASE_MODELS = {
    "GPT2Model": "GPT2LMHeadModel",
    "Gemma3TextModel": "Gemma3ForCausalLM",
    **{name.replace("ForCausalLM", "Model"): name for name in FAMILIES if "ForCausalLM" in name},
}


def read_spec(checkpoint: Checkpoint, embeds: bool = False) -> ModelSpec:
    """The spec of a checkpoint; refuses unknown architectures and unread config keys by name."""
    config = checkpoint.config
    names = config.get("architectures")
    name = names[0] if isinstance(names, list) and len(names) == 1 else None
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
    spec = family(reader, name)
    unread = reader.unread_keys()
    if unread:
        shown = ", ".join(f"{key}={config[key]!r}"[:80] for key in unread)
        raise ExportError(f"{checkpoint.source}: config keys that are not supported: {shown}")
    return spec
