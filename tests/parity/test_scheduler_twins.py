"""Random workloads: the two schedulers decide alike at every step, and what must hold for any
scheduler holds."""

import pytest
from cache_simulation import CacheSimulation
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from replay_traces import ENGINES

MAX_STEPS = 4000
EOS, STOP = 2, 3


def one_of(*values):
    return st.sampled_from(values)


@st.composite
def configs(draw):
    max_num_seqs = draw(st.integers(1, 8))
    block_size = draw(one_of(1, 2, 4, 16))
    windows = draw(layer_windows(block_size))
    return {
        "block_size": block_size,
        "num_blocks": 1
        + draw(st.integers(3, 23)) * draw(one_of(1, len(set(windows)), len(windows))),
        "max_num_seqs": max_num_seqs,
        "max_num_batched_tokens": draw(st.integers(max_num_seqs, 64)),
        "max_model_len": draw(st.integers(2, 12)) * block_size,
        "policy": draw(one_of("fcfs", "priority")),
        "enable_prefix_caching": draw(one_of(True, True, True, False)),
        "long_prefill_token_threshold": draw(one_of(0, 0, 1, 3, block_size, 2 * block_size + 1)),
        "watermark": draw(one_of(0.0, 0.0, 0.1, 0.4)),
        "scheduler_reserve_full_isl": draw(st.booleans()),
        "layer_windows": windows,
        "async_scheduling": draw(st.booleans()),
    }


@st.composite
def layer_windows(draw, block_size):
    """One group, several of one window, full attention beside one or two windows."""
    windows = [0, 1, 2, block_size, block_size + 1, 3 * block_size]
    if draw(st.booleans()):
        return draw(one_of([0], [0], [draw(st.sampled_from(windows))]))
    kinds = draw(st.lists(st.sampled_from(windows), min_size=1, max_size=3))
    return draw(st.lists(st.sampled_from(kinds), min_size=2, max_size=6))


@st.composite
def requests(draw, index, block_size):
    # Few first parts, so that prefixes meet; each may go on in its own way.
    shared = [1000 * draw(st.integers(1, 2)), draw(st.integers(0, 6 * block_size))]
    own = [10_000 + 100 * index, draw(st.integers(1, 2 * block_size))]
    num_outputs = draw(st.integers(1, 3 * block_size + 2))
    tokens = draw(st.lists(one_of(7, 8, 9, 7, 8, 9, EOS, STOP), min_size=1, max_size=num_outputs))
    request = {
        "request_id": f"r{index}",
        "arrival_step": draw(st.integers(0, 12)),
        "arrival_time": float(draw(st.integers(0, 5))),
        "priority": draw(st.integers(0, 2)),
        "prompt_ranges": [shared, own] if draw(st.booleans()) else [shared, [500, 1]],
        "max_tokens": num_outputs,
        "min_tokens": 0,
        "eos_token_id": EOS,
        "ignore_eos": draw(st.booleans()),
        "stop_token_ids": draw(one_of([], [STOP], [EOS])),
        "sampled_token_ids": (tokens * num_outputs)[:num_outputs],
        "abort_step": draw(one_of(None, None, None, draw(st.integers(0, 30)))),
        "abort_phase": draw(one_of("pre", "mid")),
        "cache_salt": draw(one_of("", "", "", "tenant")),
    }
    if draw(st.integers(0, 9)) == 0:
        request["fails_at"] = draw(st.integers(0, num_outputs - 1))
    return request


@st.composite
def workloads(draw):
    config = draw(configs())
    num_requests = draw(st.integers(1, 10))
    block_size = config["block_size"]
    return {
        "config": config,
        "requests": [draw(requests(index, block_size)) for index in range(num_requests)],
        "reset_prefix_cache_steps": draw(one_of([], [], [draw(st.integers(1, 20))])),
        "max_steps": MAX_STEPS,
    }


def has_ties(workload):
    """Under the priority policy, requests of one priority and one arrival time may preempt each
    other for ever, in vLLM's rules too; the engine gives every request an arrival time of its
    own."""
    keys = [(request["priority"], request["arrival_time"]) for request in workload["requests"]]
    return workload["config"]["policy"] == "priority" and len(set(keys)) < len(keys)


def check_result(workload, result):
    assert CacheSimulation(workload).problems(result) == []
    if has_ties(workload) and len(result["steps"]) == MAX_STEPS:
        return
    last = result["steps"][-1]
    assert last["running"] == [] and last["waiting"] == [], "a request never ended"
    usable = workload["config"]["num_blocks"] - 1
    assert sorted(result["final_free_block_ids"]) == list(range(1, usable + 1)), "blocks leaked"
    ended = [entry["request_id"] for step in result["steps"] for entry in step["finished"]]
    refused = [e["request_id"] for step in result["steps"] for e in step.get("refused", [])]
    assert sorted(ended + refused) == sorted(r["request_id"] for r in workload["requests"])
    if workload["config"]["policy"] == "fcfs":
        check_oldest_advances(result)


def check_oldest_advances(result):
    """Whatever has to give way, the request at the head of the running ones computes something."""
    running = []
    for step in result["steps"]:
        scheduled = [entry["request_id"] for entry in step["scheduled"]]
        aborted = {entry["request_id"] for entry in step["finished"]} - set(scheduled)
        left = [request_id for request_id in running if request_id not in aborted]
        if left:
            assert scheduled[:1] == left[:1], f"step {step['step']}"
        running = step["running"]


def run_both(workload):
    python, cpp = ENGINES["python"](workload), ENGINES["cpp"](workload)
    for expected, got in zip(python["steps"], cpp["steps"], strict=False):
        assert expected == got
    assert len(python["steps"]) == len(cpp["steps"])
    assert python["final_free_block_ids"] == cpp["final_free_block_ids"]
    assert python["final_cached_block_ids"] == cpp["final_cached_block_ids"]
    assert python["final_token_ids"] == cpp["final_token_ids"]
    assert python["final_stats"] == cpp["final_stats"]
    check_result(workload, python)


def results(workload, *, async_scheduling):
    """Of each request its tokens and its end, but for requests that are refused."""
    config = {**workload["config"], "async_scheduling": async_scheduling}
    result = ENGINES["cpp"]({**workload, "config": config, "reset_prefix_cache_steps": []})
    ends = {
        entry["request_id"]: (entry["finish_reason"], entry["stop_reason"])
        for step in result["steps"]
        for entry in step["finished"]
    }
    return result["final_token_ids"], ends


def check_async_changes_no_result(workload):
    assume(not has_ties(workload))
    for request in workload["requests"]:
        request["abort_step"] = None  # what it has got until then depends on the time
    expected = results(workload, async_scheduling=False)
    assert results(workload, async_scheduling=True) == expected


SETTINGS = {"deadline": None, "derandomize": True, "suppress_health_check": list(HealthCheck)}


@settings(max_examples=150, **SETTINGS)
@given(workload=workloads())
def test_twins_decide_alike(workload):
    run_both(workload)


@pytest.mark.slow
@settings(max_examples=5_000, **SETTINGS)
@given(workload=workloads())
def test_twins_decide_alike_long(workload):
    run_both(workload)


@settings(max_examples=150, **SETTINGS)
@given(workload=workloads())
def test_async_scheduling_changes_no_result(workload):
    check_async_changes_no_result(workload)


@pytest.mark.slow
@settings(max_examples=5_000, **SETTINGS)
@given(workload=workloads())
def test_async_scheduling_changes_no_result_long(workload):
    check_async_changes_no_result(workload)
