"""The arrays of one step, flat over all requests: what the model's parts take in."""

from __future__ import annotations

import torch

from pinfer.runtime.core.scheduler_output import ScheduledKind, ScheduledRequest, SchedulerOutput


class InputBatch:
    """Keeps each running request's block table from step to step, since the scheduler only tells
    what is new. T tokens, S requests, M blocks in the longest table of the step."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._block_ids: dict[str, list[int]] = {}  # by request id

    def update(self, scheduler_output: SchedulerOutput) -> None:
        """Takes in a step. Preempted and finished requests are forgotten, then the arrays are
        rebuilt."""
        for request_id in scheduler_output.finished_request_ids:
            self._block_ids.pop(request_id, None)
        for request_id in scheduler_output.preempted_request_ids:
            self._block_ids.pop(request_id, None)
        token_ids: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        seq_lens: list[int] = []
        starts = [0]
        tables: list[list[int]] = []
        for request in scheduler_output.scheduled_requests:
            table = self._table(request)
            for token_id in request.token_ids:
                position = request.num_computed_tokens + len(token_ids) - starts[-1]
                block_id = table[position // self._block_size]
                token_ids.append(token_id)
                positions.append(position)
                slots.append(block_id * self._block_size + position % self._block_size)
            seq_lens.append(request.num_computed_tokens + request.num_scheduled_tokens)
            starts.append(len(token_ids))
            tables.append(table)
        width = max([1, *map(len, tables)])
        rows = [table + [0] * (width - len(table)) for table in tables]
        self.token_ids = torch.tensor(token_ids, dtype=torch.int32)  # [T]
        self.positions = torch.tensor(positions, dtype=torch.int32)  # [T]
        self.slot_mapping = torch.tensor(slots, dtype=torch.int64)  # [T]
        # [S, M], rows filled up with the null block 0
        self.block_table = torch.tensor(rows, dtype=torch.int32).reshape(len(rows), width)
        self.seq_lens = torch.tensor(seq_lens, dtype=torch.int32)  # [S], after this step
        self.query_start_loc = torch.tensor(starts, dtype=torch.int32)  # [S + 1]

    def _table(self, request: ScheduledRequest) -> list[int]:
        table = self._block_ids.setdefault(request.request_id, [])
        if request.kind is not ScheduledKind.RUNNING:
            table.clear()
        table += request.new_block_ids
        return table
