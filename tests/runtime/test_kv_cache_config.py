"""Which layers share a group; the C++ test (kv_cache_config_test.cc) expects the same."""

import pytest

from pinfer.runtime.core.kv_cache_config import make_kv_cache_config, uniform_kv_cache_config


@pytest.mark.parametrize(
    ("num_local", "num_full", "num_groups", "num_tensors"),
    [
        (0, 30, 1, 30),
        (13, 13, 2, 13),
        (22, 4, 7, 4),
        (29, 5, 7, 5),
        (40, 8, 6, 8),
        (52, 10, 7, 10),
        (12, 13, 2, 13),
        (30, 20, 5, 10),
        (7, 6, 7, 2),
    ],
)
def test_groups_are_few_and_little_is_padded(num_local, num_full, num_groups, num_tensors):
    windows = [512] * num_local + [0] * num_full
    config = make_kv_cache_config(windows, 16, 8192)
    assert (config.num_groups, config.num_tensors) == (num_groups, num_tensors)
    # Every layer has a place of its own, in a group of its window.
    places = config.places()
    assert len(set(places)) == len(windows) == len(places)
    for place, window in zip(places, windows, strict=True):
        assert config.groups[place.group_id].spec.sliding_window == window
        assert place.tensor_id < num_tensors


def test_full_attention_comes_first():
    config = make_kv_cache_config([64, 0, 32, 64, 0, 32], 16, 1024)
    assert [group.layers for group in config.groups] == [[1, 4], [2, 5], [0, 3]]


def test_a_window_that_no_request_outgrows_is_none():
    assert make_kv_cache_config([100, 0, 101], 16, 100) == uniform_kv_cache_config(3, 16)
    assert make_kv_cache_config([99, 0, 101], 16, 100).num_groups == 3


def test_tokens_held_is_the_inverse_of_blocks_held():
    config = make_kv_cache_config([65, 65, 0], 16, 1600)
    assert config.num_groups == 3
    for num_blocks in range(2, 120):
        most = config.max_tokens_held(num_blocks, 1600, 32)
        assert config.max_blocks_held(most, 32) <= num_blocks
        assert most == 1600 or config.max_blocks_held(most + 1, 32) > num_blocks
