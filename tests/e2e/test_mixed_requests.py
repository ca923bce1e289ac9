"""Requests with all kinds of parameters at once: each gets what it gets alone."""

import dataclasses
import random
import time

import pytest

import pinfer as binding

VOCAB = (3, 259)


def mixed_requests():
    """(prompt, parameters) of requests that differ in everything."""
    generator = random.Random(0)

    def ids(count):
        return [generator.randrange(*VOCAB) for _ in range(count)]

    shared = ids(40)
    base = {"ignore_eos": True, "max_tokens": 24, "logprobs": 3}
    sampled = {**base, "temperature": 1.3}
    return [
        (ids(1), {**base, "temperature": 0.0}),
        (ids(200), {**base, "temperature": 0.0, "max_tokens": 30}),
        (ids(17), {**base, "temperature": 0.0, "frequency_penalty": 1.5, "presence_penalty": 1.0}),
        (ids(16), {**base, "temperature": 0.0, "repetition_penalty": 1.8}),
        (ids(33), {**base, "temperature": 0.0, "logit_bias": {50: 6.0, 51: -100.0, 60: 5.5}}),
        (shared + ids(3), {**sampled, "seed": 1, "top_p": 0.7}),
        (shared + ids(3), {**sampled, "seed": 1, "top_p": 0.7, "logit_bias": {50: 3.0}}),
        (shared + ids(9), {**sampled, "seed": 1, "top_p": 0.7, "frequency_penalty": -1.0}),
        (shared, {**sampled, "seed": 2, "top_k": 5, "prompt_logprobs": 2}),
        (shared, {**sampled, "seed": -3, "min_p": 0.2, "logprobs": 0}),
        (shared[:32], {**sampled, "seed": 2**62, "top_k": 20, "top_p": 0.9, "min_p": 0.01}),
        (ids(5), {**sampled, "seed": 5, "allowed_token_ids": list(range(40, 60))}),
        (ids(64), {**sampled, "seed": 6, "repetition_penalty": 0.7, "presence_penalty": 2.0}),
        (ids(15), {**sampled, "seed": 7, "stop_token_ids": list(range(3, 30))}),
        (ids(48), {"temperature": 0.8, "seed": 8, "max_tokens": 12, "min_tokens": 6}),
        (ids(31), {**base, "temperature": 0.0, "prompt_logprobs": 0, "max_tokens": 1}),
    ]  # fmt: skip


def results(output):
    """All that a request got, but for how much of its prompt was found in the cache."""
    return dataclasses.replace(output, num_cached_tokens=0)


@pytest.fixture(scope="module")
def alone(tied_bundle):
    """One after another, in an engine that keeps nothing between them."""
    with binding.Engine(tied_bundle, threads=1, enable_prefix_caching=False) as engine:
        return [results(engine.generate(p, **options)) for p, options in mixed_requests()]


def test_the_parameters_matter(alone):
    """Equal results would prove nothing if they were equal anyhow."""
    texts = [tuple(output.token_ids) for output in alone]
    assert len(set(texts)) == len(texts)
    prompts = [tuple(prompt) for prompt, _ in mixed_requests()]
    assert len(set(prompts)) < len(prompts)


ENGINES = {
    "roomy": {},
    "crowded": {"num_blocks": 18, "max_num_batched_tokens": 24, "max_num_seqs": 16},
    "chunks": {"max_num_batched_tokens": 16, "max_num_seqs": 8},
}
ENGINES |= {
    f"{name}_async": {**options, "async_scheduling": 1} for name, options in ENGINES.items()
}


def check_orders(bundle, alone, options, seeds):
    requests = mixed_requests()
    with binding.Engine(bundle, threads=2, **options) as engine:
        for seed in seeds:
            generator = random.Random(seed)
            order = generator.sample(range(len(requests)), len(requests))
            running = {}
            for i in order:
                prompt, parameters = requests[i]
                running[i] = engine.submit(prompt, **parameters)
                time.sleep(generator.choice((0, 0, 0.001, 0.004)))
            for i in order:
                assert results(running[i].wait()) == alone[i], (seed, i)
        return engine.metrics()


@pytest.mark.parametrize("name", ENGINES)
def test_shuffled_and_staggered(tied_bundle, alone, name):
    """sch-batch-crosstalk: ids, texts and log-probabilities, bit for bit."""
    metrics = check_orders(tied_bundle, alone, ENGINES[name], range(20))
    assert metrics["prefix_cache_hits"] > 0
    if name.startswith("crowded"):
        assert metrics["num_preemptions"] > 0


# ---- sch-prefix-hit-logprobs ----


@pytest.mark.parametrize("budget", [8, 2048])
def test_prompt_log_probabilities_among_hits(tied_bundle, budget):
    """Prompts around the block size, thrice each, between the same without log-probabilities and
    longer ones; the second time more of them are asked for."""
    generator = random.Random(1)
    whole = [generator.randrange(*VOCAB) for _ in range(40)]
    options = {"max_tokens": 1, "temperature": 0.0}
    lengths = (15, 16, 17, 32, 33)
    with binding.Engine(tied_bundle, threads=1, enable_prefix_caching=False) as engine:
        expected = {
            (n, top): results(
                engine.generate(whole[:n], prompt_logprobs=top, logprobs=top, **options)
            )
            for n in lengths
            for top in (1, 2, 5)
        }
    for (n, top), output in expected.items():
        assert len(output.prompt_logprobs) == n - 1 and len(output.logprobs) == 1
        assert all(len(entry.top) == top for entry in output.prompt_logprobs)
    with binding.Engine(
        tied_bundle, threads=1, max_num_batched_tokens=budget, max_num_seqs=8
    ) as engine:
        for n in generator.sample(lengths * 3, 15):
            for top in (1, None, 5, 2):
                running = engine.submit(whole, **options)
                plain = {} if top is None else {"prompt_logprobs": top, "logprobs": top}
                output = engine.generate(whole[:n], **plain, **options)
                running.wait()
                assert output.num_cached_tokens < n and output.num_cached_tokens % 16 == 0
                if top is None:
                    assert output.token_ids == expected[n, 1].token_ids
                    assert output.num_cached_tokens == (n - 1) // 16 * 16
                else:
                    assert results(output) == expected[n, top]
        assert engine.metrics()["prefix_cache_hits"] > 0
