"""Models whose layers differ: random workloads that crowd the cache, and where prefix hits end."""

import random

import pytest
from cache_simulation import CacheSimulation
from replay_traces import ENGINES
from test_scheduler_twins import check_result, has_ties

from pinfer.runtime.scheduler.replay import read_kv_cache_config

# In blocks and tokens: (1, 1) is a window of a block and a token more.
LAYOUTS = (
    ((0, 0), (1, 0)),
    ((1, 1), (0, 0)),
    ((2, -1), (2, -1), (0, 0)),
    ((0, 1), (0, 1), (0, 1), (0, 0), (0, 1)),
    ((1, 0), (3, 0)),
    ((2, 0), (2, 0), (1, 1), (0, 0)),
    ((1, 1), (0, 0)) * 3,
    ((1, 0), (0, 2), (2, 1), (0, 0), (1, 0)),
)


def make_workload(seed):
    """A pool that holds one to three requests at their longest; prefixes meet often."""
    generator = random.Random(seed)
    pick = generator.choice
    block_size = pick((2, 4))
    max_num_seqs = generator.randint(2, 6)
    config = {
        "block_size": block_size,
        "max_model_len": 14 * block_size,
        "max_num_seqs": max_num_seqs,
        "max_num_batched_tokens": max_num_seqs + generator.randint(0, 8 * block_size),
        "policy": pick(("fcfs", "fcfs", "priority")),
        "enable_prefix_caching": generator.random() < 0.9,
        "long_prefill_token_threshold": pick((0, 0, 3, 2 * block_size + 1)),
        "watermark": pick((0.0, 0.0, 0.1)),
        "scheduler_reserve_full_isl": generator.random() < 0.5,
        "layer_windows": [
            max(0, n * block_size + more) for n, more in LAYOUTS[seed % len(LAYOUTS)]
        ],
        "num_blocks": 0,
    }
    # Windows stand in any order, so that layers of a group do too.
    generator.shuffle(config["layer_windows"])
    longest = read_kv_cache_config(config).max_blocks_held(
        config["max_model_len"] - 1, config["max_num_batched_tokens"]
    )
    config["num_blocks"] = 1 + int(longest * generator.uniform(1, 2.5))
    requests = [make_request(generator, index, block_size) for index in range(12)]
    return {"config": config, "requests": requests, "max_steps": 2000}


def make_request(generator, index, block_size):
    shared = [1000 * generator.randint(1, 2), generator.randint(0, 9 * block_size)]
    own = [10_000 + 100 * index, generator.randint(1, 3 * block_size)]
    num_outputs = generator.randint(1, 4 * block_size)
    request = {
        "request_id": f"r{index}",
        "arrival_step": generator.randint(0, 14),
        "arrival_time": float(index),
        "priority": generator.randint(0, 2),
        "prompt_ranges": [shared, own],
        "max_tokens": num_outputs,
        "cache_salt": generator.choice(("", "", "", "tenant")),
    }
    if generator.random() < 0.1:
        request["abort_step"] = generator.randint(0, 30)
        request["abort_phase"] = generator.choice(("pre", "mid"))
    if generator.random() < 0.15:
        request["fails_at"] = generator.randrange(num_outputs)
    return request


def check_workloads(engine, seeds):
    num_preemptions = num_hit_tokens = num_held_back = 0
    for seed in seeds:
        workload = make_workload(seed)
        assert not has_ties(workload)
        result = ENGINES[engine](workload)
        try:
            check_result(workload, result)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        num_preemptions += result["final_stats"]["num_preemptions"]
        num_hit_tokens += result["final_stats"]["prefix_cache_hit_tokens"]
        num_held_back += any(step["waiting"] and step["running"] for step in result["steps"])
    # Else the workloads are too easy to say anything.
    assert num_preemptions > len(seeds) / 2 and num_hit_tokens > 10 * len(seeds)
    assert num_held_back > len(seeds) / 2


def test_workloads_of_groups(engine):
    check_workloads(engine, range(120))


def test_twins_decide_alike_with_groups():
    for seed in range(120):
        workload = make_workload(seed)
        assert ENGINES["python"](workload) == ENGINES["cpp"](workload), f"seed {seed}"


@pytest.mark.slow
def test_twins_decide_alike_with_groups_long():
    for seed in range(1_000, 6_000):
        workload = make_workload(seed)
        result = ENGINES["python"](workload)
        assert result == ENGINES["cpp"](workload), f"seed {seed}"
        check_result(workload, result)


