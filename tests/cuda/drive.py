"""Drives an engine over the fake CUDA driver; a program, since the driver is found by the dynamic
linker's path. Prints one JSON object.

Usage: drive.py BUNDLE MODE [OPTIONS as JSON]   with LD_LIBRARY_PATH naming the fakes
"""

import ctypes
import json
import sys

import pinfer

OUT_OF_MEMORY, LAUNCH_FAILED = 2, 719
ENGINE = {"max_num_batched_tokens": 64, "max_num_seqs": 8, "num_blocks": 40}
PROMPT = [5, 60, 61, 7, 200, 9, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53]


class Launch(ctypes.Structure):
    _fields_ = (
        ("kernel", ctypes.c_char_p),
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared_bytes", ctypes.c_uint32),
        ("is_captured", ctypes.c_bool),
    )


class FakeDriver:
    def __init__(self):
        self.library = ctypes.CDLL("libcuda.so.1")
        for name in ("faults", "alive", "failed_function"):
            getattr(self.library, f"fake_cuda_{name}").restype = ctypes.c_char_p
        for name in ("num_launches", "num_calls", "num_waits"):
            getattr(self.library, f"fake_cuda_{name}").restype = ctypes.c_int64
        self.library.fake_cuda_launch.restype = Launch
        self.library.fake_cuda_launch.argtypes = [ctypes.c_int64]
        self.library.fake_cuda_fail_at.argtypes = [ctypes.c_int64, ctypes.c_int32]
        self.library.fake_cuda_reset.argtypes = [
            ctypes.c_int32, ctypes.c_int32, ctypes.c_uint64, ctypes.c_int32,
        ]  # fmt: skip

    def reset(self, devices=1, arch=90, memory=256 << 20, version=13000):
        self.library.fake_cuda_reset(devices, arch, memory, version)

    def text(self, name):
        return getattr(self.library, f"fake_cuda_{name}")().decode()

    def launches(self):
        count = self.library.fake_cuda_num_launches()
        return [self.library.fake_cuda_launch(i) for i in range(count)]

    def state(self):
        return {"faults": self.text("faults"), "alive": self.text("alive")}


def generate(engine, **options):
    options = {"max_tokens": 21, "temperature": 0, "ignore_eos": True, **options}
    return engine.generate(PROMPT, **options)


def run(driver, bundle, options):
    """A prompt and decode steps, alone and in a crowd; what was launched in each."""
    driver.reset()
    logs = []
    engine = pinfer.Engine(
        bundle, log=lambda level, line: logs.append(line), **{**ENGINE, **options}
    )
    opened = driver.state()
    generated = generate(engine)
    launches = [
        [each.kernel.decode(), list(each.grid), list(each.block), each.shared_bytes,
         each.is_captured]
        for each in driver.launches()
    ]  # fmt: skip
    driver.library.fake_cuda_forget_launches()
    prompts = [PROMPT[: 3 + 2 * i] for i in range(8)]
    crowd = engine.batch(prompts, max_tokens=6, temperature=0, ignore_eos=True)
    # Once more: no step needs new buffers now.
    waits = driver.library.fake_cuda_num_waits()
    generate(engine)
    waits = driver.library.fake_cuda_num_waits() - waits
    # One is given up while it runs, another with the engine.
    first = engine.submit(PROMPT, max_tokens=60, temperature=0, ignore_eos=True)
    next(iter(first))
    first.abort()
    engine.submit(PROMPT, max_tokens=60, temperature=0, ignore_eos=True)
    engine.close()
    return {
        "opened": opened,
        "token_ids": generated.token_ids,
        "waits": waits,
        "crowd": [len(each.token_ids) for each in crowd],
        "launches": launches,
        "log": logs,
        **driver.state(),
    }


def inject(driver, bundle, options):
    """An error at each call in turn, of opening, a prompt, decode steps and a graph. only_steps:
    one error, and not of opening."""
    only_steps = options.pop("only_steps", False)

    def attempt(call, error):
        driver.reset()
        driver.library.fake_cuda_fail_at(call, error)
        outcome = {"error": "", "again": None}
        engine = None
        try:
            engine = pinfer.Engine(bundle, **{**ENGINE, **options})
            generate(engine, max_tokens=5)
        except pinfer.Error as failed:
            outcome["error"] = str(failed)
        if engine is not None:
            driver.library.fake_cuda_fail_at(-1, 0)
            outcome["again"] = len(generate(engine, max_tokens=5).token_ids)
            engine.close()
        return {**outcome, "function": driver.text("failed_function"), **driver.state()}

    driver.reset()
    engine = pinfer.Engine(bundle, **{**ENGINE, **options})
    first_call = driver.library.fake_cuda_num_calls() if only_steps else 0
    generate(engine, max_tokens=5)
    calls = driver.library.fake_cuda_num_calls()
    engine.close()
    return {
        "calls": calls,
        "outcomes": [
            {"call": call, **attempt(call, error)}
            for call in range(first_call, calls)
            for error in ((LAUNCH_FAILED,) if only_steps else (LAUNCH_FAILED, OUT_OF_MEMORY))
        ],
    }


def refuse(driver, bundle, options):
    """Why an engine does not open on each of some devices."""
    reasons = []
    for device in options["devices"]:
        driver.reset(**device)
        settings = {**ENGINE, **options.get("engine", {})}
        try:
            pinfer.Engine(bundle, **settings).close()
            reasons.append("")
        except pinfer.Error as failed:
            reasons.append(str(failed))
        assert driver.state() == {"faults": "", "alive": ""}, driver.state()
    return reasons


def main():
    bundle, mode = sys.argv[1:3]
    options = json.loads(sys.argv[3]) if len(sys.argv) > 3 else {}
    driver = FakeDriver()
    print(
        json.dumps({"run": run, "inject": inject, "refuse": refuse}[mode](driver, bundle, options))
    )


if __name__ == "__main__":
    main()
