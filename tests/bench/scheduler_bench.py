"""One step (schedule and update) of N running decode requests in the Python scheduler, and how many
times faster the C++ one is.

Usage: python scheduler_bench.py [SCHEDULER_BENCH]   (the program built from scheduler_bench.cc)
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time

from pinfer.runtime.core.engine_config import EngineConfig
from pinfer.runtime.core.model_runner_output import ModelRunnerOutput, SampledToken
from pinfer.runtime.core.request import Request, RequestOptions
from pinfer.runtime.core.sampling_params import SamplingParams
from pinfer.runtime.scheduler.scheduler import Scheduler

NUM_REQUESTS = 256
PROMPT_LENGTH = 100
NUM_RUNS = 7
STEPS_PER_RUN = 64  # a multiple of the block size: each request gets the same number of blocks


def make_scheduler() -> Scheduler:
    max_tokens = STEPS_PER_RUN * (NUM_RUNS + 2)
    blocks_each = (PROMPT_LENGTH + max_tokens) // 16 + 1
    config = EngineConfig(
        max_model_len=1 << 30,
        max_num_seqs=NUM_REQUESTS,
        max_num_batched_tokens=NUM_REQUESTS * PROMPT_LENGTH,
        num_blocks=1 + NUM_REQUESTS * blocks_each,
    )
    scheduler = Scheduler(config)
    for index in range(NUM_REQUESTS):
        prompt = [index + position for position in range(PROMPT_LENGTH)]
        params = SamplingParams(max_tokens=max_tokens)
        options = RequestOptions(eos_token_ids=[0])
        scheduler.add_request(Request(f"request-{index}", prompt, params, options))
    return scheduler


def python_step_us() -> list[float]:
    """Microseconds of a step, for each run; the first run warms up."""
    scheduler = make_scheduler()
    output = scheduler.schedule()
    sampled = ModelRunnerOutput([SampledToken(r.request_id, 7) for r in output.scheduled_requests])
    scheduler.update_from_output(output, sampled)
    runs = []
    for _ in range(NUM_RUNS + 1):
        start = time.perf_counter()
        for _ in range(STEPS_PER_RUN):
            outputs = scheduler.update_from_output(scheduler.schedule(), sampled)
        runs.append((time.perf_counter() - start) * 1e6 / STEPS_PER_RUN)
        assert len(outputs) == NUM_REQUESTS
        assert all(output.new_token_ids == [7] for output in outputs)
    return runs[1:]


def cpp_step_us(program: str) -> list[float]:
    command = [
        program,
        f"--benchmark_filter=BM_DecodeStep/{NUM_REQUESTS}$",
        f"--benchmark_repetitions={NUM_RUNS}",
        "--benchmark_format=json",
    ]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [
        run["real_time"]
        for run in json.loads(output)["benchmarks"]
        if run["run_type"] == "iteration"
    ]


def report(name: str, runs: list[float]) -> float:
    median = statistics.median(runs)
    print(f"{name}: median {median:.1f} us a step of {NUM_REQUESTS} requests", end="")
    print(f" ({min(runs):.1f} to {max(runs):.1f}, {len(runs)} runs)")
    return median


def main() -> None:
    python = report("Python", python_step_us())
    if len(sys.argv) > 1:
        cpp = report("C++", cpp_step_us(sys.argv[1]))
        print(f"C++ is {python / cpp:.0f} times faster")


if __name__ == "__main__":
    main()
