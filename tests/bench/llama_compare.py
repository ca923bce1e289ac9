"""Decode and prefill beside llama.cpp, runs of both in turn, on one machine.

Usage: llama_compare.py PINFER BUNDLE LLAMA_BENCH GGUF [--runs N] [--threads N]

GGUF and BUNDLE must hold the same model in the same dtype. LLAMA_BENCH is llama.cpp's llama-bench.
Prints medians and the ratio of each pair of runs.
"""

import argparse
import json
import os
import statistics
import subprocess


def pinfer_rates(arguments):
    command = [arguments.pinfer, "bench", arguments.bundle, "--json", "--repetitions", "1",
               "--prompt-tokens", str(arguments.prompt_tokens), "--threads",
               str(arguments.threads), "--output-tokens", str(arguments.output_tokens)]  # fmt: skip
    results = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return {result["test"]: result["tokens_per_s"] for result in results}


def llama_rates(arguments):
    """Decode behind the same prompt, as pinfer's."""
    command = [arguments.llama_bench, "-m", arguments.gguf, "-t", str(arguments.threads), "-r", "1",
               "-o", "json"]  # fmt: skip
    prefill = [*command, "-p", str(arguments.prompt_tokens), "-n", "0"]
    decode = [*command, "-p", "0", "-n", str(arguments.output_tokens), "-d",
              str(arguments.prompt_tokens)]  # fmt: skip
    rates = {}
    for name, test in (("prefill", prefill), ("decode", decode)):
        output = subprocess.run(test, check=True, capture_output=True).stdout
        rates[name] = json.loads(output)[0]["avg_ts"]
    return rates


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("pinfer", "bundle", "llama_bench", "gguf"):
        parser.add_argument(name)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prompt-tokens", type=int, default=512)
    parser.add_argument("--output-tokens", type=int, default=128)
    arguments = parser.parse_args()
    pairs = []
    for _ in range(arguments.runs):
        pairs.append((pinfer_rates(arguments), llama_rates(arguments)))
    print(f"load average {os.getloadavg()[0]:.1f}, {arguments.threads} threads, medians of"
          f" {arguments.runs}, prompt {arguments.prompt_tokens} tokens")  # fmt: skip
    for name in ("decode", "prefill"):
        ours, theirs = ([pair[i][name] for pair in pairs] for i in (0, 1))
        ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
        print(f"{name}: pinfer {statistics.median(ours):.1f} tokens/s, llama.cpp"
              f" {statistics.median(theirs):.1f}, ratio {statistics.median(ratios):.2f}"
              f" ({min(ratios):.2f} to {max(ratios):.2f})")  # fmt: skip


if __name__ == "__main__":
    main()
