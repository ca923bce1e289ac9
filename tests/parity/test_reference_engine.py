"""The reference engine and the C++ engine give the same ids over the same bundle."""

import random

import pytest
import tiny_models

import pinfer
from pinfer.runtime.core.engine_config import EngineConfig
from pinfer.runtime.core.sampling_params import SamplingParams
from pinfer.runtime.engine.engine import Engine

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


def test_same_ids_and_log_probabilities(bundle):
    cases = list(requests())
    # Small, so that prompts are chunked and requests are preempted.
    config = EngineConfig(
        max_model_len=160, num_blocks=24, max_num_batched_tokens=48, max_num_seqs=6
    )
    vocab_size = Engine(bundle)._core._executor._model.vocab_size
    reference = Engine(bundle, config, [i for i in NO_TOKEN if i < vocab_size])
    expected = reference.generate(
        [prompt for prompt, _ in cases], [SamplingParams(**params) for _, params in cases]
    )
    with pinfer.Engine(
        bundle, max_model_len=160, num_blocks=24, max_num_batched_tokens=48, max_num_seqs=6
    ) as engine:
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
