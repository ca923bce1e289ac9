"""Checks tiny models for CUDA against transformers' log-probabilities, then measures the shape of
Llama 3 8B. Prints a table, writes JSON. Run by run.sh; needs no torch.

Usage: python measure.py BUNDLES RESULT.json [--fake]   (--fake: a driver that computes nothing of
artifacts' kernels; numbers are not compared, and a tiny model is measured)
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from pathlib import Path

import pinfer

TOLERANCES = {"llama_fp8": 0.35, "llama_int4": 1.5}
BATCHES = (1, 8, 64, 256)
PROMPTS = (128, 1024, 8192)
OUTPUT = 64


def check(bundles: Path, is_fake: bool) -> list[dict[str, object]]:
    expected = json.loads((bundles / "expected.json").read_text())
    results = []
    for name, logprobs in expected["logprobs"].items():
        with pinfer.Engine(bundles / name, max_num_batched_tokens=64, max_num_seqs=8) as engine:
            found = [each.logprob for each in engine.score(expected["prompt"])][-len(logprobs) :]
            generated = engine.generate(
                expected["prompt"], max_tokens=20, temperature=0, ignore_eos=True
            )
        worst = max(abs(a - b) for a, b in zip(found, logprobs, strict=True))
        ok = worst < TOLERANCES.get(name, 0.12) and len(generated.token_ids) == 20
        results.append({"model": name, "worst": worst, "ok": ok or is_fake})
        print(f"{name:12} largest difference of a log-probability {worst:8.4f}"
              f"  {'not compared' if is_fake else 'ok' if ok else 'WRONG'}")  # fmt: skip
    return results


def seconds(engine: pinfer.Engine, prompts: list[list[int]], tokens: int) -> float:
    begin = time.monotonic()
    engine.batch(prompts, max_tokens=tokens, temperature=0, ignore_eos=True)
    return time.monotonic() - begin


def measure(bundle: Path, graphs: int, batches: tuple[int, ...], lengths: tuple[int, ...],
            output: int, options: dict[str, object]) -> list[dict[str, object]]:  # fmt: skip
    numbers = random.Random(0)
    results = []
    with pinfer.Engine(
        bundle, enable_prefix_caching=False, max_cuda_graph_seqs=graphs, **options
    ) as engine:
        vocabulary = engine.info["tokenizer_vocab_size"]

        def prompts(count: int, length: int) -> list[list[int]]:
            return [[numbers.randrange(3, vocabulary) for _ in range(length)] for _ in range(count)]

        for batch in batches:
            seconds(engine, prompts(batch, 16), 4)  # loads, records graphs
            first = seconds(engine, prompts(batch, 16), 1)
            whole = seconds(engine, prompts(batch, 16), output)
            rate = batch * (output - 1) / max(whole - first, 1e-9)
            results.append({"test": "decode", "batch": batch, "tokens_per_s": rate})
        for length in lengths:
            taken = seconds(engine, prompts(1, length), 1)
            results.append({"test": "prefill", "prompt_tokens": length,
                            "tokens_per_s": length / taken, "ms": taken * 1000})  # fmt: skip
    overlaps = bool(options.get("async_scheduling"))
    for entry in results:
        entry.update(bundle=bundle.name, graphs=graphs > 0, async_scheduling=overlaps)
        size = entry.get("batch") or entry.get("prompt_tokens")
        print(f"{bundle.name:16} {entry['test']:8} {size:6}  graphs {'on ' if graphs else 'off'}"
              f"  async {'on ' if overlaps else 'off'}"
              f"  {entry['tokens_per_s']:10.1f} tokens/s")  # fmt: skip
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundles", type=Path)
    parser.add_argument("result", type=Path)
    parser.add_argument("--fake", action="store_true")
    options = parser.parse_args()
    checked = check(options.bundles, options.fake)
    measured = []
    if options.fake:
        small = {"max_num_batched_tokens": 64, "max_num_seqs": 8, "num_blocks": 60}
        for graphs in (0, 256):
            measured += measure(options.bundles / "llama", graphs, (1, 8), (48,), 4, small)
        small["async_scheduling"] = 1
        measured += measure(options.bundles / "llama", 256, (1, 8), (), 4, small)
    else:
        for bundle in sorted(options.bundles.glob("llama-8b-*")):
            for graphs in (256, 0):
                measured += measure(bundle, graphs, BATCHES, PROMPTS, OUTPUT, {})
            measured += measure(bundle, 256, BATCHES, (), OUTPUT, {"async_scheduling": 1})
    options.result.write_text(json.dumps({"checked": checked, "measured": measured}, indent=1))
    return 0 if all(entry["ok"] for entry in checked) and measured else 1


if __name__ == "__main__":
    sys.exit(main())
