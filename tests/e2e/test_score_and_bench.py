"""`pinfer score` and `pinfer bench` as a user meets them."""

import json
import subprocess

import numpy as np
import pytest
import torch


def run(pinfer, *arguments, lines=()):
    text = "".join(json.dumps(line) + "\n" for line in lines)
    result = subprocess.run(
        [pinfer, *map(str, arguments)], input=text, capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_scores_equal_transformers(tiny, pinfer):
    model, bundle = tiny
    sequences = [[5], [9, 8, 7], [(31 * i) % 250 + 3 for i in range(150)]]
    lines = [{"ids": ids, "top": 4} for ids in sequences]
    answers = [json.loads(line) for line in run(pinfer, "score", bundle, lines=lines).splitlines()]
    for ids, answer in zip(sequences, answers, strict=True):
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0].double()
        expected = torch.log_softmax(logits, -1).numpy()
        assert answer["logprobs"][0] is None and answer["top"][0] is None
        assert len(answer["logprobs"]) == len(ids) and len(answer["top"]) == len(ids) + 1
        for i in range(1, len(ids)):
            assert abs(answer["logprobs"][i] - expected[i - 1][ids[i]]) < 1e-3
        for i in range(1, len(ids) + 1):
            row = expected[i - 1][:259]  # ids without a token are not listed
            for token_id, logprob in answer["top"][i]:
                assert abs(logprob - row[token_id]) < 1e-3
            assert abs(answer["top"][i][0][1] - row.max()) < 1e-3
            assert abs(answer["top"][i][3][1] - np.sort(row)[-4]) < 1e-3


def test_score_answers_every_line(tied_bundle, pinfer):
    lines = [
        {"ids": [5, 6]},
        {"ids": []},
        {"ids": [5, 100_000]},
        {"ids": [5, 6], "tops": 3},
        {"ids": [5, 6], "top": -1},
        {"ids": [5] * 256},
        "text",
        {"ids": [5, 6, 7], "top": 0},
    ]
    answers = [json.loads(a) for a in run(pinfer, "score", tied_bundle, lines=lines).splitlines()]
    parts = [None, "no tokens", "100000", "tops", "top", "context_length_exceeded", "object", None]
    assert len(answers) == len(lines)
    for answer, part in zip(answers, parts, strict=True):
        if part is None:
            assert "error" not in answer
        else:
            assert part in answer["error"], answer
    assert answers[-1]["top"] == [None, [], [], []]


@pytest.mark.parametrize("batch", ["1", "1,3"])
def test_bench_prints_rates(tied_bundle, pinfer, batch):
    arguments = ["bench", tied_bundle, "--prompt-tokens", "8,20", "--output-tokens", "5"]
    results = json.loads(run(pinfer, *arguments, "--repetitions", "2", "--batch", batch, "--json"))
    assert len(results) == 4 * len(batch.split(","))
    for result in results:
        assert set(result) == {
            "test", "prompt_tokens", "output_tokens", "batch", "tokens_per_s", "stddev",
        }  # fmt: skip
        assert result["tokens_per_s"] > 0
    table = run(pinfer, *arguments, "--repetitions", "1").splitlines()
    assert table[0].startswith("| test | prompt |") and len(table) == 6
