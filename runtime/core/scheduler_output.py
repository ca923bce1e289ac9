"""What the scheduler decided for one step: plain values, all that the executor is told."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class ScheduledKind(Enum):
    NEW = "new"
    RESUMED = "resumed"
    RUNNING = "running"


@dataclass(slots=True)
class ScheduledRequest:
    request_id: str
    kind: ScheduledKind = ScheduledKind.NEW
    num_computed_tokens: int = 0  # before this step; for NEW and RESUMED the prefix-cache hit
    token_ids: list[int] = field(default_factory=list)  # to compute, from num_computed_tokens on
    # By group of layers. RUNNING: blocks added; NEW and RESUMED: the whole table.
    new_block_ids: list[list[int]] = field(default_factory=list)
    samples: bool = False  # this chunk reaches the last known token: one token is sampled

    @property
    def num_scheduled_tokens(self) -> int:
        return len(self.token_ids)


@dataclass(slots=True)
class SchedulerOutput:
    scheduled_requests: list[ScheduledRequest] = field(default_factory=list)  # in schedule order
    preempted_request_ids: list[str] = field(default_factory=list)  # their block tables are void
    finished_request_ids: list[str] = field(default_factory=list)  # ended since the last step
    total_num_scheduled_tokens: int = 0

    def sampled_rows(self) -> list[int]:
        """The step's tokens lie flat, request after request. Of those that sample: the last token's
        row."""
        rows, end = [], 0
        for request in self.scheduled_requests:
            end += request.num_scheduled_tokens
            if request.samples:
                rows.append(end - 1)
        return rows
