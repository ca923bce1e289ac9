"""What one step, or an abort, means for one request: what the engine passes on to its caller."""

from __future__ import annotations

from dataclasses import dataclass, field

from pinfer.runtime.core.token_logprobs import TokenLogprobs


@dataclass(slots=True)
class RequestOutput:
    request_id: str = ""
    new_token_ids: list[int] = field(default_factory=list)
    # One for each new token, or none.
    new_logprobs: list[TokenLogprobs] = field(default_factory=list)
    # Of the next prompt tokens (after the first).
    prompt_logprobs: list[TokenLogprobs] = field(default_factory=list)
    # Of a request that asks for it, at its end.
    embedding: list[float] = field(default_factory=list)
    finish_reason: str = ""  # "stop", "length", "abort", "error"; "" while it goes on
    stop_reason: int | None = None  # the stop id that ended it
    num_cached_tokens: int = 0  # prompt tokens that the prefix cache supplied

    @property
    def finished(self) -> bool:
        return self.finish_reason != ""
