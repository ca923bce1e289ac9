"""A model whose logits are known constants: penalties, biases, filters and log-probabilities."""

import math

import pytest
import successor_model

import pinfer as binding

A, B, C, D, E = 10, 20, 30, 40, 50
LOGITS = {A: 5.0, B: 4.0, C: 2.4, D: -1.0, E: -1.5}
# One request after another finds its prompt in the cache: more than a block of A's.
PROMPT = [A] * 40


@pytest.fixture(scope="module")
def engine(bundles):
    tokenizer = successor_model.byte_level()
    path = bundles.fixed_logits("known-logits", tokenizer, LOGITS)
    with binding.Engine(path, threads=1) as opened:
        yield opened


def greedy(engine, prompt=PROMPT, max_tokens=4, **options):
    return engine.generate(
        prompt, temperature=0.0, max_tokens=max_tokens, ignore_eos=True, **options
    ).token_ids


# ---- smp-penalty-scope ----


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [A, A, A, A]),
        # Of generated tokens alone: the first A is free.
        ({"presence_penalty": 2.0}, [A, B, A, A]),  # then 3, 2, 2.4 for good
        ({"frequency_penalty": 2.0}, [A, B, A, C]),  # 5 3 3 1, 4 4 2 2, 2.4
        ({"frequency_penalty": -2.0}, [A, A, A, A]),
        # Of the prompt too, once for each token: A is 2.5 from the start, B 2 from then on.
        ({"repetition_penalty": 2.0}, [B, A, A, A]),
        # Repetition first: A 2.5 (no A in the output), B 2 - 2 after it.
        ({"repetition_penalty": 2.0, "presence_penalty": 2.0}, [B, A, C, A]),
    ],
)
def test_what_penalties_count(engine, options, expected):
    for _ in range(2):
        assert greedy(engine, **options) == expected
    batch = engine.batch([PROMPT] * 3, temperature=0.0, max_tokens=4, ignore_eos=True, **options)
    assert [output.token_ids for output in batch] == [expected] * 3


def test_a_repeated_negative_logit_falls(engine):
    options = {"allowed_token_ids": [D, E], "repetition_penalty": 2.0}
    assert greedy(engine, [A, D], **options) == [E, D, D, D]  # D -2; then E -3
    assert greedy(engine, [A, E], **options) == [D, D, D, D]  # D -2, E -3


# ---- biases, filters ----


def test_biases_force_and_ban(engine):
    assert greedy(engine, logit_bias={E: 100.0}) == [E] * 4
    assert greedy(engine, logit_bias={A: -100.0}) == [B] * 4
    assert greedy(engine, logit_bias={A: -1.5}) == [B] * 4
    assert greedy(engine, logit_bias={A: -0.5}) == [A] * 4


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"top_k": 1}, {A}),
        ({"top_k": 2}, {A, B}),
        ({"top_p": 0.3}, {A}),  # A has 0.32 of it, all others but B and C together 0.55
        ({"top_p": 0.4}, {A, B}),
        ({"min_p": 0.5}, {A}),  # B is 1/e as likely
        ({"min_p": 0.3}, {A, B}),
        ({"min_p": 1.0}, {A}),
        ({"temperature": 1e-6}, {A}),
        ({"temperature": 0.05, "top_k": 2}, {A}),
    ],
)
def test_filters_keep_the_likely_tokens(engine, options, expected):
    options = {"temperature": 1.0, "max_tokens": 100, "ignore_eos": True, "seed": 1, **options}
    assert set(engine.generate(PROMPT, **options).token_ids) == expected


# ---- log-probabilities ----


def test_log_probabilities_are_those_of_the_raw_logits(engine):
    """Whatever temperature, penalties and biases make of them."""
    width = successor_model.VOCAB
    total = math.log(sum(map(math.exp, LOGITS.values())) + width - len(LOGITS))
    expected = {token: logit - total for token, logit in LOGITS.items()}
    changed = {"repetition_penalty": 2.0, "logit_bias": {B: -3.0}, "temperature": 0.7, "seed": 1}
    for options in ({"temperature": 0.0}, changed):
        output = engine.generate(
            PROMPT, max_tokens=3, ignore_eos=True, logprobs=3, prompt_logprobs=1, **options
        )
        for token, entry in zip(output.token_ids, output.logprobs, strict=True):
            assert [i for i, _ in entry.top] == [A, B, C]
            for i, logprob in entry.top:
                assert logprob == pytest.approx(expected[i], abs=1e-4)
            assert entry.logprob == pytest.approx(expected.get(token, -total), abs=1e-4)
        for entry in output.prompt_logprobs:
            assert entry.logprob == pytest.approx(expected[A], abs=1e-4)


# ---- a vocabulary that is padded: ids with an embedding, and without a token ----

PADDING = range(259, 300)


@pytest.fixture(scope="module")
def padded_engine(bundles):
    """Two ids without a token lead all others."""
    logits = {A: 5.0, B: 4.0, PADDING[0]: 7.0, PADDING[-1]: 9.0}
    path = bundles.fixed_logits("padded-vocabulary", successor_model.byte_level(), logits)
    with binding.Engine(path, threads=1) as opened:
        yield opened


def test_ids_without_a_token_are_never_said(padded_engine):
    """Nor listed, though their logits count where the probabilities of others are worked out."""
    assert greedy(padded_engine) == [A] * 4
    biased = {PADDING[-1]: 100.0, A: -100.0}
    assert greedy(padded_engine, logit_bias=biased) == [B] * 4
    total = sum(math.exp(x) for x in (5.0, 4.0, 7.0, 9.0)) + (successor_model.VOCAB - 4)
    for options in ({"temperature": 0.0}, {"temperature": 5.0, "seed": 3}, {"top_p": 0.2}):
        output = padded_engine.generate(
            PROMPT, max_tokens=40, ignore_eos=True, logprobs=20, prompt_logprobs=20, **options
        )
        assert set(output.token_ids).isdisjoint(PADDING)
        for entry in (*output.logprobs, *output.prompt_logprobs[1:]):
            assert len(entry.top) == 20 and {i for i, _ in entry.top}.isdisjoint(PADDING)
            assert entry.top[0] == (A, pytest.approx(5.0 - math.log(total), abs=1e-4))


def test_ids_without_a_token_in_a_prompt(padded_engine):
    """The model has a row for each; what follows is as after any other."""
    assert greedy(padded_engine, [A, PADDING[0], PADDING[-1]]) == [A] * 4
    with pytest.raises(binding.Error, match="300"):
        greedy(padded_engine, [A, successor_model.VOCAB])
    with pytest.raises(binding.Error):
        padded_engine.detokenize([A, PADDING[0]])
