"""Checks tiny models for CUDA against transformers' log-probabilities, then measures copies of
device memory and the shape of Llama 3 8B. Prints a table, writes JSON. Run by run.sh; needs no
torch.

Usage: python measure.py BUNDLES RESULT.json [--fake] [--build-seconds N]   (--fake: a driver that
computes nothing of artifacts' kernels; numbers are not compared, and a tiny model is measured)
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from pathlib import Path

from device_copy import copy_rate

import pinfer

TOLERANCES = {"llama_fp8": 0.35, "llama_int4": 1.5}
DECODES = ((1, 16), (8, 16), (64, 16), (256, 16), (64, 2048))  # requests, tokens before
PROMPTS = (128, 1024, 8192)
OUTPUT = 64
COPY_BYTES, COPIES = 1 << 30, 50


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


def measure(bundle: Path, graphs: int, decodes: tuple[tuple[int, int], ...],
            lengths: tuple[int, ...], output: int,
            options: dict[str, object]) -> list[dict[str, object]]:  # fmt: skip
    numbers = random.Random(0)
    results = []
    with pinfer.Engine(
        bundle, enable_prefix_caching=False, max_cuda_graph_seqs=graphs, **options
    ) as engine:
        vocabulary = engine.info["tokenizer_vocab_size"]

        def prompts(count: int, length: int) -> list[list[int]]:
            return [[numbers.randrange(3, vocabulary) for _ in range(length)] for _ in range(count)]

        for batch, context in decodes:
            seconds(engine, prompts(batch, context), 4)  # loads, records graphs
            first = seconds(engine, prompts(batch, context), 1)
            whole = seconds(engine, prompts(batch, context), output)
            rate = batch * (output - 1) / max(whole - first, 1e-9)
            results.append({"test": "decode", "batch": batch, "prompt_tokens": context,
                            "tokens_per_s": rate})  # fmt: skip
        for length in lengths:
            taken = seconds(engine, prompts(1, length), 1)
            results.append({"test": "prefill", "batch": 1, "prompt_tokens": length,
                            "tokens_per_s": length / taken, "ms": taken * 1000})  # fmt: skip
    overlaps = bool(options.get("async_scheduling"))
    for entry in results:
        entry.update(bundle=bundle.name, graphs=graphs > 0, async_scheduling=overlaps)
        what = f"{entry['test']:8}{entry['batch']:4} x {entry['prompt_tokens']:<5}"
        print(f"{bundle.name:16} {what} graphs {'on ' if graphs else 'off'}"
              f"  async {'on ' if overlaps else 'off'}"
              f" {entry['tokens_per_s']:10.1f} tokens/s")  # fmt: skip
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundles", type=Path)
    parser.add_argument("result", type=Path)
    parser.add_argument("--fake", action="store_true")
    parser.add_argument("--build-seconds", type=int)
    options = parser.parse_args()
    checked = check(options.bundles, options.fake)
    rate = copy_rate(*(1 << 20, 5) if options.fake else (COPY_BYTES, COPIES))
    print(f"copies of device memory {rate / 1e9:8.1f} GB/s, read and written")
    measured = []
    if options.fake:
        small = {"max_num_batched_tokens": 64, "max_num_seqs": 8, "num_blocks": 60}
        for graphs in (0, 256):
            measured += measure(
                options.bundles / "llama", graphs, ((1, 16), (8, 16)), (48,), 4, small
            )
        small["async_scheduling"] = 1
        measured += measure(options.bundles / "llama", 256, ((1, 16), (8, 16)), (), 4, small)
    else:
        for bundle in sorted(options.bundles.glob("llama-8b-*")):
            for graphs in (256, 0):
                measured += measure(bundle, graphs, DECODES, PROMPTS, OUTPUT, {})
            measured += measure(bundle, 256, DECODES, (), OUTPUT, {"async_scheduling": 1})
    result = {"build_seconds": options.build_seconds, "checked": checked,
              "copy_bytes_per_s": rate, "measured": measured}  # fmt: skip
    options.result.write_text(json.dumps(result, indent=1))
    return 0 if all(entry["ok"] for entry in checked) and measured else 1


if __name__ == "__main__":
    sys.exit(main())
