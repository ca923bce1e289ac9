"""Requests that share a cache that is too small for all of them."""

import random
import time

import pinfer


def crowd(vocab, seed, longest, most_tokens, count=64):
    """(prompt, max_tokens) of requests, half of them with one of two long beginnings."""
    generator = random.Random(seed)
    beginnings = [[generator.randrange(*vocab) for _ in range(longest // 2)] for _ in range(2)]
    for i in range(count):
        own = [generator.randrange(*vocab) for _ in range(generator.randint(1, longest // 2))]
        prompt = own if i % 2 else beginnings[i % 4 // 2] + own
        yield prompt, generator.randint(1, most_tokens)


def check_crowd(bundle, vocab, num_blocks, max_model_len, longest, most_tokens, count=64):
    """Many at once through few blocks, and strangers that come and go among them, against each
    alone in a cache of its own."""
    requests = list(crowd(vocab, 0, longest, most_tokens, count))
    options = {"temperature": 0.0, "ignore_eos": True}
    with pinfer.Engine(bundle, max_model_len=max_model_len, enable_prefix_caching=False) as engine:
        alone = [
            engine.generate(prompt, max_tokens=n, **options).token_ids for prompt, n in requests
        ]
    with pinfer.Engine(bundle, max_model_len=max_model_len, num_blocks=num_blocks) as engine:
        running = [engine.submit(prompt, max_tokens=n, **options) for prompt, n in requests]
        few = requests[: count // 4]
        strangers = [engine.submit(prompt, max_tokens=n, **options) for prompt, n in few]
        for i, stranger in enumerate(strangers):
            time.sleep(0.01 * (i % 3))
            stranger.abort()
        found = [generation.wait().token_ids for generation in running]
        for stranger in strangers:
            stranger.wait()
        metrics = engine.metrics()
    assert found == alone
    assert metrics["num_preemptions"] > 0 and metrics["prefix_cache_hits"] > 0
    assert metrics["num_free_blocks"] == metrics["num_usable_blocks"] == num_blocks - 1
    print(f"{metrics['num_preemptions']} preemptions, {metrics['prefix_cache_hits']} tokens hit")
