"""What one model step gave back: one sampled token for each scheduled request that samples."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class SampledToken:
    request_id: str
    token_id: int = -1
    failed: bool = False  # logits were not finite: the request ends alone, with an error


@dataclass(slots=True)
class ModelRunnerOutput:
    sampled_tokens: list[SampledToken] = field(default_factory=list)  # in schedule order
