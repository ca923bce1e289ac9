"""Follows a scheduler's decisions as the executor would, with a cache whose slots remember which
layer wrote which token prefix to them, and checks what must hold for any scheduler:

- every slot that a layer reads for a scheduled request (within its sliding window, if it has one)
  holds what that layer wrote of the request's own prefix: nothing unwritten, of another layer,
  another prompt, another salt, or a failed request;
- no slot is written twice in a step, and no block changes while another request's table holds it;
- free blocks and blocks in live tables together are the whole pool: no leak, no block owned twice,
  none in the tables of two groups;
- a group with a window holds no more blocks of a request than the window and the step span;
- the token budget, max_num_seqs and max_model_len hold; positions follow each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pinfer.runtime.core.kv_cache_config import KVCacheGroup
from pinfer.runtime.scheduler.replay import read_kv_cache_config, read_prompt, sampled_token_id

Json = Mapping[str, Any]
Slot = tuple[int, int, int]  # tensor, block, offset


@dataclass
class _Live:
    """A request whose tables the executor knows."""

    salt: str
    tokens: list[int]
    prefixes: list[int] = field(default_factory=list)  # id of the prefix that ends at each position
    tables: list[list[int]] = field(default_factory=list)  # by group
    num_computed: int = 0
    num_outputs: int = 0


class CacheSimulation:
    def __init__(self, trace: Json) -> None:
        self._config = trace["config"]
        self._block_size = self._config.get("block_size", 16)
        self._layer_windows = self._config.get("layer_windows", [0])
        kv_cache_config = read_kv_cache_config(self._config)
        self._groups = kv_cache_config.groups
        self._places = kv_cache_config.places()
        self._budget = self._config.get("max_num_batched_tokens", 2048)
        self._json = {request["request_id"]: request for request in trace["requests"]}
        self._prefix_ids: dict[tuple[Any, int], int] = {}  # (parent id or salt, token) -> id
        self._slots: dict[Slot, tuple[int, int]] = {}  # layer, prefix id
        self._writers: dict[Slot, str] = {}  # request id
        self._live: dict[str, _Live] = {}

    def problems(self, result: Json) -> list[str]:
        """Everything wrong with the replay's result, a line each."""
        found = []
        for step in result["steps"]:
            found += [f"step {step['step']}: {problem}" for problem in self._run_step(step)]
        return found

    def _run_step(self, step: Json) -> Iterator[str]:
        scheduled_ids = [entry["request_id"] for entry in step["scheduled"]]
        finished = {entry["request_id"]: entry["finish_reason"] for entry in step["finished"]}
        for request_id in step["preempted"]:
            self._live[request_id].tables = []
        for request_id in finished.keys() - set(scheduled_ids):
            self._live.pop(request_id, None)  # aborted before the step, waiting or running

        yield from self._check_limits(step)
        for entry in step["scheduled"]:
            yield from self._enter(entry)
        yield from self._write(step)
        for entry in step["scheduled"]:
            yield from self._read(entry)
        self._advance(step, finished)
        yield from self._check_blocks(step)

    def _check_limits(self, step: Json) -> Iterator[str]:
        num_tokens = sum(entry["num_scheduled_tokens"] for entry in step["scheduled"])
        if num_tokens > self._budget:
            yield f"{num_tokens} tokens exceed the budget"
        if len(step["running"]) > self._config.get("max_num_seqs", 256):
            yield f"{len(step['running'])} requests run"
        if any(entry["num_scheduled_tokens"] < 1 for entry in step["scheduled"]):
            yield "a request is scheduled without tokens"

    def _enter(self, entry: Json) -> Iterator[str]:
        request_id = entry["request_id"]
        if request_id not in self._live:
            json = self._json[request_id]
            self._live[request_id] = _Live(json.get("cache_salt", ""), read_prompt(json))
        live = self._live[request_id]
        if entry["kind"] == "running":
            if entry["num_computed_tokens"] != live.num_computed:
                yield f"{request_id} goes on at {entry['num_computed_tokens']}"
        else:
            live.tables = [[] for _ in self._groups]
            live.num_computed = entry["num_computed_tokens"]
        end = live.num_computed + entry["num_scheduled_tokens"]
        if end > len(live.tokens) or end > self._config["max_model_len"]:
            yield f"{request_id} computes {end} tokens"
        added = entry["new_block_ids"]
        each_added = added if len(self._groups) > 1 else [added]
        for group, table, blocks in zip(self._groups, live.tables, each_added, strict=True):
            num_skipped = group.spec.num_skipped_blocks(live.num_computed)
            for j in range(min(num_skipped, len(table))):
                table[j] = 0  # freed: it has left the window
            table += blocks
            yield from self._check_table(request_id, group, table, num_skipped, end)

    def _check_table(
        self, request_id: str, group: KVCacheGroup, table: list[int], num_skipped: int, end: int
    ) -> Iterator[str]:
        if 0 in table[num_skipped:]:
            yield f"{request_id} needs what the null block stands for"
        # A look-up wants one block even where the next token attends to itself alone.
        num_wanted = 1 if group.spec.sliding_window == 1 else 0
        if any(table[: max(0, num_skipped - num_wanted)]):
            yield f"{request_id} holds blocks that have left the window"
        if len(table) != -(-end // self._block_size):
            yield f"{request_id} has {len(table)} blocks for {end} tokens"
        held = [block_id for block_id in table if block_id != 0]
        if len(set(held)) != len(held):
            yield f"{request_id} has a block twice"
        if len(held) > group.spec.max_blocks_held(end, self._budget):
            yield f"{request_id} holds {len(held)} blocks"

    def _write(self, step: Json) -> Iterator[str]:
        written = set()
        for entry in step["scheduled"]:
            live = self._live[entry["request_id"]]
            self._extend_prefixes(live)
            for _ in range(entry["num_scheduled_tokens"]):
                for layer in range(len(self._places)):
                    slot = self._slot(live, layer, live.num_computed)
                    if slot in written:
                        yield f"slot {slot} is written twice"
                    written.add(slot)
                    self._slots[slot] = layer, live.prefixes[live.num_computed]
                    self._writers[slot] = entry["request_id"]
                live.num_computed += 1

    def _read(self, entry: Json) -> Iterator[str]:
        request_id = entry["request_id"]
        live = self._live[request_id]
        first_query = live.num_computed - entry["num_scheduled_tokens"]
        for layer, window in enumerate(self._layer_windows):
            start = max(0, first_query - window + 1) if window else 0
            for position in range(start, live.num_computed):
                found = self._slots.get(self._slot(live, layer, position))
                if found != (layer, live.prefixes[position]):
                    yield (
                        f"{request_id} reads position {position} of layer {layer} that does not "
                        "hold its prefix"
                    )
                    return

    def _advance(self, step: Json, finished: Mapping[str, str]) -> None:
        for entry in step["scheduled"]:
            live = self._live[entry["request_id"]]
            if live.num_computed == len(live.tokens):
                token_id = sampled_token_id(self._json[entry["request_id"]], live.num_outputs)
                live.tokens.append(token_id)
                live.num_outputs += 1
        for request_id, reason in finished.items():
            live = self._live.pop(request_id, None)
            if live is not None and reason == "error":
                self._forget_slots(request_id, live)

    def _forget_slots(self, request_id: str, failed: _Live) -> None:
        """What a failed request computed may be NaN: no later request may read it, nor what has
        left its window."""
        held = set.union(set(), *self._held_by_group())
        named = {block_id for table in failed.tables for block_id in table}
        for slot, writer in list(self._writers.items()):
            if slot[1] not in held and (writer == request_id or slot[1] in named):
                del self._slots[slot], self._writers[slot]

    def _held_by_group(self) -> list[set[int]]:
        held: list[set[int]] = [set() for _ in self._groups]
        for live in self._live.values():
            for blocks, table in zip(held, live.tables, strict=False):
                blocks.update(table)
        return [blocks - {0} for blocks in held]

    def _check_blocks(self, step: Json) -> Iterator[str]:
        by_group = self._held_by_group()
        held = set.union(*by_group)
        if len(held) != sum(map(len, by_group)):
            yield "a block is in the tables of two groups"
        num_usable = self._config["num_blocks"] - 1
        if step["num_free_blocks"] + len(held) != num_usable:
            yield f"{step['num_free_blocks']} blocks free, {len(held)} held, of {num_usable}"

    def _slot(self, live: _Live, layer: int, position: int) -> Slot:
        place = self._places[layer]
        table = live.tables[place.group_id]
        return place.tensor_id, table[position // self._block_size], position % self._block_size

    def _extend_prefixes(self, live: _Live) -> None:
        while len(live.prefixes) < len(live.tokens):
            parent = live.prefixes[-1] if live.prefixes else f"salt {live.salt}"
            key = (parent, live.tokens[len(live.prefixes)])
            live.prefixes.append(self._prefix_ids.setdefault(key, len(self._prefix_ids)))
