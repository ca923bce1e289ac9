"""The real model: SmolLM2-135M-Instruct from its GGUF, float32, against transformers."""

import json
import random
import subprocess

import pytest
import registry_models
import tiny_models
import torch
from transformers import AutoModelForCausalLM

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
def bundle(gguf, tmp_path_factory):
    path = tmp_path_factory.mktemp("smollm2") / "bundle"
    tiny_models.export(gguf, path, "--dtype", "float32", "--cpu-isa", "native")
    return path


@pytest.mark.slow
def test_greedy_ids_equal_transformers(gguf, bundle, pinfer):
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
    answers = [json.loads(line) for line in result.stdout.splitlines()]
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.float32
    ).eval()
    excused = 0
    for prompt, answer in zip(prompts, answers, strict=True):
        ids = answer["ids"]
        assert len(ids) == NEW_TOKENS
        with torch.no_grad():
            logits = model(torch.tensor([prompt + ids])).logits[0]
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
