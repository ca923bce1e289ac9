"""Tiny random models of every setting of the Llama family against transformers, in float32."""

import json
import random
import subprocess

import numpy as np
import pytest
import torch
from json_lines import json_lines
from logits import LogitsTool, chunk

MARGIN = 1e-3  # a different token is excused where the reference's two best are this close
TOLERANCE = 2e-4


def prompts(vocab_size, lengths, seed=0):
    generator = random.Random(seed)
    return [[generator.randrange(3, vocab_size) for _ in range(n)] for n in lengths]


def reference_logits(model, tokens):
    with torch.no_grad():
        return model(torch.tensor([tokens])).logits[0].float().numpy()


def test_greedy_ids_equal_transformers(tiny, pinfer):
    model, bundle = tiny
    lengths = [1, 2, 7, 15, 16, 17, 31, 32, 33, 64, 100]
    cases = prompts(259, lengths)
    lines = [
        json.dumps({"prompt_ids": p, "max_tokens": 24, "temperature": 0, "ignore_eos": True})
        for p in cases
    ]
    result = subprocess.run(
        [pinfer, "batch", bundle], input="\n".join(lines), capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    answers = json_lines(result.stdout)
    assert len(answers) == len(cases)
    for prompt, answer in zip(cases, answers, strict=True):
        assert answer["finish_reason"] == "length", answer
        assert answer["num_prompt_tokens"] == len(prompt)
        assert len(answer["ids"]) == 24
        logits = reference_logits(model, prompt + answer["ids"])
        for i, found in enumerate(answer["ids"]):
            row = logits[len(prompt) - 1 + i][:259]
            best = int(row.argmax())
            excused = row[best] - row[found] < MARGIN
            assert found == best or excused, (len(prompt), i, found, best)


def test_logits_equal_transformers(tiny, build_dir):
    model, bundle = tiny
    tokens = prompts(259, [90], seed=1)[0]
    expected = reference_logits(model, tokens)
    blocks = [9, 4, 30, 2, 17, 5]
    with LogitsTool(build_dir, bundle, threads=2) as tool:
        for stop in (1, 16, 17, 90):
            found = tool.step([chunk(f"r{stop}", tokens, 0, stop, blocks)], finished=[f"r{stop}"])
            assert np.abs(found[0] - expected[stop - 1]).max() < TOLERANCE, stop


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 13, 16, 17, 31, 32, 33, 69])
def test_chunked_prefill_is_exact(tied_bundle, build_dir, size):
    """A prompt in chunks of any size, mixed with other requests, gives the solo run's bits."""
    tokens, other = prompts(259, [70, 70], seed=2)
    blocks, other_blocks = [3, 11, 7, 20, 5], [40, 2, 33, 8, 21]
    with LogitsTool(build_dir, tied_bundle, threads=2) as tool:
        solo = tool.step([chunk("solo", tokens, 0, 70, [50, 51, 52, 53, 54])])[0]
        decode = 0
        for start in range(0, 70, size):
            stop = min(start + size, 70)
            step = [chunk("a", tokens, start, stop, blocks)]
            # Another request decodes beside it, before it in the step.
            step.insert(0, chunk("b", other, decode, decode + 1, other_blocks))
            decode += 1
            last = tool.step(step)[1]
        assert last.tobytes() == solo.tobytes()


@pytest.mark.parametrize("windows", [(64, 0), (48, 64, 0), (0, 32)])
def test_groups_of_layers_change_no_bit(tied_bundle, build_dir, windows):
    """Layers of different groups share tensors, each with a block table of its own: the logits are
    those of one group. (The layers themselves attend to everything here.)"""
    num_layers = len(json.loads((tied_bundle / "manifest.json").read_text())["layers"])
    layer_windows = [windows[layer % len(windows)] for layer in range(num_layers)]
    num_groups = len(set(layer_windows))
    assert num_groups > 1
    cases = prompts(259, [70, 20, 33], seed=8)
    # All tables are disjoint, and in no order.
    ids = list(range(1, 64))
    random.Random(1).shuffle(ids)
    tables = [[[ids.pop() for _ in range(5)] for _ in range(num_groups)] for _ in cases]

    def run(tool, tables_of):
        chunks = [(0, 18), (18, 19), (19, 20), (20, 33), (33, 70)]
        for start, stop in chunks:
            step = [
                chunk(f"r{i}", tokens, start, min(stop, len(tokens)), tables_of(i))
                for i, tokens in enumerate(cases)
                if start < len(tokens)
            ]
            yield tool.step(step).tobytes()

    with LogitsTool(build_dir, tied_bundle, threads=2) as tool:
        expected = list(run(tool, lambda i: tables[i][0]))
    with LogitsTool(build_dir, tied_bundle, 2, layer_windows=tuple(layer_windows)) as tool:
        assert list(run(tool, lambda i: tables[i])) == expected


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_thread_count_changes_nothing(tied_bundle, build_dir, threads):
    tokens = prompts(259, [70], seed=3)[0]
    blocks = [3, 11, 7, 20, 5]
    with LogitsTool(build_dir, tied_bundle, threads=1) as tool:
        expected = tool.step([chunk("a", tokens, 0, 70, blocks)])
    with LogitsTool(build_dir, tied_bundle, threads=threads) as tool:
        assert tool.step([chunk("a", tokens, 0, 70, blocks)]).tobytes() == expected.tobytes()


def test_mixed_batch_is_exact(tied_bundle, build_dir):
    """Prefill and decode rows of many requests in one step equal each request alone."""
    cases = prompts(259, [1, 2, 15, 16, 17, 40, 70], seed=4)
    tables = [[1 + 6 * i + j for j in range(6)] for i in range(len(cases))]
    with LogitsTool(build_dir, tied_bundle, threads=2) as tool:
        alone = [
            tool.step([chunk(f"s{i}", t, 0, len(t), tables[i])], finished=[f"s{i}"])[0]
            for i, t in enumerate(cases)
        ]
    with LogitsTool(build_dir, tied_bundle, threads=2) as tool:
        # First all but the last token, then every request decodes its last one.
        first = [chunk(f"r{i}", t, 0, len(t) - 1, tables[i]) for i, t in enumerate(cases) if i > 0]
        tool.step(first)
        second = [chunk(f"r{i}", t, len(t) - 1, len(t), tables[i]) for i, t in enumerate(cases)]
        together = tool.step(second)
    for i, expected in enumerate(alone):
        assert together[i].tobytes() == expected.tobytes(), i


def test_rows_of_one_step_may_share_new_blocks(tied_bundle, build_dir):
    """A request may read blocks that another row of the same step fills."""
    tokens = prompts(259, [40], seed=5)[0]
    with LogitsTool(build_dir, tied_bundle, threads=2) as tool:
        alone = tool.step([chunk("s", tokens, 0, 40, [50, 51, 52])])[0]
        step = [
            chunk("a", tokens, 0, 32, [3, 4]),
            chunk("b", tokens, 32, 40, [3, 4, 9], kind="new"),
        ]
        assert tool.step(step)[1].tobytes() == alone.tobytes()
