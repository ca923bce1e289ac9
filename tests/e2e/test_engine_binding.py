"""pinfer.Engine: the C++ engine for Python programs, over a tiny bundle."""

import json
import math
import subprocess
import sys
import threading

import pytest

import pinfer
from pinfer.runtime.binding import c_api

PROMPT = list(range(3, 40))


@pytest.fixture(scope="module")
def engine(tied_bundle):
    with pinfer.Engine(tied_bundle, threads=2) as opened:
        yield opened


def greedy(max_tokens=8, **more):
    return {"temperature": 0.0, "max_tokens": max_tokens, "ignore_eos": True, **more}


def test_importing_pinfer_imports_no_torch():
    code = "import sys, pinfer; print('torch' in sys.modules, 'numpy' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.split() == ["False", "False"], result.stderr


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("max_tokens", 2**32 + 2, "an integer of 32 bits"),
        ("priority", 2**32 + 1, "an integer of 32 bits"),
        ("seed", 2**64, "an integer of 64 bits"),
        ("stop", "a\0b", "a text without NUL"),
        ("cache_salt", "a\0b", "a text without NUL"),
    ],
)
def test_what_c_would_cut_off_is_refused(engine, field, value, expected):
    with pytest.raises(ValueError, match=f"{field}: expected {expected}, found"):
        engine.generate(PROMPT, **{field: value})


def test_generate_stream_and_batch_agree(engine):
    whole = engine.generate(PROMPT, **greedy())
    assert len(whole.token_ids) == 8 and whole.finish_reason == "length"
    assert whole.num_prompt_tokens == len(PROMPT)
    pieces = list(engine.stream(PROMPT, **greedy()))
    assert [i for piece in pieces for i in piece.token_ids] == whole.token_ids
    assert "".join(piece.text for piece in pieces) == whole.text
    assert pieces[-1].finish_reason == "length"
    prompts = [PROMPT[: i + 1] for i in range(20)] + [PROMPT]
    answers = engine.batch(prompts, **greedy())
    assert answers[-1].token_ids == whole.token_ids
    assert [answer.num_prompt_tokens for answer in answers] == [len(p) for p in prompts]


def test_text_round_trip(engine):
    ids = engine.tokenize("héllo wörld")
    assert engine.detokenize(ids) == "héllo wörld"
    assert engine.generate("hello", **greedy()).num_prompt_tokens == 5
    with pytest.raises(pinfer.Error, match="UTF-8") as refused:
        engine.tokenize("\ud800")
    assert refused.value.status == "invalid_argument"


def test_chat_needs_a_template(engine):
    with pytest.raises(pinfer.Error, match="no chat template") as refused:
        engine.chat([{"role": "user", "content": "hi"}])
    assert refused.value.status == "failed_precondition"


def test_log_probabilities(engine):
    answer = engine.generate(PROMPT, **greedy(logprobs=3, prompt_logprobs=2))
    assert len(answer.logprobs) == len(answer.token_ids)
    assert len(answer.prompt_logprobs) == len(PROMPT) - 1
    for token_id, entry in zip(answer.token_ids, answer.logprobs, strict=True):
        assert entry.top[0] == (token_id, entry.logprob)  # greedy
        assert [logprob for _, logprob in entry.top] == sorted(
            (logprob for _, logprob in entry.top), reverse=True
        )
    # The whole distribution: probabilities of all tokens that can be sampled sum to 1 or less.
    listed = engine.generate(PROMPT, **greedy(max_tokens=1, logprobs=10_000)).logprobs[0].top
    assert len(listed) == 259
    assert sum(math.exp(logprob) for _, logprob in listed) <= 1 + 1e-6
    assert engine.score(PROMPT, top=2) == answer.prompt_logprobs


@pytest.mark.parametrize("length", [15, 16, 17, 32, 33])
def test_prompt_log_probabilities_are_the_same_with_a_warm_cache(tied_bundle, length):
    prompt = [(7 * i) % 250 + 3 for i in range(length)]
    with pinfer.Engine(tied_bundle, enable_prefix_caching=False) as engine:
        expected = engine.score(prompt, top=2)
    with pinfer.Engine(tied_bundle, max_num_batched_tokens=8, max_num_seqs=8) as engine:
        for _ in range(3):
            engine.generate([*prompt, 9, 9], **greedy())
            assert engine.score(prompt, top=2) == expected
        assert engine.metrics()["prefix_cache_hits"] > 0


def test_biases_and_allowed_ids(engine):
    assert engine.generate(PROMPT, **greedy(logit_bias={77: 100.0})).token_ids == [77] * 8
    allowed = engine.generate(PROMPT, max_tokens=20, seed=3, allowed_token_ids=[5, 6])
    assert set(allowed.token_ids) <= {5, 6}


