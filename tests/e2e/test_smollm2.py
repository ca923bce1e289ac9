"""The real model: SmolLM2-135M-Instruct from its GGUF, float32, against transformers."""

import json
import random
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
import registry_models
import tiny_models
import torch
from json_lines import json_lines
from logits import LogitsTool, chunk
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

MARGIN = 1e-3  # a different token is excused only where the reference's two best are this close
NUM_PROMPTS = 32
NEW_TOKENS = 64


@pytest.fixture(scope="module")
def gguf():
    try:
        return registry_models.smollm2_gguf()
    except registry_models.RegistryUnavailable as error:
        pytest.skip(f"the model cannot be had here: {error}")


@pytest.fixture(scope="module")
def reference(gguf):
    return AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.float32
    ).eval()


@pytest.fixture(scope="module")
def text_ids(gguf):
    """Token ids of real text: this project's own prose."""
    root = Path(__file__).parents[2]
    text = "\n".join(path.read_text() for path in sorted((root / "docs").glob("*.md")))
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    ids = tokenizer(text)["input_ids"]
    assert len(ids) > 4096
    return ids


@pytest.fixture(scope="module")
def bfloat16_bundle(gguf, tmp_path_factory):
    path = tmp_path_factory.mktemp("smollm2") / "bfloat16"
    tiny_models.export(gguf, path, "--dtype", "bfloat16", "--cpu-isa", "native")
    return path


@pytest.fixture(scope="module")
def bundle(gguf, tmp_path_factory):
    path = tmp_path_factory.mktemp("smollm2") / "bundle"
    tiny_models.export(gguf, path, "--dtype", "float32", "--cpu-isa", "native")
    return path


@pytest.mark.slow
def test_greedy_ids_equal_transformers(reference, bundle, pinfer):
    """32 prompts of 1 to 700 tokens, 64 new tokens each. One forward pass of the reference over
    prompt and answer gives the logits that every answered token is judged by."""
    generator = random.Random(0)
    lengths = [1, 2, 15, 16, 17, 700] + [generator.randint(1, 700) for _ in range(NUM_PROMPTS - 6)]
    prompts = [[generator.randrange(20, 49152) for _ in range(n)] for n in lengths]
    lines = [
        json.dumps(
            {"prompt_ids": p, "max_tokens": NEW_TOKENS, "temperature": 0, "ignore_eos": True}
        )
        for p in prompts
    ]
    result = subprocess.run(
        [pinfer, "batch", bundle], input="\n".join(lines), capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    answers = json_lines(result.stdout)
    excused = 0
    for prompt, answer in zip(prompts, answers, strict=True):
        ids = answer["ids"]
        assert len(ids) == NEW_TOKENS
        with torch.no_grad():
            logits = reference(torch.tensor([prompt + ids])).logits[0]
        for i, found in enumerate(ids):
            row = logits[len(prompt) - 1 + i]
            best = int(row.argmax())
            if found == best:
                continue
            gap = float(row[best] - row[found])
            assert gap < MARGIN, (len(prompt), i, found, best, gap)
            excused += 1
    print(
        f"{NUM_PROMPTS * NEW_TOKENS} tokens, {excused} excused (reference's two best closer "
        f"than {MARGIN})"
    )


def all_logits(tool, name, ids, first_block):
    """float32 [tokens, vocab]; a part at a time."""
    blocks = list(range(first_block, first_block + len(ids) // 16 + 1))
    tool.step([chunk(name, ids, 0, len(ids), blocks)], rows=[])
    parts = []
    for start in range(0, len(ids), 256):
        stop = min(start + 256, len(ids))
        # Computing the last token again changes nothing; the rows of this chunk are wanted.
        again = {**chunk(name, ids, start, stop, blocks, kind="resumed")}
        parts.append(tool.step([again], rows=range(stop - start)))
    return np.concatenate(parts)


@pytest.mark.slow
def test_logits_equal_transformers(reference, bundle, build_dir, text_ids):
    worst = 0.0
    with LogitsTool(build_dir, bundle, threads=2, num_blocks=100) as tool:
        for start, length in ((0, 700), (1000, 33), (2000, 1), (3000, 500)):
            ids = text_ids[start : start + length]
            with torch.no_grad():
                expected = reference(torch.tensor([ids])).logits[0].numpy()
            found = all_logits(tool, f"r{start}", ids, 1)
            worst = max(worst, float(np.abs(found - expected).max()))
    print(f"largest difference of logits: {worst:.2e}")
    assert worst <= 2e-3


@pytest.mark.slow
def test_bfloat16_is_close_to_float32(bundle, bfloat16_bundle, build_dir, text_ids):
    """Mean KL divergence of the next-token distributions over 2,048 positions of real text."""
    divergences = []
    with (
        LogitsTool(build_dir, bundle, threads=2, num_blocks=100) as exact,
        LogitsTool(build_dir, bfloat16_bundle, threads=2, num_blocks=100) as rounded,
    ):
        for start in range(0, 4096, 1024):
            ids = text_ids[start : start + 512]
            p = torch.log_softmax(torch.tensor(all_logits(exact, f"r{start}", ids, 1)), -1)
            q = torch.log_softmax(torch.tensor(all_logits(rounded, f"r{start}", ids, 1)), -1)
            divergences.append((p.exp() * (p - q)).sum(-1).double())
    kl = torch.cat(divergences)
    print(f"mean KL over {len(kl)} positions: {kl.mean():.2e} (largest {kl.max():.2e})")
    assert len(kl) >= 2000 and float(kl.mean()) <= 2e-3


@pytest.mark.slow
def test_a_fine_tune_compiles_nothing(reference, gguf, bundle, tmp_path):
    """Another checkpoint of the same architecture, as a directory: nothing is compiled."""
    folder = tmp_path / "fine-tune"
    weights = {k: v.clone() for k, v in reference.state_dict().items() if k != "lm_head.weight"}
    weights["model.norm.weight"] += 0.001
    folder.mkdir()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    config = reference.config.to_dict()
    config.pop("quantization_config", None)
    config["architectures"] = ["LlamaForCausalLM"]
    (folder / "config.json").write_text(json.dumps(config, default=str))
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(folder)
    seconds = []
    for name in ("first", "second"):
        begin = time.monotonic()
        tiny_models.export(folder, tmp_path / name, "--dtype", "float32", "--cpu-isa", "native")
        seconds.append(time.monotonic() - begin)
    # What was compiled for the other checkpoint serves this one; how long it takes is a figure of
    # docs/performance.md, no test.
    print(f"export of a fine-tune: {seconds[0]:.1f} s, again {seconds[1]:.1f} s")
    for artifact in ("decoder_layer.so", "head.so"):
        ours, theirs = (path / "artifacts" / artifact for path in (tmp_path / "first", bundle))
        assert ours.read_bytes() == theirs.read_bytes()
    assert (tmp_path / "first" / "manifest.json").read_bytes() == (
        tmp_path / "second" / "manifest.json"
    ).read_bytes()
