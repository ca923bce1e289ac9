"""Decode and prefill of two builds of pinfer in turn: fails if the newer one is much slower.

Usage: regression.py BASE HEAD BUNDLE [--base-bundle BUNDLE] [--rounds N] [--threshold R]

BASE and HEAD are programs. The median of head's rates over base's, formed within each round, has to
reach the threshold, which is low enough for a busy machine. --base-bundle: for a base that does
not read head's bundles.
"""

from __future__ import annotations

import argparse
import statistics
import sys

from compare import ratios_of, run_rounds, spread
from engines import Engine, Pinfer, Point, Settings
from machine_state import MachineState


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("base", "head", "bundle"):
        parser.add_argument(name)
    parser.add_argument("--base-bundle")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--threshold", type=float, default=0.7)
    parser.add_argument("--prompt-tokens", type=int, default=128)
    parser.add_argument("--output-tokens", type=int, default=32)
    options = parser.parse_args(arguments)
    settings = Settings(options.threads)
    base = Pinfer("base", options.base_bundle or options.bundle, settings, options.base)
    head = Pinfer("head", options.bundle, settings, options.head)

    def rates(engine: Engine) -> dict[str, float]:
        [decode] = engine.rates([Point("decode", options.prompt_tokens, options.output_tokens)])
        [prefill] = engine.rates([Point("prefill", options.prompt_tokens)])
        return {"decode": decode, "prefill": prefill}

    state = MachineState()
    values, failures = run_rounds([base, head], [("rates", rates)], options.rounds)
    for metric, row in ratios_of(values, [("head", "base")]).items():
        [found] = row.values()
        print(f"{metric}, head/base: {spread(found)}")
        if not found or statistics.median(found) < options.threshold:
            failures.append(f"{metric}: expected at least {options.threshold} of base's rate")
    print(state.text())
    for failure in failures:
        print(f"failed: {failure}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
