"""Gives requests the cache blocks for the tokens they are about to compute, and finds blocks that
already hold a request's first tokens: for every group of layers, or for none."""

from __future__ import annotations

from dataclasses import dataclass, field

from pinfer.runtime.core.engine_config import EngineConfig
from pinfer.runtime.core.kv_cache_config import KVCacheConfig, uniform_kv_cache_config
from pinfer.runtime.core.kv_cache_spec import KVCacheSpec
from pinfer.runtime.core.request import Request
from pinfer.runtime.kv_cache.block_hash import extend_block_hashes
from pinfer.runtime.kv_cache.block_pool import NULL_BLOCK_ID, BlockPool

BlockIds = list[list[int]]  # by group


@dataclass(slots=True)
class ComputedBlocks:
    """Leading blocks of a request that the prefix cache holds."""

    # By group, equally long; the null block where no later token attends.
    block_ids: BlockIds = field(default_factory=list)
    num_tokens: int = 0


@dataclass(slots=True)
class PrefixCacheStats:
    num_queried_tokens: int = 0  # tokens of admitted requests
    num_hit_tokens: int = 0  # of these, found in the cache


@dataclass(slots=True)
class _Kind:
    """Groups of one kind: their look-ups end alike."""

    spec: KVCacheSpec
    group_ids: list[int]


