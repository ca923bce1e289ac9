"""Engines side by side over the same weights, on one machine: pinfer, llama.cpp, vLLM, OpenVINO.

    compare.py --pinfer bf16=BUNDLE --llama l-bf16=GGUF --llama-bench PATH --llama-completion PATH
               --ratio bf16/l-bf16 [--tests decode,prefill] [--rounds 7] [--json FILE]

Each engine flag may be given several times, and each measurement is a process of its own. A round
runs every test on every engine, one engine after the other, each round beginning with the next
one. A ratio is formed within each round; the tables have medians, smallest and largest values.
A run with another number of tokens than asked for does not count: it is named at the end, and the
program ends with 1.

Tests (the sizes are flags):
  decode       tokens/s of 128 tokens behind a prompt of 32
  prefill      tokens/s of a prompt of 512
  first_token  from launch to the first byte of output, 32 tokens, page cache warm
  context      decode behind 4,096 tokens over decode behind 32; prefill of 4,096 over that of 512
  memory       peak resident memory of a whole run of 32 + 128 tokens; weights and cache (vLLM and
               OpenVINO: weights alone)
  stolen_core  decode while another process spins on one of the processors, over decode without

The vLLM and OpenVINO sides are scripts that their own Python runs (vllm_worker.py,
openvino_worker.py say how far they have been tried). `--vllm` takes a Hugging Face directory.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from engines import Engine, EngineError, LlamaCpp, OpenVino, Pinfer, Point, Settings, Vllm
from machine_state import MachineState

Values = dict[str, dict[str, list[float | None]]]  # metric, engine: a value each round


@contextlib.contextmanager
def spinning_process() -> Iterator[None]:
    """A process that keeps the last processor of ours busy."""
    processor = max(os.sched_getaffinity(0))
    code = f"import os\nos.sched_setaffinity(0, [{processor}])\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        try:
            yield
        finally:
            process.kill()


class Tests:
    """The tests by name: each gives the values of its metrics for one engine."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.prompt, self.output = options.prompt_tokens, options.output_tokens
        self.prefill_length, self.context_length = options.prefill_tokens, options.context_tokens
        self.warm: set[str] = set()

    def decode_points(self, *prompts: int) -> list[Point]:
        return [Point("decode", prompt, self.output) for prompt in prompts]

    def decode(self, engine: Engine) -> dict[str, float]:
        [rate] = engine.rates(self.decode_points(self.prompt))
        return {f"decode, {self.prompt} + {self.output}, tokens/s": rate}

    def prefill(self, engine: Engine) -> dict[str, float]:
        [rate] = engine.rates([Point("prefill", self.prefill_length)])
        return {f"prefill, {self.prefill_length}, tokens/s": rate}

    def first_token(self, engine: Engine) -> dict[str, float]:
        if engine.label not in self.warm:
            engine.start(self.prompt, 8)
            self.warm.add(engine.label)
        seconds = engine.start(self.prompt, 8).first_token_s
        return {f"launch to first token, {self.prompt}, ms": seconds * 1000}

    def context(self, engine: Engine) -> dict[str, float]:
        short, long = engine.rates(self.decode_points(self.prompt, self.context_length))
        lengths = (self.prefill_length, self.context_length)
        short_prefill, long_prefill = engine.rates([Point("prefill", n) for n in lengths])
        return {
            f"decode behind {self.context_length} / {self.prompt}": long / short,
            f"prefill of {self.context_length} / {self.prefill_length}": (
                long_prefill / short_prefill
            ),
        }

    def memory(self, engine: Engine) -> dict[str, float]:
        peak = engine.start(self.prompt, self.output).peak_mb
        known = engine.weights_and_cache_mb(self.prompt + self.output)
        return {"peak memory, MB": peak, "weights + cache, MB": known}

    def stolen_core(self, engine: Engine) -> dict[str, float]:
        [alone] = engine.rates(self.decode_points(self.prompt))
        with spinning_process():
            [beside] = engine.rates(self.decode_points(self.prompt))
        return {"decode, a core stolen / undisturbed": beside / alone}


TESTS = ("decode", "prefill", "first_token", "context", "memory", "stolen_core")


def run_rounds(
    engines: list[Engine], tests: list[tuple[str, Callable]], rounds: int
) -> tuple[Values, list[str]]:
    values: Values = {}
    failures = []
    for i in range(rounds):
        first = i % len(engines)
        for name, test in tests:
            for engine in engines[first:] + engines[:first]:
                print(f"round {i + 1}: {name}, {engine.label}", file=sys.stderr, flush=True)
                try:
                    results = test(engine)
                except EngineError as error:
                    failures.append(f"round {i + 1}, {name}, {engine.label}: {error}")
                    continue
                for metric, value in results.items():
                    row = values.setdefault(metric, {e.label: [None] * rounds for e in engines})
                    row[engine.label][i] = value
    return values, failures


