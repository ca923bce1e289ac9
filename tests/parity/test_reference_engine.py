"""The reference engine and the C++ engine give the same ids over the same bundle."""

import random

import pytest
import tiny_models

import pinfer
from pinfer.runtime.core.engine_config import EngineConfig
from pinfer.runtime.core.kv_cache_config import make_kv_cache_config
from pinfer.runtime.core.sampling_params import SamplingParams
from pinfer.runtime.core.scheduler_output import ScheduledKind, ScheduledRequest, SchedulerOutput
from pinfer.runtime.engine.engine import Engine
from pinfer.runtime.executor.model import Model
from pinfer.runtime.executor.model_runner import ModelRunner

NO_TOKEN = range(259, 400)


@pytest.fixture(scope="module", params=sorted(tiny_models.VARIANTS))
def bundle(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("reference")
    checkpoint = tiny_models.make_checkpoint(request.param, folder)
    path = folder / "bundle"
    tiny_models.export(checkpoint, path, "--dtype", "float32")
    return path


def requests():
    generator = random.Random(1)
    for i in range(12):
        prompt = [generator.randrange(3, 259) for _ in range(generator.randint(1, 90))]
        greedy = i % 2 == 0
        yield (
            prompt,
            {
                "max_tokens": generator.randint(1, 40),
                "temperature": 0.0 if greedy else 1.2,
                "seed": None if greedy else i,
                "top_k": 0 if i % 3 else 50,
                "top_p": 1.0 if i % 4 else 0.9,
                "ignore_eos": i % 3 == 0,
                "logprobs": 2,
                "prompt_logprobs": 1 if i < 4 else None,
            },
        )


@pytest.mark.parametrize("async_scheduling", [False, True])
def test_same_ids_and_log_probabilities(bundle, async_scheduling):
    """One of the two schedules asynchronously, which changes nothing."""
    cases = list(requests())
    # Small, so that prompts are chunked and requests are preempted.
    config = EngineConfig(
        max_model_len=160, num_blocks=24, max_num_batched_tokens=48, max_num_seqs=6,
        async_scheduling=not async_scheduling,
    )  # fmt: skip
    vocab_size = Engine(bundle)._core._executor._model.vocab_size
    reference = Engine(bundle, config, [i for i in NO_TOKEN if i < vocab_size])
    expected = reference.generate(
        [prompt for prompt, _ in cases], [SamplingParams(**params) for _, params in cases]
    )
    with pinfer.Engine(
        bundle, max_model_len=160, num_blocks=24, max_num_batched_tokens=48, max_num_seqs=6,
        async_scheduling=async_scheduling,
    ) as engine:  # fmt: skip
        generations = [
            engine.submit(prompt, **{k: v for k, v in params.items() if v is not None})
            for prompt, params in cases
        ]
        found = [generation.wait() for generation in generations]
    for wanted, answer in zip(expected, found, strict=True):
        assert answer.token_ids == wanted.token_ids
        assert answer.finish_reason == wanted.finish_reason
        for name in ("logprobs", "prompt_logprobs"):
            ours, theirs = getattr(answer, name), getattr(wanted, name)
            assert len(ours) == len(theirs)
            for a, b in zip(ours, theirs, strict=True):
                assert abs(a.logprob - b.chosen) < 1e-4
                assert [i for i, _ in a.top] == [i for i, _ in b.top]


def test_groups_of_layers_change_no_bit(bundle):
    """Layers of different groups share tensors; the windows mean nothing else here."""
    model = Model(bundle)
    tokens = [3 + i % 200 for i in range(60)]
    found = []
    for windows in ([0] * len(model.layers), [32 * (i % 2) for i in range(len(model.layers))]):
        config = make_kv_cache_config(windows, model.block_size, 512)
        runner = ModelRunner(model, config, 20)
        tables = [[5, 9, 1, 12], [7, 3, 2, 8], [4, 6, 10, 11]][: config.num_groups]
        for start, stop, kind in ((0, 37, ScheduledKind.NEW), (37, 60, ScheduledKind.RUNNING)):
            held, needed = -(-start // model.block_size), -(-stop // model.block_size)
            step = SchedulerOutput(
                [
                    ScheduledRequest(
                        "a",
                        kind,
                        start,
                        tokens[start:stop],
                        [table[held:needed] for table in tables],
                        samples=True,
                    )
                ]
            )
            runner.execute_model(step)
            found.append(runner.compute_logits(step.sampled_rows()))
    assert found[0].equal(found[2]) and found[1].equal(found[3])
    assert found[0].isfinite().all()
