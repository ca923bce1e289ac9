"""The blocks of the KV cache: who holds them, which are free and in what order they are handed out,
and which carry a key of the prefix cache.

A free block may still carry a key: it is then an eviction candidate that a lookup can revive. It
loses the key when it is handed out again. Keys are looked up by group: a block holds the layers of
the group that registered it, and is of no use to another one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

NULL_BLOCK_ID = 0  # never handed out, never free: a place holder in block tables
_NONE = -1


class KVCacheEventKind(Enum):
    STORED = "stored"
    REMOVED = "removed"
    CLEARED = "cleared"


@dataclass(frozen=True, slots=True)
class KVCacheEvent:
    """What happened to the prefix cache, in order; recorded only when asked for."""

    kind: KVCacheEventKind
    block_id: int  # of STORED and REMOVED
    block_hash: bytes
    group_id: int = 0


@dataclass(slots=True)
class _Block:
    ref_count: int = 0
    free_previous: int = _NONE  # neighbours in the free queue
    free_next: int = _NONE
    group_id: int = 0  # of the key
    block_hash: bytes | None = None  # none: no key


class BlockPool:
    """num_blocks counts the null block."""

    def __init__(self, num_blocks: int, num_groups: int = 1) -> None:
        # The free queue is a ring through the null block, which is never free itself: its free_next
        # is the front, its free_previous the back.
        self._blocks = [_Block() for _ in range(num_blocks)]
        # By group: key -> blocks in order of registration.
        self._caches: list[dict[bytes, dict[int, None]]] = [{} for _ in range(num_groups)]
        self.num_free_blocks = 0
        self.num_cached_blocks = 0  # that carry a key
        self.record_events = False
        self._events: list[KVCacheEvent] = []
        null = self._blocks[NULL_BLOCK_ID]
        null.ref_count = 1
        null.free_previous = null.free_next = NULL_BLOCK_ID
        for block_id in range(1, num_blocks):
            self._link_free(null.free_previous, block_id, NULL_BLOCK_ID)

    @property
    def num_blocks(self) -> int:
        return len(self._blocks)

    @property
    def num_usable_blocks(self) -> int:
        return len(self._blocks) - 1

    def is_free(self, block_id: int) -> bool:
        return self._blocks[block_id].ref_count == 0

    def ref_count(self, block_id: int) -> int:
        return self._blocks[block_id].ref_count

    def find_cached_block(self, block_hash: bytes, group_id: int = 0) -> int | None:
        """The block registered earliest among those that still carry the key."""
        block_ids = self._caches[group_id].get(block_hash)
        return next(iter(block_ids)) if block_ids else None

    def allocate(self, num: int, block_ids: list[int]) -> None:
        """Appends num blocks from the front of the free queue to block_ids, each with one reference
        and without a key. There must be so many."""
        for _ in range(num):
            block_id = self._blocks[NULL_BLOCK_ID].free_next
            self._unlink_free(block_id)
            self.drop_key(block_id)
            self._blocks[block_id].ref_count = 1
            block_ids.append(block_id)

    def touch(self, block_id: int) -> None:
        """Adds a reference; a free block leaves the free queue."""
        if self.is_free(block_id):
            self._unlink_free(block_id)
        self._blocks[block_id].ref_count += 1

    def free(self, block_ids: Iterable[int]) -> None:
        """Takes one reference from each block. Those without references become free: blocks without
        a key, as one run in this order, at the front of the free queue; blocks with a key at the
        back."""
        null = self._blocks[NULL_BLOCK_ID]
        front = NULL_BLOCK_ID  # the last block put at the front by this call
        for block_id in block_ids:
            if block_id == NULL_BLOCK_ID:
                continue
            block = self._blocks[block_id]
            block.ref_count -= 1
            if block.ref_count > 0:
                continue
            if block.block_hash is not None:
                self._link_free(null.free_previous, block_id, NULL_BLOCK_ID)
            else:
                self._link_free(front, block_id, self._blocks[front].free_next)
                front = block_id

    def register_block(self, block_id: int, block_hash: bytes, group_id: int = 0) -> None:
        """Gives a block that has none a key. Equal keys are not looked for: duplicates are
        allowed."""
        self._blocks[block_id].group_id = group_id
        self._blocks[block_id].block_hash = block_hash
        self._caches[group_id].setdefault(block_hash, {})[block_id] = None
        self.num_cached_blocks += 1
        self._record(KVCacheEventKind.STORED, block_id, block_hash, group_id)

    def drop_key(self, block_id: int) -> None:
        """Takes the block's key, if it has one."""
        block = self._blocks[block_id]
        block_hash = block.block_hash
        if block_hash is None:
            return
        self._record(KVCacheEventKind.REMOVED, block_id, block_hash, block.group_id)
        cache = self._caches[block.group_id]
        block_ids = cache[block_hash]
        del block_ids[block_id]
        if not block_ids:
            del cache[block_hash]
        block.block_hash = None
        self.num_cached_blocks -= 1

    def drop_keys(self, block_hash: bytes, group_id: int) -> None:
        """Takes the key from every block of the group that has it."""
        while (block_id := self.find_cached_block(block_hash, group_id)) is not None:
            self.drop_key(block_id)

    def reset_prefix_cache(self) -> bool:
        """Takes all keys. False, and nothing done, while any block is held."""
        if self.num_free_blocks != self.num_usable_blocks:
            return False
        for block in self._blocks:
            block.block_hash = None
        for cache in self._caches:
            cache.clear()
        self.num_cached_blocks = 0
        self._record(KVCacheEventKind.CLEARED, NULL_BLOCK_ID, b"", 0)
        return True

    def take_events(self) -> list[KVCacheEvent]:
        events, self._events = self._events, []
        return events

    def free_block_ids(self) -> list[int]:
        """For tests and traces: the free queue, next to be handed out first."""
        block_ids = []
        block_id = self._blocks[NULL_BLOCK_ID].free_next
        while block_id != NULL_BLOCK_ID:
            block_ids.append(block_id)
            block_id = self._blocks[block_id].free_next
        return block_ids

    def cached_block_ids(self) -> list[int]:
        """For tests and traces: blocks with a key, ascending."""
        return [i for i, block in enumerate(self._blocks) if block.block_hash is not None]

    def _link_free(self, previous: int, block_id: int, following: int) -> None:
        self._blocks[previous].free_next = block_id
        self._blocks[block_id].free_previous = previous
        self._blocks[block_id].free_next = following
        self._blocks[following].free_previous = block_id
        self.num_free_blocks += 1

    def _unlink_free(self, block_id: int) -> None:
        block = self._blocks[block_id]
        self._blocks[block.free_previous].free_next = block.free_next
        self._blocks[block.free_next].free_previous = block.free_previous
        block.free_previous = block.free_next = _NONE
        self.num_free_blocks -= 1

    def _record(
        self, kind: KVCacheEventKind, block_id: int, block_hash: bytes, group_id: int
    ) -> None:
        if self.record_events:
            self._events.append(KVCacheEvent(kind, block_id, block_hash, group_id))
