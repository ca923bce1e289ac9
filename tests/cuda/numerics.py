"""Computes log-probabilities with a bundle for CUDA, every kernel on the CPU. Prints JSON.

Usage: numerics.py BUNDLE KERNELS PROMPT   (both JSON: {name: [Triton source, block sizes]}, ids)
"""

import ctypes
import json
import os
import sys
import traceback
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "1"

from drive import FakeDriver
from launcher import Kernel

import pinfer

LAUNCHER = ctypes.CFUNCTYPE(
    None, ctypes.c_char_p, ctypes.POINTER(ctypes.c_uint32), ctypes.POINTER(ctypes.c_void_p),
    ctypes.c_int32,
)  # fmt: skip


def main():
    bundle, kernels, prompt = (
        sys.argv[1],
        *map(json.loads, (Path(sys.argv[2]).read_text(), sys.argv[3])),
    )
    compiled = {name: Kernel(name, *entry) for name, entry in kernels.items()}
    driver = FakeDriver()
    driver.reset()
    extent = driver.library.fake_cuda_extent
    extent.argtypes, extent.restype = [ctypes.c_void_p], ctypes.c_uint64
    failures = []

    def launch(name, grid, parameters, count):
        try:
            compiled[name.decode()].run([grid[i] for i in range(3)], parameters[:count], extent)
        except BaseException:
            failures.append(f"{name.decode()}: {traceback.format_exc()}")

    callback = LAUNCHER(launch)
    driver.library.fake_cuda_set_launcher(callback)
    # What no kernel has written is NaN.
    driver.library.fake_cuda_set_fill(ctypes.c_uint8(0xFF))

    def compute(async_scheduling):
        with pinfer.Engine(
            bundle, max_num_batched_tokens=64, max_num_seqs=8, num_blocks=40,
            async_scheduling=async_scheduling,
        ) as engine:  # fmt: skip
            scored = [each.logprob for each in engine.score(prompt)]
            generated = engine.generate(
                prompt, max_tokens=8, temperature=0, ignore_eos=True, logprobs=1
            )
            # In steps of several requests, recorded and started again.
            crowd = engine.batch(
                [prompt[: 4 + i] for i in range(3)], max_tokens=5, temperature=0, ignore_eos=True,
                logprobs=1,
            )  # fmt: skip
        return {
            "scored": scored,
            "generated": [generated.token_ids, [each.logprob for each in generated.logprobs]],
            "crowd": [[each.token_ids, [p.logprob for p in each.logprobs]] for each in crowd],
        }

    result = compute(async_scheduling=0)
    overlapped = compute(async_scheduling=1)
    same = {"is_same_overlapped": overlapped == result}
    print(json.dumps({**result, **same, "failures": failures[:3], **driver.state()}))


if __name__ == "__main__":
    main()