class KVCacheManager:
    """Keeps nothing about a request but what it writes into it (block_ids, block_hashes,
    num_registered_blocks)."""

    def __init__(self, config: EngineConfig, kv_cache_config: KVCacheConfig | None = None) -> None:
        """Without kv_cache_config: one group with full attention."""
        if kv_cache_config is None:
            kv_cache_config = uniform_kv_cache_config(1, config.block_size)
        self._kv_cache_config = kv_cache_config
        self._kinds = _find_kinds(kv_cache_config)
        self._block_size = kv_cache_config.block_size
        self._max_model_len = config.max_model_len
        self._max_num_batched_tokens = config.max_num_batched_tokens
        self._enable_prefix_caching = config.enable_prefix_caching
        self._reserve_full_isl = config.scheduler_reserve_full_isl
        self.block_pool = BlockPool(config.num_blocks, kv_cache_config.num_groups)
        self.prefix_cache_stats = PrefixCacheStats()

    def get_computed_blocks(self, request: Request) -> ComputedBlocks:
        """The longest prefix that is cached for every group, at most num_tokens - 1 tokens: one
        token is always computed. Changes nothing but request.block_hashes.

        Each kind shortens what the one before it has found, until none does. For a kind with full
        attention every shorter prefix is cached too; a window asks for other blocks at each
        length."""
        computed = ComputedBlocks([[] for _ in self._kv_cache_config.groups])
        if not self._enable_prefix_caching or request.skips_prefix_cache:
            return computed
        max_hits = (request.num_tokens - 1) // self._block_size
        extend_block_hashes(request, self._block_size, max_hits)
        hashes = request.block_hashes[:max_hits]
        num_agreeing = k = 0
        while num_agreeing < len(self._kinds):
            num_hits = self._find(self._kinds[k], hashes, computed.block_ids)
            num_agreeing = num_agreeing + 1 if num_hits == len(hashes) else 1
            hashes = hashes[:num_hits]
            k = (k + 1) % len(self._kinds)
        computed.num_tokens = len(hashes) * self._block_size
        return computed

    def _find(self, kind: _Kind, hashes: list[bytes], block_ids: BlockIds) -> int:
        """How many blocks of the prefix the kind's groups can go on from; their table of it."""
        if kind.spec.sliding_window == 0:
            return self._find_from_start(kind, hashes, block_ids)
        return self._find_window(kind, hashes, block_ids)

    def _find_from_start(self, kind: _Kind, hashes: list[bytes], block_ids: BlockIds) -> int:
        if len(block_ids[kind.group_ids[0]]) >= len(hashes):  # of an earlier round
            _resize_tables(kind, len(hashes), block_ids)
            return len(hashes)
        for group_id in kind.group_ids:
            table = block_ids[group_id]
            for block_hash in hashes:
                block_id = self.block_pool.find_cached_block(block_hash, group_id)
                if block_id is None:
                    break
                table.append(block_id)
            hashes = hashes[: len(table)]
        _resize_tables(kind, len(hashes), block_ids)
        return len(hashes)

    def _find_window(self, kind: _Kind, hashes: list[bytes], block_ids: BlockIds) -> int:
        """The last block border with a whole window of cached blocks before it, or with cached
        blocks only."""
        num_wanted = kind.spec.num_window_blocks()
        num_found = 0
        num_hits = len(hashes)
        _resize_tables(kind, 0, block_ids)
        _resize_tables(kind, num_hits, block_ids)
        for j in range(len(hashes), 0, -1):
            if num_found == num_wanted:
                break
            if self._find_block(kind, hashes[j - 1], j - 1, block_ids):
                num_found += 1
            else:  # what was found behind the gap is of no use
                num_hits = j - 1
                num_found = 0
        _resize_tables(kind, num_hits, block_ids)
        return num_hits

    def _find_block(self, kind: _Kind, block_hash: bytes, index: int, block_ids: BlockIds) -> bool:
        """False if any group of the kind lacks it; then the tables' entries mean nothing."""
        for group_id in kind.group_ids:
            block_id = self.block_pool.find_cached_block(block_hash, group_id)
            if block_id is None:
                return False
            block_ids[group_id][index] = block_id
        return True

    def allocate_for_admission(
        self,
        request: Request,
        computed: ComputedBlocks,
        num_new_tokens: int,
        num_reserved_blocks: int,
    ) -> bool:
        """Blocks of all groups for a request that enters: the found ones, then new ones for
        num_new_tokens more. False, and nothing done, if the free blocks are too few;
        num_reserved_blocks of them are out of bounds."""
        pool = self.block_pool
        num_needed = self._num_needed_for_admission(request, computed, num_new_tokens)
        if num_needed + num_reserved_blocks > pool.num_free_blocks:
            return False
        # All found blocks are held before any block is allocated: that could take one of them.
        for table in computed.block_ids:
            for block_id in table:
                if block_id != NULL_BLOCK_ID:
                    pool.touch(block_id)
        request.block_ids = [list(table) for table in computed.block_ids]
        request.num_registered_blocks = computed.num_tokens // self._block_size
        num_tokens = computed.num_tokens + num_new_tokens
        self._allocate(self._num_blocks_for(num_tokens) - request.num_registered_blocks, request)
        self.register_full_blocks(request, num_tokens)
        if self._enable_prefix_caching:
            self.prefix_cache_stats.num_queried_tokens += request.num_tokens
        self.prefix_cache_stats.num_hit_tokens += computed.num_tokens
        return True

    def _num_needed_for_admission(
        self, request: Request, computed: ComputedBlocks, num_new_tokens: int
    ) -> int:
        """Free blocks that go to the request: now, or with reserve_full_isl at any time until its
        known tokens are computed."""
        num_hits = computed.num_tokens // self._block_size
        num_missing = self._num_blocks_for(computed.num_tokens + num_new_tokens) - num_hits
        num_whole = min(request.num_tokens, self._max_model_len)
        num_needed = 0
        for group, table in zip(self._kv_cache_config.groups, computed.block_ids, strict=True):
            # Found blocks that nobody holds are in the free queue and would leave it.
            num_revived = sum(map(self.block_pool.is_free, table))
            num_needed_by_group = num_missing + num_revived
            if self._reserve_full_isl:
                # Blocks that leave the window, found ones too, come back for those that enter it.
                num_rest = self._num_blocks_for(num_whole) - num_hits + num_revived
                num_held = group.spec.max_blocks_held(num_whole, self._max_num_batched_tokens)
                num_needed_by_group = max(num_needed_by_group, min(num_rest, num_held))
            num_needed += num_needed_by_group
        return num_needed

    def allocate_for_running(self, request: Request, num_new_tokens: int) -> bool:
        """Blocks for num_new_tokens after request.num_computed_tokens of a running request, or
        False. Blocks that have left the sliding window are freed first; the null block takes their
        place."""
        self._free_skipped_blocks(request)
        num_tokens = request.num_computed_tokens + num_new_tokens
        num_missing = self._num_blocks_for(num_tokens) - len(request.block_ids[0])
        if num_missing * len(request.block_ids) > self.block_pool.num_free_blocks:
            return False
        self._allocate(num_missing, request)
        self.register_full_blocks(request, num_tokens)
        return True

    def register_full_blocks(self, request: Request, num_tokens: int) -> None:
        """Gives their keys to the request's blocks that are full with its first num_tokens tokens,
        as far as these are known. It has to hold blocks for them.

        A block gets its key when its last token is scheduled, before the model has run: a request
        admitted later in the same step may use it, for a layer writes all rows before any row
        attends. One whose last token is still being sampled gets it when that is known."""
        if not self._enable_prefix_caching:
            return
        num_full = min(num_tokens, request.num_tokens) // self._block_size
        if num_full <= request.num_registered_blocks:
            return
        extend_block_hashes(request, self._block_size, num_full)
        for group_id, table in enumerate(request.block_ids):
            for j in range(request.num_registered_blocks, num_full):
                self.block_pool.register_block(table[j], request.block_hashes[j], group_id)
        request.num_registered_blocks = num_full

    def free(self, request: Request) -> None:
        """Frees the request's blocks, last first, so that a chain is evicted from its end."""
        for table in request.block_ids:
            self.block_pool.free(reversed(table))
        request.block_ids = []
        request.num_registered_blocks = 0

    def drop_keys(self, request: Request, first_block: int) -> None:
        """Takes the keys of the request's blocks from first_block on: their content is not to be
        trusted. Of blocks that have left a window too, or that it has lost, and of those with the
        same keys."""
        lost = [[NULL_BLOCK_ID] * len(request.block_hashes)] * self._kv_cache_config.num_groups
        for group_id, table in enumerate(request.block_ids or lost):
            for j in range(first_block, len(table)):
                if table[j] != NULL_BLOCK_ID:
                    self.block_pool.drop_key(table[j])
                elif j < len(request.block_hashes):
                    self.block_pool.drop_keys(request.block_hashes[j], group_id)

    def max_blocks_held(self, num_tokens: int) -> int:
        """The most blocks that a request of num_tokens tokens holds at once."""
        return self._kv_cache_config.max_blocks_held(num_tokens, self._max_num_batched_tokens)

    def max_tokens_held(self, limit: int) -> int:
        """The longest request, up to limit tokens, for which the pool has enough blocks."""
        return self._kv_cache_config.max_tokens_held(
            self.block_pool.num_usable_blocks, limit, self._max_num_batched_tokens
        )

    def _num_blocks_for(self, num_tokens: int) -> int:
        return self._kv_cache_config.groups[0].spec.num_blocks_for(num_tokens)

    def _allocate(self, num_missing: int, request: Request) -> None:
        for table in request.block_ids:
            self.block_pool.allocate(num_missing, table)

    def _free_skipped_blocks(self, request: Request) -> None:
        for group, table in zip(self._kv_cache_config.groups, request.block_ids, strict=True):
            skipped = []  # last first
            for j in range(group.spec.num_skipped_blocks(request.num_computed_tokens), 0, -1):
                if table[j - 1] == NULL_BLOCK_ID:  # so are those before it
                    break
                skipped.append(table[j - 1])
                table[j - 1] = NULL_BLOCK_ID
            self.block_pool.free(skipped)


def _find_kinds(config: KVCacheConfig) -> list[_Kind]:
    kinds: list[_Kind] = []
    for group_id, group in enumerate(config.groups):
        if not kinds or kinds[-1].spec != group.spec:
            kinds.append(_Kind(group.spec, []))
        kinds[-1].group_ids.append(group_id)
    return kinds


def _resize_tables(kind: _Kind, num_blocks: int, block_ids: BlockIds) -> None:
    for group_id in kind.group_ids:
        table = block_ids[group_id]
        del table[num_blocks:]
        table += [NULL_BLOCK_ID] * (num_blocks - len(table))
