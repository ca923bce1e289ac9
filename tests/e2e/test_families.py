"""Every model family compiled and served: logits and greedy ids against transformers, in float32.

The whole matrix is slow, for each model is compiled; one model of each layer structure is in CI
(`make test-slow-subset`).
"""

import json
import random
import subprocess

import family_models
import numpy as np
import pytest
import tiny_models
import torch
from json_lines import json_lines
from logits import LogitsTool, chunk

TOLERANCE = 2e-4  # of the logits' scale
MARGIN = 1e-3  # a different token is excused where the reference's two best are this close
NUM_TOKENS = 200
CASES = [
    pytest.param(
        (family, variant),
        id=f"{'structure' if (family, variant) in family_models.STRUCTURES else 'more'}"
        f"-{family}-{variant}",
    )
    for family, variant in family_models.CASES
]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("families")


@pytest.fixture(scope="module", params=CASES)
def model(request, folder):
    """(transformers' model, float32 bundle)"""
    checkpoint = family_models.make_checkpoint(*request.param, folder)
    bundle = folder / f"{checkpoint.name}-bundle"
    tiny_models.export(checkpoint, bundle, "--dtype", "float32")
    return family_models.reference(checkpoint), bundle


def tokens_of(count, seed):
    generator = random.Random(seed)
    return [generator.randrange(3, 259) for _ in range(count)]


def reference_logits(reference, tokens):
    with torch.no_grad():
        return reference(torch.tensor([tokens])).logits[0].numpy()


def test_logits(model, build_dir):
    """Whole prefill against transformers; chunks and a mixed batch give the same bits."""
    reference, bundle = model
    tokens, other = tokens_of(NUM_TOKENS, 1), tokens_of(NUM_TOKENS, 2)
    expected = reference_logits(reference, tokens)
    table, others, third = ([1 + 13 * k + j for j in range(13)] for k in range(3))
    with LogitsTool(build_dir, bundle, threads=2) as tool:
        rows = range(NUM_TOKENS)
        whole = tool.step([chunk("whole", tokens, 0, NUM_TOKENS, table)], rows=rows)
        assert np.abs(whole - expected).max() < TOLERANCE * np.abs(expected).max()
        for size in (7, 64):
            found = []
            for k, start in enumerate(range(0, NUM_TOKENS, size)):
                stop = min(start + size, NUM_TOKENS)
                step = [
                    chunk(f"other{size}", other, k, k + 1, others),  # decodes beside it
                    chunk(f"chunked{size}", tokens, start, stop, third),
                ]
                found.append(tool.step(step, rows=range(1, 1 + stop - start)))
            assert np.concatenate(found).tobytes() == whole.tobytes(), size


def test_greedy_ids(model, pinfer):
    """Decoding past windows and original contexts, in chunks, with hits in the prefix cache."""
    reference, bundle = model
    start = tokens_of(48, 3)
    prompts = [tokens_of(n, 4) for n in (1, 15, 16, 17, 33, 120)]
    prompts += [start[:n] + tokens_of(5, n) for n in (15, 16, 17, 32, 48)]
    lines = [
        json.dumps({"prompt_ids": p, "max_tokens": 90, "temperature": 0, "ignore_eos": True})
        for p in [start, *prompts]
    ]
    command = [pinfer, "batch", bundle, "--max-num-batched-tokens", "24", "--max-num-seqs", "4"]
    result = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    answers = json_lines(result.stdout)
    for prompt, answer in zip([start, *prompts], answers, strict=True):
        assert len(answer["ids"]) == 90, answer
        logits = reference_logits(reference, prompt + answer["ids"])
        rows = logits[len(prompt) - 1 : -1]
        best, found = rows.max(axis=1), rows[np.arange(90), answer["ids"]]
        assert (best - found < MARGIN * np.abs(rows).max()).all(), (len(prompt), answer)