def replay(engine, requests, **config):
    trace = {
        "config": {
            "block_size": 4,
            "num_blocks": 60,
            "max_model_len": 100,
            "max_num_seqs": 4,
            "max_num_batched_tokens": 8,
            **config,
        },
        "requests": requests,
        "max_steps": 200,
    }
    result = ENGINES[engine](trace)
    assert CacheSimulation(trace).problems(result) == []
    return result


@pytest.mark.parametrize("layer_windows", [[10, 0], [0, 10, 10, 10], [10, 0, 3], [10, 18]])
@pytest.mark.parametrize("num_common", [3, 4, 8, 11, 12, 13, 24, 40])
def test_hits_inside_at_and_past_the_window(engine, layer_windows, num_common):
    """While nothing is evicted every whole block in common is found, however long ago it left the
    window of those who computed it."""
    first = {"request_id": "a", "prompt_ranges": [[100, 44]], "max_tokens": 1}
    second = {
        "request_id": "b",
        "arrival_step": 20,
        "prompt_ranges": [[100, num_common], [900, 3]],
        "max_tokens": 1,
    }
    result = replay(engine, [first, second], layer_windows=layer_windows)
    assert result["steps"][20]["num_cached_tokens"] == {"b": num_common // 4 * 4}
    # Of a group with a window, only blocks that the next token attends to are held. Here each
    # layer is a group, full attention first.
    num_hits = num_common // 4
    tables = result["steps"][20]["scheduled"][0]["new_block_ids"]
    for window, table in zip(sorted(layer_windows), tables, strict=True):
        num_left = max(0, 4 * num_hits - window + 1) // 4 if window else 0
        is_null = [block_id == 0 for block_id in table[:num_hits]]
        assert is_null == [j < num_left for j in range(num_hits)]


def test_a_long_request_holds_a_window_in_local_groups(engine):
    """Six groups, one with full attention: of 100 blocks' worth of tokens, a group with a window
    of 10 holds at most 6."""
    request = {"request_id": "a", "prompt_ranges": [[100, 300]], "max_tokens": 100}
    result = replay(
        engine, [request], layer_windows=[10] * 5 + [0], num_blocks=140, max_model_len=400
    )
    assert result["final_stats"]["num_preemptions"] == 0
    fewest = min(step["num_free_blocks"] for step in result["steps"])
    assert 139 - fewest <= 100 + 5 * 6


def test_a_prefix_is_lost_with_the_blocks_of_one_group(engine):
    """An eviction in the group with a window shortens the hit of all; one with full attention too.
    A later request takes the first one's oldest blocks."""
    first = {"request_id": "a", "prompt_ranges": [[100, 32]], "max_tokens": 1}
    other = {"request_id": "b", "arrival_step": 10, "prompt_ranges": [[500, 24]], "max_tokens": 1}
    again = {**first, "request_id": "c", "arrival_step": 20}
    hits = []
    for num_blocks in (17, 20, 23, 26, 29):
        result = replay(engine, [first, other, again], layer_windows=[6, 0], num_blocks=num_blocks)
        hits.append(result["steps"][20]["num_cached_tokens"]["c"])
    assert hits == sorted(hits) and hits[0] < hits[-1] == 28


def test_a_found_prefix_never_keeps_a_request_out(engine):
    """The pool holds one request of this length. Found blocks of the window count once: those that
    leave it make room for the others."""
    first = {"request_id": "a", "prompt_ranges": [[100, 17]], "max_tokens": 2}
    second = {
        "request_id": "b",
        "arrival_step": 12,
        "prompt_ranges": [[100, 16], [900, 24]],
        "max_tokens": 1,
    }
    for layer_windows, num_blocks in (([6], 6), ([6, 0], 16)):
        result = replay(
            engine,
            [first, second],
            layer_windows=layer_windows,
            num_blocks=num_blocks,
            max_num_batched_tokens=4,
            max_num_seqs=1,
        )
        assert result["steps"][12]["num_cached_tokens"]["b"] > 0
        assert result["steps"][-1]["finished"][0]["request_id"] == "b"


def test_the_refusal_names_what_fits(engine):
    """11 usable blocks: 8 tokens a step and a window of 6 hold at most 5, so 6 are left for full
    attention."""
    request = {"request_id": "a", "prompt_ranges": [[100, 30]], "max_tokens": 1}
    result = replay(engine, [request], layer_windows=[6, 0], num_blocks=12)
    message = result["steps"][0]["refused"][0]["message"]
    assert "can reach 30 cached tokens" in message and "the cache holds 24:" in message
