"""Tiny checkpoints of embedding models, as sentence-transformers writes them, their bundles, and
what sentence-transformers computes of a text, by transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import family_models
import numpy as np
import tiny_models
import torch
from tokenizers import Tokenizer, processors
from transformers import AutoModel

PROMPTS = {"query": "Find what answers this: ", "document": ""}
# Name -> family and variant of family_models, pooling, whether the vectors are normalised, and the
# architecture that config.json names ("": that of the model without a head).
MODELS = {
    "last": ("qwen3", "plain", "lasttoken", True, "Qwen3ForCausalLM"),
    "mean": ("llama", "plain", "mean", False, ""),
    "window": ("mistral", "window", "lasttoken", True, ""),
    "norms_around_1": ("gemma", "plain", "mean", True, ""),
    "layer_norm": ("gpt_neox", "plain", "lasttoken", True, ""),
}


def tokenizer_json() -> str:
    """That of tiny_models; every text ends with </s>, as Qwen3-Embedding's do."""
    tokenizer = Tokenizer.from_str(tiny_models.tokenizer_json())
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 2)]
    )
    return tokenizer.to_str()


def write_files(checkpoint: Path, pooling: dict[str, Any], *kinds: str, **prompts: Any) -> None:
    """sentence-transformers' files; kinds: of the modules after Transformer."""
    modules = [
        {"idx": i, "name": str(i), "path": f"{i}_{kind}" if i else "",
         "type": f"sentence_transformers.models.{kind}"}
        for i, kind in enumerate(("Transformer", *kinds))
    ]  # fmt: skip
    (checkpoint / "modules.json").write_text(json.dumps(modules))
    (checkpoint / "1_Pooling").mkdir(exist_ok=True)
    (checkpoint / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    (checkpoint / "config_sentence_transformers.json").write_text(json.dumps(prompts))


def make_checkpoint(name: str, folder: Path) -> Path:
    target = folder / name
    if target.exists():
        return target
    family, variant, mode, normalize, architecture = MODELS[name]
    source = family_models.make_checkpoint(family, variant, folder / "sources")
    AutoModel.from_pretrained(source, dtype=torch.float32).save_pretrained(target)
    config = json.loads((target / "config.json").read_text())
    config["architectures"] = [architecture] if architecture else config["architectures"]
    (target / "config.json").write_text(json.dumps(config))
    (target / "tokenizer.json").write_text(tokenizer_json())
    (target / "tokenizer_config.json").write_text(
        json.dumps({"eos_token": "</s>", "pad_token": "</s>"})
    )
    pooling = {"word_embedding_dimension": config["hidden_size"], "pooling_mode": mode}
    kinds = ("Pooling", "Normalize") if normalize else ("Pooling",)
    write_files(target, pooling, *kinds, prompts=PROMPTS, default_prompt_name=None)
    return target


class Reference:
    """The steps of SentenceTransformer.encode(), by transformers' model and tokenizers.
    tests/e2e/test_sentence_transformers.py compares with the package itself."""

    def __init__(self, name: str, checkpoint: Path) -> None:
        _, _, self._mode, self._normalize, _ = MODELS[name]
        self._model = AutoModel.from_pretrained(
            checkpoint, dtype=torch.float32, attn_implementation="eager"
        ).eval()
        self._tokenizer = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))

    def tokenize(self, text: str, prompt: str = "") -> list[int]:
        return self._tokenizer.encode(prompt + text).ids

    @torch.no_grad()
    def embed_ids(self, ids: list[int], dimensions: int | None = None) -> np.ndarray:
        states = self._model(torch.tensor([ids])).last_hidden_state[0]
        pooled = states[-1] if self._mode == "lasttoken" else states.mean(0)
        pooled = pooled[:dimensions]
        if self._normalize:
            pooled = torch.nn.functional.normalize(pooled, dim=0)
        return pooled.numpy()

    def embed(self, text: str, prompt: str = "") -> np.ndarray:
        return self.embed_ids(self.tokenize(text, prompt))


def make_bundle(name: str, folder: Path) -> tuple[Reference, Path]:
    """The reference and the float32 bundle of a model."""
    checkpoint = make_checkpoint(name, folder)
    bundle = folder / f"{name}-bundle"
    if not bundle.exists():
        tiny_models.export(checkpoint, bundle, "--dtype", "float32")
    return Reference(name, checkpoint), bundle
