"""vLLM for compare.py, run by a Python that has it: see worker.py.

Written against the sources of vLLM 0.32.0's CPU build; so far run only with a stand-in for the
package (tests/bench/test_compare.py). Its own options: --dtype, --eager (the fastest start, the
slower rates).
"""

import argparse
import os
import time

from worker import Generated, Model, run_worker


class VllmModel(Model):
    def __init__(self, arguments: argparse.Namespace) -> None:
        cpus = sorted(os.sched_getaffinity(0))[: arguments.threads]
        os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", ",".join(map(str, cpus)))
        os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")
        from vllm import EngineArgs, LLMEngine, SamplingParams

        self.SamplingParams = SamplingParams
        self.engine = LLMEngine.from_engine_args(
            EngineArgs(
                model=arguments.model,
                dtype=arguments.dtype,
                enforce_eager=arguments.eager,
                enable_prefix_caching=False,
            )
        )
        self.num_requests = 0

    def generate(self, prompt: list[int], output_tokens: int) -> Generated:
        params = self.SamplingParams(
            temperature=0, ignore_eos=True, min_tokens=output_tokens, max_tokens=output_tokens
        )
        self.num_requests += 1
        begin, first, count = time.perf_counter(), None, 0
        self.engine.add_request(str(self.num_requests), {"prompt_token_ids": prompt}, params)
        while self.engine.has_unfinished_requests():
            for output in self.engine.step():
                count = len(output.outputs[0].token_ids)
                if first is None and count:
                    first = time.perf_counter()
        end = time.perf_counter()
        return Generated(count, (first or end) - begin, end - (first or end))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--eager", action="store_true")
    run_worker(VllmModel, parser)
