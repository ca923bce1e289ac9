"""What one model step gave back: one sampled token, or the embedding, for each scheduled request
that reaches its last token, and log-probabilities of prompts where they were asked for."""

from __future__ import annotations

from dataclasses import dataclass, field

from pinfer.runtime.core.token_logprobs import TokenLogprobs


@dataclass(slots=True)
class SampledToken:
    request_id: str
    token_id: int = -1
    failed: bool = False  # logits were not finite: the request ends alone, with an error
    logprobs: TokenLogprobs | None = None  # if the request asks for them


@dataclass(slots=True)
class PromptLogprobs:
    """Of the next prompt tokens of a request, in the order of the prompt."""

    request_id: str
    tokens: list[TokenLogprobs] = field(default_factory=list)
    failed: bool = False  # as above


@dataclass(slots=True)
class Embedding:
    request_id: str
    values: list[float] = field(default_factory=list)
    failed: bool = False  # as above


@dataclass(slots=True)
class ModelRunnerOutput:
    sampled_tokens: list[SampledToken] = field(default_factory=list)  # in schedule order
    prompt_logprobs: list[PromptLogprobs] = field(default_factory=list)  # in schedule order
    embeddings: list[Embedding] = field(default_factory=list)  # in schedule order
