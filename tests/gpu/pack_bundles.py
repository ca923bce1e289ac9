"""Exports what a GPU machine runs, here, where torch and Triton are.

Tiny models of several families with the log-probabilities that transformers gives them, and bundles
of the shape of Llama 3 8B without their weights, which random_weights.py makes there.

Usage: python pack_bundles.py FOLDER [--archs 80,90,100] [--only-tiny]
"""

from __future__ import annotations

import argparse
import json
import struct
import sys
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import cuda_bundles
import family_models
import rounded_cache
import tiny_models
import torch
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig

from pinfer.export import exporter, weights
from pinfer.export.config import ExportConfig
from pinfer.export.weights import WrittenWeights

PROMPT = [5, 60, 61, 7, 200, 9, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55]
LLAMA_8B = LlamaConfig(
    vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32,
    num_attention_heads=32, num_key_value_heads=8, max_position_embeddings=16384,
    tie_word_embeddings=False, dtype="bfloat16", architectures=["LlamaForCausalLM"],
)  # fmt: skip
FORMATS = {"bf16": None, "fp8": "fp8"}  # of weights and cache


def expected_logprobs(name: str, scratch: Path) -> list[float]:
    family, variant, _ = cuda_bundles.MODELS[name]
    model = family_models.reference(scratch / f"{family}-{variant}")
    scales = cuda_bundles.kv_scales(name, model.config.num_hidden_layers)
    logprobs = rounded_cache.logprobs(model, PROMPT, scales)
    return logprobs[torch.arange(len(PROMPT) - 1), PROMPT[1:]].tolist()


def pack_tiny(folder: Path, scratch: Path) -> None:
    expected = {}
    for name in cuda_bundles.MODELS:
        bundle = cuda_bundles.make_bundle(name, scratch)
        (folder / name).symlink_to(bundle.resolve())
        expected[name] = expected_logprobs(name, scratch)
    (folder / "expected.json").write_text(json.dumps({"prompt": PROMPT, "logprobs": expected}))


def sparse_checkpoint(folder: Path) -> Path:
    """A checkpoint of Llama 3 8B's shape whose file takes no room: nothing reads its numbers."""
    folder.mkdir(parents=True)
    LLAMA_8B.save_pretrained(folder)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder))
    header, offset = {}, 0
    for name, value in model.state_dict().items():
        size = value.numel() * 2
        header[name] = {"dtype": "BF16", "shape": list(value.shape),
                        "data_offsets": [offset, offset + size]}  # fmt: skip
        offset += size
    text = json.dumps(header).encode()
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + offset)
    (folder / "tokenizer.json").write_text(tiny_models.tokenizer_json())
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>"}))
    return folder


def write_header_only(
    path: Path, plan: weights.WeightsPlan, packed: object, extra: dict[str, torch.Tensor], _: object
) -> WrittenWeights:
    """In place of write_weights(): the file's header, then the tensors that are stored as they are
    (of rotary tables), which random_weights.py puts where the header says."""
    tensors = plan.tensors()
    layout = [(entry.name, *weights.stored_shape(entry)) for entry in tensors]
    layout += [(name, tuple(value.shape), value.dtype) for name, value in extra.items()]
    header, _padding = weights._header(layout)
    entries = json.loads(header)
    size = 8 + len(header) + max(entry["data_offsets"][1] for entry in entries.values())
    path.write_bytes(struct.pack("<Q", len(header)) + header)
    values = {name: value.tolist() for name, value in extra.items()}
    path.with_name("stored.json").write_text(json.dumps({"size": size, "values": values}))
    return WrittenWeights(size, "0" * 64)


def pack_shape(folder: Path, scratch: Path, archs: tuple[int, ...]) -> None:
    checkpoint = sparse_checkpoint(scratch / "llama-8b")
    for name, format in FORMATS.items():
        config = ExportConfig(
            model=checkpoint, output=folder / f"llama-8b-{name}", device="cuda", cuda_archs=archs,
            quantize=format, kv_dtype=format, quantize_embedding="none", verify=False,
        )  # fmt: skip
        with (
            mock.patch.object(exporter, "write_weights", write_header_only),
            mock.patch.object(exporter, "_check_disk", lambda *_: None),
        ):
            exporter.export(config, lambda *_: None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--archs", default="80,90,100")
    parser.add_argument("--only-tiny", action="store_true")
    options = parser.parse_args()
    cuda_bundles.ARCHS = options.archs
    scratch = options.folder.with_name(options.folder.name + ".scratch")
    scratch.mkdir(parents=True)
    options.folder.mkdir(parents=True)
    pack_tiny(options.folder, scratch)
    if not options.only_tiny:
        pack_shape(options.folder, scratch, tuple(map(int, options.archs.split(","))))


if __name__ == "__main__":
    main()
