"""The common part of vllm_worker.py and openvino_worker.py: standard library only.

Usage of a worker: MODEL --threads N [--whole] [its own options] PROMPT:OUTPUT...

Prints a JSON list of {"prompt_tokens", "output_tokens", "first_token_s", "decode_s"}, one for each
PROMPT:OUTPUT, which is measured after a run that warms up. With --whole nothing warms up, and a
line comes first as soon as the first token is there: what the launch of the process took.
"""

import argparse
import json
import os
import random
import sys
from collections.abc import Callable
from typing import NamedTuple


class Generated(NamedTuple):
    output_tokens: int
    first_token_s: float
    decode_s: float  # after the first token


class Model:
    """A loaded model."""

    def generate(self, prompt: list[int], output_tokens: int) -> Generated:
        """Greedy, the end of text ignored, no prefix taken from a cache."""
        raise NotImplementedError


def make_prompt(num_tokens: int, seed: int) -> list[int]:
    """Ids that every vocabulary has; no two prompts share their beginning."""
    numbers = random.Random(seed)
    return [numbers.randrange(100, 1100) for _ in range(num_tokens)]


def run_worker(
    load: Callable[[argparse.Namespace], Model], parser: argparse.ArgumentParser
) -> None:
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("points", nargs="+")
    arguments = parser.parse_args()
    # Packages log to stdout; what this script says goes past them.
    own_stdout = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    model = load(arguments)
    results = []
    for seed, point in enumerate(arguments.points):
        prompt_tokens, output_tokens = map(int, point.split(":"))
        if arguments.whole:
            model.generate(make_prompt(prompt_tokens, 2 * seed), 1)
            print("first token", file=own_stdout, flush=True)
        else:
            model.generate(make_prompt(prompt_tokens, 2 * seed), min(output_tokens, 8))
        prompt = make_prompt(prompt_tokens, 2 * seed + 1)
        generated = model.generate(prompt, output_tokens)
        results.append({"prompt_tokens": len(prompt), **generated._asdict()})
    print(json.dumps(results), file=own_stdout, flush=True)
    own_stdout.close()
