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
            "test", "prompt_tokens", "output_tokens", "batch", "depth", "threads",
            "tokens_per_s", "stddev",
        }  # fmt: skip
        assert result["tokens_per_s"] > 0
    table = run(pinfer, *arguments, "--repetitions", "1").splitlines()
    assert table[0].startswith("| test | prompt |") and len(table) == 6


def bench_points(pinfer, bundle, *arguments):
    results = json.loads(run(pinfer, "bench", *arguments, "--repetitions", "1", "--json", bundle))
    fields = ("test", "prompt_tokens", "output_tokens", "batch", "depth", "threads")
    assert all(result["tokens_per_s"] > 0 for result in results)
    return [tuple(result[field] for field in fields) for result in results]


def test_bench_sweeps_lists_and_ranges(tied_bundle, pinfer):
    arguments = ("--prompt-tokens", "4-16*2", "--output-tokens", "3,2", "--batch", "1-5+2")
    found = bench_points(pinfer, tied_bundle, *arguments, "--threads", "2,1", "--depth", "0")
    expected = []
    for threads in (2, 1):
        for batch in (1, 3, 5):
            for prompt in (4, 8, 16):
                expected.append(("prefill", prompt, 1, batch, 0, threads))
                expected += [("decode", prompt, n, batch, 0, threads) for n in (3, 2)]
    assert found == expected


def test_bench_behind_a_context(tied_bundle, pinfer):
    # 40 is not a multiple of the block size: a part of that context is computed again.
    arguments = ("--prompt-tokens", "2-3", "--output-tokens", "2", "--batch", "1,4")
    found = bench_points(pinfer, tied_bundle, *arguments, "--depth", "0,40,160", "--threads", "1")
    assert found == [
        (test, prompt, output, batch, depth, 1)
        for depth in (0, 40, 160)
        for batch in (1, 4)
        for prompt in (2, 3)
        for test, output in (("prefill", 1), ("decode", 2))
    ]


def bench_error(pinfer, bundle, *arguments):
    command = [pinfer, "bench", bundle, "--output-tokens", "2", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.stdout == ""
    return result.returncode, result.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize("flag", ["--prompt-tokens", "--batch", "--depth", "--threads"])
@pytest.mark.parametrize(
    "text",
    ["x", "", "8x", "-1", "8-", "8-4", "1-8+0", "1-8*1", "1-8*", "1-8/2", "1-8+2+2", "1,x",
     "1.5", "1-2000", "1-9999999999", "3--1"],
)  # fmt: skip
def test_bench_refuses_bad_lists(tied_bundle, pinfer, flag, text):
    code, error = bench_error(pinfer, tied_bundle, f"{flag}={text}")
    assert code == 2 and error.startswith("pinfer: error: ") and flag in error


@pytest.mark.parametrize("flag", ["--prompt-tokens", "--output-tokens", "--batch"])
def test_bench_refuses_zero(tied_bundle, pinfer, flag):
    code, error = bench_error(pinfer, tied_bundle, flag, "1,0")
    assert code == 2 and flag in error and "from 1" in error


def test_bench_refuses_what_does_not_fit(tied_bundle, pinfer):
    code, error = bench_error(pinfer, tied_bundle, "--prompt-tokens", "8", "--depth", "0,250")
    assert code == 1 and "1 x (250 + 8 + 2) tokens: 260 tokens in a request" in error
    assert "--max-model-len allows 256" in error
    code, error = bench_error(
        pinfer, tied_bundle, "--prompt-tokens", "8", "--batch", "1,9", "--max-num-seqs", "8"
    )
    assert code == 1 and "9 requests at once, --max-num-seqs allows 8" in error
    arguments = ("--prompt-tokens", "100", "--batch", "4", "--num-blocks", "28")
    code, error = bench_error(pinfer, tied_bundle, *arguments)
    assert code == 1 and "28 cache blocks, --num-blocks allows 27" in error
