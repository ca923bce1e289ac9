"""A request as the scheduler, the cache manager and the sampler know it: token ids and numbers."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from pinfer.runtime.core.pooling_params import PoolingMode, PoolingParams
from pinfer.runtime.core.sampling_params import SamplingParams


class RequestStatus(IntEnum):
    WAITING = 0  # never ran
    RUNNING = 1  # holds cache blocks
    PREEMPTED = 2  # ran, lost its blocks, will be computed again
    FINISHED_STOPPED = 3
    FINISHED_LENGTH = 4
    FINISHED_ABORTED = 5
    FINISHED_ERROR = 6


_FINISH_REASONS = {
    RequestStatus.FINISHED_STOPPED: "stop",
    RequestStatus.FINISHED_LENGTH: "length",
    RequestStatus.FINISHED_ABORTED: "abort",
    RequestStatus.FINISHED_ERROR: "error",
}


def is_finished(status: RequestStatus) -> bool:
    return status >= RequestStatus.FINISHED_STOPPED


def finish_reason(status: RequestStatus) -> str:
    """ "stop", "length", "abort" or "error"; "" for a status that is not finished."""
    return _FINISH_REASONS.get(status, "")


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """What a request may say beside its prompt and its sampling parameters."""

    # The model's end ids. The first is the end-of-text id; further ones act as stop ids (and are
    # reported as the stop reason), unless sampling_params.ignore_eos.
    eos_token_ids: list[int] = field(default_factory=list)
    priority: int = 0  # smaller is served earlier; only under the priority policy
    arrival_time: float = 0.0  # seconds on any one clock; breaks ties of priority
    cache_salt: str = ""  # requests share cached blocks only with requests of the same salt
    choice_index: int = 0  # which of n choices: each has its own random stream
    # The request is for its prompt's embedding: it ends when that is computed, without a token.
    pooling: PoolingParams | None = None


class Request:
    """Owned by the scheduler. A prompt of at least one token is required."""

    def __init__(
        self,
        request_id: str,
        prompt_token_ids: Sequence[int],
        sampling_params: SamplingParams,
        options: RequestOptions | None = None,
    ) -> None:
        options = options or RequestOptions()
        self.request_id = request_id
        self.sampling_params = sampling_params
        eos = options.eos_token_ids
        self.eos_token_id: int | None = eos[0] if eos else None
        self.extra_eos_token_ids = [token_id for token_id in eos[1:] if token_id != eos[0]]
        self.priority = options.priority
        self.arrival_time = options.arrival_time
        self.cache_salt = options.cache_salt
        self.choice_index = options.choice_index
        self.pooling = options.pooling
        seed = sampling_params.seed
        # Of the random stream, as 64 bits without sign.
        self.seed = secrets.randbits(64) if seed is None else seed & (2**64 - 1)
        self.num_prompt_tokens = len(prompt_token_ids)
        self.all_token_ids = list(prompt_token_ids)  # prompt, then output

        # Set by the scheduler.
        self.status = RequestStatus.WAITING
        self.stop_reason: int | None = None  # the stop id that ended it, not the end-of-text id
        self.num_computed_tokens = 0  # tokens whose KV exists or is being written
        self.num_output_placeholders = 0  # being sampled: scheduled before they are known
        self.num_cached_tokens = -1  # prefix-cache hit of the first admission; -1 before
        self.num_preemptions = 0
        self.num_prompt_logprobs = 0  # of the prompt's tokens after the first: passed on so far

        # Set by the KV cache manager.
        # A table for each group of layers; position p lives in block_ids[group][p // block_size].
        # The tables are equally long, and empty (or none at all) while the request holds no blocks.
        self.block_ids: list[list[int]] = []
        self.block_hashes: list[bytes] = []  # keys of full blocks, as far as they were needed
        self.num_registered_blocks = 0  # leading blocks that have been given their key

    @property
    def num_tokens(self) -> int:
        return len(self.all_token_ids)

    @property
    def num_tokens_with_placeholders(self) -> int:
        return len(self.all_token_ids) + self.num_output_placeholders

    @property
    def num_output_tokens(self) -> int:
        return len(self.all_token_ids) - self.num_prompt_tokens

    @property
    def prompt_token_ids(self) -> list[int]:
        return self.all_token_ids[: self.num_prompt_tokens]

    @property
    def output_token_ids(self) -> list[int]:
        return self.all_token_ids[self.num_prompt_tokens :]

    def append_output_token_id(self, token_id: int) -> None:
        self.all_token_ids.append(token_id)

    def is_stop_token_id(self, token_id: int) -> bool:
        """True if sampling token_id ends the request as a stop id: one of the parameters, or a
        further end id of the model."""
        if token_id in self.sampling_params.stop_token_ids:
            return True
        return not self.sampling_params.ignore_eos and token_id in self.extra_eos_token_ids

    @property
    def skips_prefix_cache(self) -> bool:
        """Log-probabilities of the prompt, and means, need what all of its tokens give; cached
        blocks do not have that."""
        is_mean = self.pooling is not None and self.pooling.mode == PoolingMode.MEAN
        return self.sampling_params.prompt_logprobs is not None or is_mean

    @property
    def finished(self) -> bool:
        return is_finished(self.status)
