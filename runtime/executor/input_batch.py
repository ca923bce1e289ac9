"""The arrays of one step, flat over all requests: what the model's parts take in."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from pinfer.runtime.core.scheduler_output import ScheduledKind, ScheduledRequest, SchedulerOutput


@dataclass(frozen=True, slots=True)
class GroupInputs:
    """What differs between groups of layers. T tokens, S requests, M blocks in the longest table of
    the step."""

    slot_mapping: torch.Tensor  # [T], block id * block size + offset
    block_table: torch.Tensor  # [S, M], rows filled up with the null block 0


class InputBatch:
    """Keeps each running request's block tables from step to step, since the scheduler only tells
    what is new. A table goes on naming blocks that have left the window, which no row reads."""

    def __init__(self, block_size: int, num_groups: int = 1) -> None:
        self._block_size = block_size
        self._num_groups = num_groups
        self._block_ids: dict[str, list[list[int]]] = {}  # by request id, then by group

    def update(self, scheduler_output: SchedulerOutput) -> None:
        """Takes in a step. Preempted and finished requests are forgotten, then the arrays are
        rebuilt."""
        for request_id in scheduler_output.finished_request_ids:
            self._block_ids.pop(request_id, None)
        for request_id in scheduler_output.preempted_request_ids:
            self._block_ids.pop(request_id, None)
        token_ids: list[int] = []
        positions: list[int] = []
        seq_lens: list[int] = []
        starts = [0]
        for request in scheduler_output.scheduled_requests:
            end = request.num_computed_tokens + request.num_scheduled_tokens
            token_ids += request.token_ids
            positions += range(request.num_computed_tokens, end)
            seq_lens.append(end)
            starts.append(len(token_ids))
            self._extend_tables(request)
        self.token_ids = torch.tensor(token_ids, dtype=torch.int32)  # [T]
        self.positions = torch.tensor(positions, dtype=torch.int32)  # [T]
        self.seq_lens = torch.tensor(seq_lens, dtype=torch.int32)  # [S], after this step
        self.query_start_loc = torch.tensor(starts, dtype=torch.int32)  # [S + 1]
        self.groups = [
            self._group_inputs(scheduler_output, group_id) for group_id in range(self._num_groups)
        ]

    def _extend_tables(self, request: ScheduledRequest) -> None:
        if request.kind is not ScheduledKind.RUNNING:
            self._block_ids[request.request_id] = [[] for _ in range(self._num_groups)]
        tables = self._block_ids[request.request_id]
        for table, added in zip(tables, request.new_block_ids, strict=True):
            table += added

    def _group_inputs(self, scheduler_output: SchedulerOutput, group_id: int) -> GroupInputs:
        slots: list[int] = []
        tables: list[list[int]] = []
        for request in scheduler_output.scheduled_requests:
            table = self._block_ids[request.request_id][group_id]
            start = request.num_computed_tokens
            for position in range(start, start + request.num_scheduled_tokens):
                block_id = table[position // self._block_size]
                slots.append(block_id * self._block_size + position % self._block_size)
            tables.append(table)
        width = max([1, *map(len, tables)])
        rows = [table + [0] * (width - len(table)) for table in tables]
        return GroupInputs(
            torch.tensor(slots, dtype=torch.int64),
            torch.tensor(rows, dtype=torch.int32).reshape(len(rows), width),
        )
