"""Follows a scheduler's decisions as the executor would, with a cache whose slots remember which
token prefix was written to them, and checks what must hold for any scheduler:

- every slot that a scheduled request reads (within the sliding window, if there is one) holds that
  request's own prefix: nothing unwritten, of another prompt, another salt, or a failed request;
- no slot is written twice in a step, and no block changes while another request's table holds it;
- free blocks and blocks in live tables together are the whole pool: no leak, no block owned twice;
- the token budget, max_num_seqs and max_model_len hold; positions follow each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pinfer.runtime.scheduler.replay import read_prompt, sampled_token_id

Json = Mapping[str, Any]


@dataclass
class _Live:
    """A request whose table the executor knows."""

    salt: str
    tokens: list[int]
    prefixes: list[int] = field(default_factory=list)  # id of the prefix that ends at each position
    table: list[int] = field(default_factory=list)
    num_computed: int = 0
    num_outputs: int = 0


class CacheSimulation:
    def __init__(self, trace: Json) -> None:
        self._config = trace["config"]
        self._block_size = self._config.get("block_size", 16)
        self._window = self._config.get("sliding_window", 0)
        self._json = {request["request_id"]: request for request in trace["requests"]}
        self._prefix_ids: dict[tuple[Any, int], int] = {}  # (parent id or salt, token) -> id
        self._slots: dict[tuple[int, int], int] = {}  # (block, offset) -> prefix id
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
            self._live[request_id].table = []
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
        if num_tokens > self._config.get("max_num_batched_tokens", 2048):
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
            for j in range(self._num_skipped_blocks(live.num_computed)):
                live.table[j] = 0  # freed: it has left the window
            live.table += entry["new_block_ids"]
        else:
            live.table = list(entry["new_block_ids"])
            live.num_computed = entry["num_computed_tokens"]
        if 0 in live.table[self._num_skipped_blocks(live.num_computed) :]:
            yield f"{request_id} needs what the null block stands for"
        end = live.num_computed + entry["num_scheduled_tokens"]
        if end > len(live.tokens) or end > self._config["max_model_len"]:
            yield f"{request_id} computes {end} tokens"
        if len(live.table) != -(-end // self._block_size):
            yield f"{request_id} has {len(live.table)} blocks for {end} tokens"

    def _write(self, step: Json) -> Iterator[str]:
        written = set()
        for entry in step["scheduled"]:
            live = self._live[entry["request_id"]]
            self._extend_prefixes(live)
            for _ in range(entry["num_scheduled_tokens"]):
                slot = self._slot(live, live.num_computed)
                if slot in written:
                    yield f"slot {slot} is written twice"
                written.add(slot)
                self._slots[slot] = live.prefixes[live.num_computed]
                live.num_computed += 1

    def _read(self, entry: Json) -> Iterator[str]:
        request_id = entry["request_id"]
        live = self._live[request_id]
        first_query = live.num_computed - entry["num_scheduled_tokens"]
        start = max(0, first_query - self._window + 1) if self._window else 0
        for position in range(start, live.num_computed):
            if self._slots.get(self._slot(live, position)) != live.prefixes[position]:
                yield f"{request_id} reads position {position} that does not hold its prefix"
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
                self._forget_blocks(live)

    def _forget_blocks(self, failed: _Live) -> None:
        """What a failed request computed may be NaN: no later request may read it."""
        held = {block_id for live in self._live.values() for block_id in live.table}
        for block_id in set(failed.table) - held:
            for offset in range(self._block_size):
                self._slots.pop((block_id, offset), None)

    def _check_blocks(self, step: Json) -> Iterator[str]:
        held = {block_id for live in self._live.values() for block_id in live.table} - {0}
        num_usable = self._config["num_blocks"] - 1
        if step["num_free_blocks"] + len(held) != num_usable:
            yield f"{step['num_free_blocks']} blocks free, {len(held)} held, of {num_usable}"

    def _num_skipped_blocks(self, num_computed: int) -> int:
        """Leading blocks that no token from position num_computed on reads."""
        return max(0, num_computed - self._window + 1) // self._block_size if self._window else 0

    def _slot(self, live: _Live, position: int) -> tuple[int, int]:
        return live.table[position // self._block_size], position % self._block_size

    def _extend_prefixes(self, live: _Live) -> None:
        while len(live.prefixes) < len(live.tokens):
            parent = live.prefixes[-1] if live.prefixes else f"salt {live.salt}"
            key = (parent, live.tokens[len(live.prefixes)])
            live.prefixes.append(self._prefix_ids.setdefault(key, len(self._prefix_ids)))