def ratios_of(values: Values, pairs: list[tuple[str, str]]) -> Values:
    """Of the rounds that both engines finished."""
    ratios: Values = {}
    for metric, row in values.items():
        for ours, theirs in pairs:
            both = zip(row[ours], row[theirs], strict=True)
            found = [a / b for a, b in both if a is not None and b is not None]
            ratios.setdefault(metric, {})[f"{ours}/{theirs}"] = found
    return ratios


def number(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def spread(values: list[float | None]) -> str:
    found = [value for value in values if value is not None]
    if not found:
        return "failed"
    middle, low, high = statistics.median(found), min(found), max(found)
    return f"{number(middle)} ({number(low)} to {number(high)})"


def markdown(values: Values, ratios: Values) -> str:
    lines = ["| | engine | median (range) |", "|---|---|---|"]
    for metric, row in values.items():
        lines += [f"| {metric} | {label} | {spread(found)} |" for label, found in row.items()]
    if any(ratios.values()):
        lines += ["", "| | ratio | median (range) |", "|---|---|---|"]
    for metric, row in ratios.items():
        lines += [f"| {metric} | {pair} | {spread(found)} |" for pair, found in row.items()]
    return "\n".join(lines)


def parse_options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for flag, model in (("pinfer", "BUNDLE"), ("llama", "GGUF"), ("vllm", "DIR"),
                        ("openvino", "DIR")):  # fmt: skip
        parser.add_argument(f"--{flag}", action="append", default=[], metavar=f"LABEL={model}")
    for flag, default in (("pinfer-binary", "pinfer"), ("llama-bench", "llama-bench"),
                          ("llama-completion", "llama-completion"), ("vllm-python", "python3"),
                          ("openvino-python", "python3")):  # fmt: skip
        parser.add_argument(f"--{flag}", default=default, metavar="PATH")
    parser.add_argument("--vllm-options", default="", help="for vllm_worker.py, as =--eager")
    parser.add_argument("--vllm-preload", default="", help="its tcmalloc and libiomp5.so, by ':'")
    parser.add_argument("--ratio", action="append", default=[], metavar="LABEL/LABEL")
    parser.add_argument("--tests", default=",".join(TESTS))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=900, help="seconds for one process")
    parser.add_argument("--json", type=Path)
    for flag, size in (("prompt", 32), ("output", 128), ("prefill", 512), ("context", 4096)):
        parser.add_argument(f"--{flag}-tokens", type=int, default=size)
    options = parser.parse_args(arguments)
    unknown = set(options.tests.split(",")) - set(TESTS)
    if unknown:
        parser.error(f"--tests: expected some of {', '.join(TESTS)}, found {min(unknown)!r}")
    settings = Settings(options.threads, options.timeout)

    def make(flag: str, kind: type[Engine], *programs: str) -> list[Engine]:
        engines = []
        for text in getattr(options, flag):
            label, found, model = text.partition("=")
            if not (label and found and Path(model).exists()):
                parser.error(f"--{flag}: expected LABEL=PATH of what exists, found {text!r}")
            engines.append(kind(label, model, settings, *programs))
        return engines

    options.engines = [
        *make("pinfer", Pinfer, options.pinfer_binary),
        *make("llama", LlamaCpp, options.llama_bench, options.llama_completion),
        *make("vllm", Vllm, options.vllm_python, options.vllm_options, options.vllm_preload),
        *make("openvino", OpenVino, options.openvino_python),
    ]
    labels = [engine.label for engine in options.engines]
    if not labels or len(labels) != len(set(labels)):
        parser.error(f"expected engines with labels of their own, found {labels}")
    options.pairs = []
    for text in options.ratio:
        ours, _, theirs = text.partition("/")
        if ours not in labels or theirs not in labels:
            parser.error(f"--ratio: expected two of {', '.join(labels)}, found {text!r}")
        options.pairs.append((ours, theirs))
    return options


def main(arguments: list[str] | None = None) -> int:
    options = parse_options(arguments)
    tests = Tests(options)
    state = MachineState()
    values, failures = run_rounds(
        options.engines,
        [(name, getattr(tests, name)) for name in TESTS if name in options.tests.split(",")],
        options.rounds,
    )
    ratios = ratios_of(values, options.pairs)
    print(markdown(values, ratios))
    print(f"\n{options.rounds} rounds, {options.threads} threads, {state.text()}")
    for failure in failures:
        print(f"failed: {failure}")
    if options.json:
        results = {"rounds": options.rounds, "threads": options.threads, "machine": state.summary(),
                   "values": values, "ratios": ratios, "failures": failures}  # fmt: skip
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
