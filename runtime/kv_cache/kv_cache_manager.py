"""Gives requests the cache blocks for the tokens they are about to compute, and finds blocks that
already hold a request's first tokens."""

from __future__ import annotations

from dataclasses import dataclass, field

from pinfer.runtime.core.engine_config import EngineConfig
from pinfer.runtime.core.request import Request
from pinfer.runtime.kv_cache.block_hash import extend_block_hashes
from pinfer.runtime.kv_cache.block_pool import NULL_BLOCK_ID, BlockPool
from pinfer.runtime.kv_cache.kv_cache_spec import KVCacheSpec


@dataclass(slots=True)
class ComputedBlocks:
    """Leading blocks of a request that the prefix cache holds."""

    # The null block where no later token attends.
    block_ids: list[int] = field(default_factory=list)
    num_tokens: int = 0


@dataclass(slots=True)
class PrefixCacheStats:
    num_queried_tokens: int = 0  # tokens of admitted requests
    num_hit_tokens: int = 0  # of these, found in the cache


class KVCacheManager:
    """Keeps nothing about a request but what it writes into it (block_ids, block_hashes,
    num_registered_blocks)."""

    def __init__(self, config: EngineConfig, sliding_window: int = 0) -> None:
        self._spec = KVCacheSpec(config.block_size, sliding_window)
        self._max_model_len = config.max_model_len
        self._max_num_batched_tokens = config.max_num_batched_tokens
        self._enable_prefix_caching = config.enable_prefix_caching
        self._reserve_full_isl = config.scheduler_reserve_full_isl
        self.block_pool = BlockPool(config.num_blocks)
        self.prefix_cache_stats = PrefixCacheStats()

    def get_computed_blocks(self, request: Request) -> ComputedBlocks:
        """The longest cached prefix, at most num_tokens - 1 tokens: one token is always computed.
        Changes nothing but request.block_hashes."""
        computed = ComputedBlocks()
        if not self._enable_prefix_caching or request.skips_prefix_cache:
            return computed
        max_hits = (request.num_tokens - 1) // self._spec.block_size
        extend_block_hashes(request, self._spec.block_size, max_hits)
        hashes = request.block_hashes[:max_hits]
        if self._spec.sliding_window == 0:
            computed.block_ids = self._find_from_start(hashes)
        else:
            computed.block_ids = self._find_window(hashes)
        computed.num_tokens = len(computed.block_ids) * self._spec.block_size
        return computed

    def _find_from_start(self, hashes: list[bytes]) -> list[int]:
        block_ids = []
        for block_hash in hashes:
            block_id = self.block_pool.find_cached_block(block_hash)
            if block_id is None:
                break
            block_ids.append(block_id)
        return block_ids

    def _find_window(self, hashes: list[bytes]) -> list[int]:
        """The last block border with a whole window of cached blocks before it, or with cached
        blocks only."""
        num_wanted = self._spec.num_window_blocks()
        num_found = 0
        block_ids = [NULL_BLOCK_ID] * len(hashes)
        for j in range(len(hashes), 0, -1):
            if num_found == num_wanted:
                break
            block_id = self.block_pool.find_cached_block(hashes[j - 1])
            if block_id is not None:
                block_ids[j - 1] = block_id
                num_found += 1
            else:  # what was found behind the gap is of no use
                del block_ids[j - 1 :]
                num_found = 0
        return block_ids

    def allocate_for_admission(
        self,
        request: Request,
        computed: ComputedBlocks,
        num_new_tokens: int,
        num_reserved_blocks: int,
    ) -> bool:
        """Blocks for a request that enters: the found ones, then new ones for num_new_tokens more.
        False, and nothing done, if the free blocks are too few; num_reserved_blocks of them are out
        of bounds."""
        pool = self.block_pool
        num_hits = len(computed.block_ids)
        num_tokens = computed.num_tokens + num_new_tokens
        num_missing = self._spec.num_blocks_for(num_tokens) - num_hits
        num_needed = num_missing
        if self._reserve_full_isl:
            num_whole = min(request.num_tokens, self._max_model_len)
            num_rest = self._spec.num_blocks_for(num_whole) - num_hits
            num_needed = max(num_needed, min(num_rest, self.max_blocks_held(num_whole)))
        # Found blocks that nobody holds are in the free queue and would leave it.
        num_revived = sum(pool.is_free(block_id) for block_id in computed.block_ids)
        if num_needed + num_revived + num_reserved_blocks > pool.num_free_blocks:
            return False

        for block_id in computed.block_ids:
            if block_id != NULL_BLOCK_ID:
                pool.touch(block_id)
        request.block_ids = list(computed.block_ids)
        request.num_registered_blocks = num_hits
        pool.allocate(num_missing, request.block_ids)
        self._register_full_blocks(request, num_tokens)
        if self._enable_prefix_caching:
            self.prefix_cache_stats.num_queried_tokens += request.num_tokens
        self.prefix_cache_stats.num_hit_tokens += computed.num_tokens
        return True

    def allocate_for_running(self, request: Request, num_new_tokens: int) -> bool:
        """Blocks for num_new_tokens after request.num_computed_tokens of a running request, or
        False. Blocks that have left the sliding window are freed first; the null block takes their
        place."""
        self._free_skipped_blocks(request)
        num_tokens = request.num_computed_tokens + num_new_tokens
        num_missing = self._spec.num_blocks_for(num_tokens) - len(request.block_ids)
        if num_missing > self.block_pool.num_free_blocks:
            return False
        self.block_pool.allocate(num_missing, request.block_ids)
        self._register_full_blocks(request, num_tokens)
        return True

    def free(self, request: Request) -> None:
        """Frees the request's blocks, last first, so that a chain is evicted from its end."""
        self.block_pool.free(reversed(request.block_ids))
        request.block_ids = []
        request.num_registered_blocks = 0

    def drop_keys(self, request: Request, first_block: int) -> None:
        """Takes the keys of the request's blocks from first_block on: their content is not to be
        trusted."""
        for block_id in request.block_ids[first_block:]:
            self.block_pool.drop_key(block_id)

    def max_blocks_held(self, num_tokens: int) -> int:
        """The most blocks that a request of num_tokens tokens holds at once."""
        return self._spec.max_blocks_held(num_tokens, self._max_num_batched_tokens)

    def _free_skipped_blocks(self, request: Request) -> None:
        skipped = []  # last first
        for j in range(self._spec.num_skipped_blocks(request.num_computed_tokens), 0, -1):
            block_id = request.block_ids[j - 1]
            if block_id == NULL_BLOCK_ID:  # so are those before it
                break
            skipped.append(block_id)
            request.block_ids[j - 1] = NULL_BLOCK_ID
        self.block_pool.free(skipped)

    def _register_full_blocks(self, request: Request, num_tokens: int) -> None:
        """A block gets its key when its last token is scheduled, before the model has run: a
        request admitted later in the same step may use it, for a layer writes all rows before any
        row attends."""
        if not self._enable_prefix_caching:
            return
        num_full = num_tokens // self._spec.block_size
        if num_full <= request.num_registered_blocks:
            return
        extend_block_hashes(request, self._spec.block_size, num_full)
        for j in range(request.num_registered_blocks, num_full):
            self.block_pool.register_block(request.block_ids[j], request.block_hashes[j])
        request.num_registered_blocks = num_full