def test_stop_strings_and_seeds(engine):
    first = engine.generate(PROMPT, max_tokens=12, seed=11, temperature=1.5)
    assert engine.generate(PROMPT, max_tokens=12, seed=11, temperature=1.5) == first
    whole = engine.generate(PROMPT, **greedy(max_tokens=20)).text
    if len(whole) > 4:
        stop = whole[3:5]
        cut = engine.generate(PROMPT, **greedy(max_tokens=20, stop=stop))
        assert cut.text == whole[: whole.index(stop)] and cut.finish_reason == "stop"


def test_bad_arguments_name_themselves(engine, tied_bundle, tmp_path):
    with pytest.raises(TypeError, match="no_such_option"):
        pinfer.Engine(tied_bundle, no_such_option=1)
    with pytest.raises(TypeError, match="no_such_parameter"):
        engine.generate(PROMPT, no_such_parameter=1)
    with pytest.raises(pinfer.Error, match="temperature"):
        engine.generate(PROMPT, temperature=-1.0)
    with pytest.raises(pinfer.Error, match="context_length_exceeded"):
        engine.generate([5] * 256)
    with pytest.raises(pinfer.Error, match="token id 100000"):
        engine.generate([100_000])
    with pytest.raises(ValueError, match=str(2**33)):
        engine.generate([2**33])
    with pytest.raises(pinfer.Error, match="no such bundle"):
        pinfer.Engine(tmp_path / "nothing")
    with pytest.raises(pinfer.Error, match="scheduling_policy: expected one of fcfs, priority"):
        pinfer.Engine(tied_bundle, scheduling_policy="lifo")


def test_abort_time_out_and_close(tied_bundle):
    engine = pinfer.Engine(tied_bundle)
    running = engine.submit(PROMPT, **greedy(max_tokens=200))
    running.abort()
    assert running.wait().finish_reason in ("abort", "length")
    assert running.next() is None
    assert engine.drain(timeout=10)
    with pytest.raises(pinfer.Error, match="shutting down"):
        engine.generate(PROMPT)
    engine.close()
    engine.close()
    running.close()
    with pytest.raises(ValueError, match="closed"):
        engine.tokenize("x")


def test_log_and_progress(tied_bundle):
    lines, stages = [], []
    with pinfer.Engine(
        tied_bundle,
        log=lambda level, message: lines.append((level, message)),
        progress=lambda fraction, stage: stages.append((fraction, stage)),
    ):
        pass
    assert any(level == "info" and "loaded" in message for level, message in lines)
    assert stages[-1] == (1.0, "ready")
    assert [stage for _, stage in stages] == ["manifest", "text", "code", "ready"]


def test_many_threads_share_an_engine(engine):
    expected = {n: engine.generate(PROMPT[:n], **greedy()).token_ids for n in range(1, 9)}
    failures = []

    def work(n):
        for _ in range(10):
            if engine.generate(PROMPT[:n], **greedy()).token_ids != expected[n]:
                failures.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in expected]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_structs_are_as_large_as_the_header_says(engine):
    """A field that the binding lacks would shift the others: the library says the sizes."""
    library = c_api.library()
    for struct, init in (
        (c_api.EngineOptions, library.pinfer_engine_options_init),
        (c_api.SamplingParams, library.pinfer_sampling_params_init),
        (c_api.RequestOptions, library.pinfer_request_options_init),
        (c_api.EmbedOptions, library.pinfer_embed_options_init),
    ):
        size = c_api.ctypes.sizeof(struct)
        assert init(struct(), size) == c_api.OK, struct.__name__
        assert c_api.STATUS_NAMES[init(struct(), size - 1)] == "invalid_argument"


def test_info_and_metrics(engine):
    info = engine.info
    assert info["num_layers"] == 2 and info["threads"] == 2 and info["provider"] == "native"
    before = engine.metrics()
    engine.generate(PROMPT, **greedy())
    after = engine.metrics()
    assert after["generation_tokens"] == before["generation_tokens"] + 8
    assert after["requests_finished_length"] == before["requests_finished_length"] + 1
    assert json.loads(json.dumps(after)) == after


# Printed by a fresh process, so that nothing but the engine uses its heap.
OPEN_AND_CLOSE = """
import ctypes, gc, sys
import pinfer

class Mallinfo2(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks",
        "fordblks", "keepcost")]

libc = ctypes.CDLL(None)
libc.mallinfo2.restype = Mallinfo2

def used():
    gc.collect()
    info = libc.mallinfo2()
    return info.uordblks + info.hblkhd

def open_and_close(times):
    for _ in range(times):
        with pinfer.Engine(sys.argv[1], num_blocks=32, threads=1, provider=sys.argv[2]) as engine:
            engine.generate([5, 6, 7], max_tokens=2)

open_and_close(10)
before = used()
open_and_close(40)
print((used() - before) // 40)
"""


@pytest.mark.parametrize("provider", ["native", "torch"])
def test_a_closed_engine_leaves_nothing_on_the_heap(tied_bundle, provider):
    """Not even a handle of each weight, which compiled code takes and does not give back."""
    command = [sys.executable, "-c", OPEN_AND_CLOSE, tied_bundle, provider]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) < 512, f"{result.stdout.strip()} bytes are lost each time"
