"""What the scheduler decided for one step: plain values, all that the executor is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from pinfer.runtime.core.model_runner_output import SampledToken

# Stands for a token that the step before samples, and that was not known when this one was
# scheduled.
PLACEHOLDER_TOKEN_ID = -1


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

    def put_sampled_tokens(self, sampled: Sequence[SampledToken]) -> None:
        """Puts the tokens of the step before in place of the placeholders. One that failed ends its
        request: what is computed for it is thrown away, with any id."""
        token_ids = {token.request_id: token.token_id for token in sampled if not token.failed}
        for request in self.scheduled_requests:
            if request.token_ids[-1] == PLACEHOLDER_TOKEN_ID:
                request.token_ids[-1] = max(token_ids.get(request.request_id, 0), 0)
