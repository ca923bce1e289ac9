"""What the traces and scenarios do not reach of the cache; the C++ twin is in
tests/engine_cpp/kv_cache."""

import pytest

from pinfer.runtime.core.engine_config import EngineConfig
from pinfer.runtime.core.request import Request, RequestOptions
from pinfer.runtime.core.sampling_params import SamplingParams
from pinfer.runtime.kv_cache.block_hash import extend_block_hashes, root_block_hash
from pinfer.runtime.kv_cache.block_pool import BlockPool, KVCacheEvent, KVCacheEventKind
from pinfer.runtime.kv_cache.kv_cache_manager import KVCacheManager


def hashes_of(token_ids, block_size, salt=""):
    request = Request("r0", token_ids, SamplingParams(), RequestOptions(cache_salt=salt))
    extend_block_hashes(request, block_size, len(token_ids) // block_size)
    return request.block_hashes


def test_pinned_hashes():
    # The C++ test (block_hash_test.cc) expects the same values.
    assert root_block_hash(16, "").hex() == (
        "88ab0c37f0136a0667ca1f80c9ed81219726cbc049ba3340971f42e16d310a62"
    )
    assert root_block_hash(16, "tenant").hex() == (
        "ec00cce237f7fea84ef99adbf2e0bf77bdf88c56b241c00d491f9f72a4b5f57c"
    )
    assert hashes_of(range(32), 16)[1].hex() == (
        "f4fb31bdb9ceae8057e92d7c2d0190a32acd2bd4b57523376f67ee6374203460"
    )


def test_hashes_are_equal_exactly_for_equal_prefixes():
    hashes = hashes_of(range(64), 16)
    changed = list(range(64))
    changed[16] = 99
    assert [a == b for a, b in zip(hashes, hashes_of(changed, 16), strict=True)] == [
        True,
        False,
        False,
        False,
    ]
    assert hashes_of(range(16), 16, "a") != hashes_of(range(16), 16)
    assert hashes_of(range(16), 8)[1] != hashes[0]
    assert len(set(hashes_of([*range(16), *range(16)], 16))) == 2


def test_free_queue_order():
    pool = BlockPool(6)
    block_ids = []
    pool.allocate(4, block_ids)
    assert block_ids == [1, 2, 3, 4]
    pool.register_block(1, b"1")
    pool.register_block(2, b"2")
    pool.free([4, 2, 3, 1])
    assert pool.free_block_ids() == [4, 3, 5, 2, 1]
    pool.touch(2)
    assert pool.free_block_ids() == [4, 3, 5, 1]
    assert pool.num_free_blocks == 4


def test_of_equal_keys_the_earliest_that_is_left_is_found():
    pool = BlockPool(6)
    pool.allocate(5, [])
    for block_id in (4, 2, 5, 1):
        pool.register_block(block_id, b"key")
    for dropped, found in ((5, 4), (4, 2), (2, 1), (1, None), (1, None)):
        pool.drop_key(dropped)
        assert pool.find_cached_block(b"key") == found
    assert pool.num_cached_blocks == 0


def test_reset_only_while_nothing_is_held():
    pool = BlockPool(4)
    pool.allocate(2, [])
    pool.register_block(1, b"1")
    assert not pool.reset_prefix_cache()
    assert pool.find_cached_block(b"1") == 1
    pool.free([2, 1])
    assert pool.reset_prefix_cache()
    assert pool.cached_block_ids() == []


def test_events():
    pool = BlockPool(4)
    pool.record_events = True
    pool.allocate(2, [])
    pool.register_block(2, b"2")
    pool.free([2, 1])
    pool.allocate(3, [])
    assert pool.take_events() == [
        KVCacheEvent(KVCacheEventKind.STORED, 2, b"2"),
        KVCacheEvent(KVCacheEventKind.REMOVED, 2, b"2"),
    ]
    assert pool.take_events() == []


@pytest.mark.parametrize("block_size", [1, 3, 16, 17])
def test_output_extends_the_hashes(block_size):
    request = Request("r0", range(20), SamplingParams())
    extend_block_hashes(request, block_size, 20 // block_size)
    for token_id in range(20, 40):
        request.append_output_token_id(token_id)
    extend_block_hashes(request, block_size, 40 // block_size)
    assert request.block_hashes == hashes_of(range(40), block_size)


def test_a_hit_ends_at_the_first_gap():
    manager = KVCacheManager(EngineConfig(block_size=4, num_blocks=20, max_model_len=64))
    first, second, gap = (Request(name, range(16), SamplingParams()) for name in "abc")
    computed = manager.get_computed_blocks(first)
    assert manager.allocate_for_admission(first, computed, 16, 0)
    assert manager.get_computed_blocks(second).num_tokens == 12
    gap.block_ids = [[first.block_ids[0][1]]]
    manager.drop_keys(gap, 0)
    assert manager.get_computed_blocks(second).block_ids == [first.block_ids[0][:1]]


def test_prompts_whose_log_probabilities_are_wanted_skip_the_cache():
    manager = KVCacheManager(EngineConfig(block_size=4, num_blocks=20, max_model_len=64))
    first = Request("a", range(16), SamplingParams())
    assert manager.allocate_for_admission(first, manager.get_computed_blocks(first), 16, 0)
    scored = Request("b", range(16), SamplingParams(prompt_logprobs=0))
    assert manager.get_computed_blocks(scored).num_tokens == 0


def test_with_caching_off_nothing_is_found_or_counted():
    config = EngineConfig(
        block_size=4, num_blocks=20, max_model_len=64, enable_prefix_caching=False
    )
    manager = KVCacheManager(config)
    first = Request("a", range(16), SamplingParams())
    assert manager.allocate_for_admission(first, manager.get_computed_blocks(first), 16, 0)
    assert manager.get_computed_blocks(first).num_tokens == 0
    assert manager.prefix_cache_stats.num_queried_tokens == 0
    assert manager.block_pool.num_cached_blocks == 0
