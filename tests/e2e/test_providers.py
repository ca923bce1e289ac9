"""One engine source, two providers, any process: the ids are the same."""

import os
import random
import subprocess
import threading

import pytest
import torch

import pinfer


def mixed_requests(seed=0):
    """64 requests of many kinds: lengths, greedy and seeded, penalties, stop ids."""
    generator = random.Random(seed)
    requests = []
    for i in range(64):
        prompt = [generator.randrange(3, 259) for _ in range(generator.randint(1, 150))]
        params = {"max_tokens": generator.randint(1, 60), "ignore_eos": i % 3 == 0}
        if i % 2:
            params |= {"temperature": 0.0}
        else:
            params |= {"temperature": 1.3, "seed": i, "top_p": 0.9, "top_k": (0, 40)[i % 4 == 0]}
        if i % 5 == 0:
            params |= {"repetition_penalty": 1.2, "presence_penalty": 0.5}
        requests.append((prompt, params))
    return requests


def ids_of(bundle, **options):
    with pinfer.Engine(bundle, threads=2, num_blocks=100, **options) as engine:
        assert engine.info["provider"] == options.get("provider", "native")
        generations = [engine.submit(prompt, **params) for prompt, params in mixed_requests()]
        return [generation.wait().token_ids for generation in generations]


@pytest.fixture(scope="module")
def native_ids(tied_bundle):
    """In a process that has imported torch, as this one."""
    return ids_of(tied_bundle)


def test_providers_give_the_same_ids(tied_bundle, native_ids):
    assert ids_of(tied_bundle, provider="torch") == native_ids


def test_two_engines_in_one_process(tied_bundle, native_ids):
    results = {}

    def work(name, **options):
        results[name] = ids_of(tied_bundle, **options)

    threads = [
        threading.Thread(target=work, args=("native",)),
        threading.Thread(target=work, args=("torch",), kwargs={"provider": "torch"}),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {"native": native_ids, "torch": native_ids}


def test_beside_a_busy_libtorch(tied_bundle, native_ids):
    """Another thread runs a torch model, with libgomp's threads, all the time."""
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.Linear(256, 8))
    stop = threading.Event()
    outputs = []

    def work():
        x = torch.ones(64, 256)
        with torch.no_grad():
            while not stop.is_set():
                outputs.append(float(model(x).sum()))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        assert ids_of(tied_bundle) == native_ids
    finally:
        stop.set()
        thread.join()
    assert len(set(outputs)) == 1


def test_torch_that_is_not_there(request, tied_bundle, tmp_path):
    environment = {**os.environ, "PINFER_TORCH_LIB": str(tmp_path)}
    result = subprocess.run(
        [request.getfixturevalue("pinfer"), "run", tied_bundle, "-p", "x", "--provider", "torch"],
        capture_output=True, text=True, env=environment,
    )  # fmt: skip
    assert result.returncode == 1
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("pinfer: error: --provider torch: libtorch_cpu.so not found")
    assert str(tmp_path) in last and "PINFER_TORCH_LIB" in last
