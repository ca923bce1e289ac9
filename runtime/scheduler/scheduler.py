"""Decides, step by step, which requests compute how many tokens, and gives them cache blocks.

The rules are those of vLLM V1 (docs/scheduler.md): running requests first, then admissions, under
one budget of tokens; prompts are computed in chunks; when blocks run out a running request is
preempted and computed again later. There is no difference between prefill and decode: a request
computes what it has not computed yet.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from pinfer.runtime.core.engine_config import EngineConfig, SchedulingPolicy
from pinfer.runtime.core.kv_cache_config import KVCacheConfig
from pinfer.runtime.core.model_runner_output import (
    ModelRunnerOutput,
    PromptLogprobs,
    SampledToken,
)
from pinfer.runtime.core.request import Request, RequestStatus, finish_reason
from pinfer.runtime.core.request_output import RequestOutput
from pinfer.runtime.core.scheduler_output import (
    PLACEHOLDER_TOKEN_ID,
    ScheduledKind,
    ScheduledRequest,
    SchedulerOutput,
)
from pinfer.runtime.kv_cache.kv_cache_manager import KVCacheManager
from pinfer.runtime.scheduler.request_queue import RequestQueue

OfRequest = TypeVar("OfRequest", SampledToken, PromptLogprobs)


@dataclass(frozen=True, slots=True)
class SchedulerStats:
    num_running_requests: int
    num_waiting_requests: int  # preempted ones too
    num_usable_blocks: int  # the pool without the null block
    num_free_blocks: int  # those that only the prefix cache knows too
    num_cached_blocks: int  # blocks with a key, free or held
    prefix_cache_queried_tokens: int
    prefix_cache_hit_tokens: int
    num_preemptions: int


@dataclass(slots=True)
class _Step:
    """A step being put together, in the order of Scheduler._running."""

    token_budget: int
    threshold: int = 0  # cap of one request's tokens; 0 = none
    requests: list[Request] = field(default_factory=list)
    num_tokens: list[int] = field(default_factory=list)
    output: SchedulerOutput = field(default_factory=SchedulerOutput)


class Scheduler:
    """Driven in rounds of schedule(), the model, update_from_output(). The next step may be
    scheduled before the output of the last one has been taken in (asynchronous scheduling); steps
    run in their order. Requests may be added and finished between these calls; an id is free again
    when no step that names it runs. config must be valid, with max_model_len and num_blocks known.
    Without kv_cache_config: for a model in which every token attends to all before it."""

    def __init__(self, config: EngineConfig, kv_cache_config: KVCacheConfig | None = None) -> None:
        self._config = config
        self.kv_cache_manager = KVCacheManager(config, kv_cache_config)
        self._requests: dict[str, Request] = {}
        self._running: list[Request] = []  # in order of admission
        self._waiting = RequestQueue(config.scheduling_policy)
        self._finished_request_ids: list[str] = []  # since the last schedule()
        self._preempted_request_ids: list[str] = []  # of this step, or a failed one before it
        self._num_preemptions = 0

    def add_request(self, request: Request) -> None:
        """Raises ValueError for an id in use, bad sampling parameters, a prompt that leaves no room
        for a token, and a request that the cache can never hold."""
        if request.request_id in self._requests:
            raise ValueError(f"request_id {request.request_id} is in use")
        request.sampling_params.validate()
        self._check_fits(request)
        self._waiting.add_request(request)
        self._requests[request.request_id] = request

    def _check_fits(self, request: Request) -> None:
        num_prompt = request.num_prompt_tokens
        if not math.isfinite(request.arrival_time):
            raise ValueError("arrival_time is not finite")  # it could not be ordered
        if num_prompt == 0:
            raise ValueError("prompt_token_ids is empty")
        samples = request.pooling is None
        if num_prompt > self._config.max_model_len - (1 if samples else 0):
            raise ValueError(
                f"the prompt of {num_prompt} tokens leaves no room for output within "
                f"max_model_len {self._config.max_model_len}"
            )
        # The last sampled token is never computed, so it needs no place in the cache.
        max_tokens = request.sampling_params.max_tokens
        num_tokens = num_prompt
        if samples:
            num_tokens = min(num_prompt + max_tokens, self._config.max_model_len) - 1
        num_usable = self.kv_cache_manager.block_pool.num_usable_blocks
        if self.kv_cache_manager.max_blocks_held(num_tokens) > num_usable:
            raise ValueError(
                f"the request can reach {num_tokens} cached tokens (prompt {num_prompt}, "
                f"max_tokens {max_tokens}), the cache holds "
                f"{self.kv_cache_manager.max_tokens_held(num_tokens)}: "
                "lower max_tokens or raise --num-blocks"
            )

    def finish_requests(
        self, request_ids: Sequence[str], status: RequestStatus
    ) -> list[RequestOutput]:
        """Ends requests from outside, one after the other: FINISHED_ABORTED for a caller that has
        left, FINISHED_STOPPED for a stop string, FINISHED_ERROR for a failed step (their blocks
        lose their keys). Unknown and finished ids are ignored. One output for each request that
        ended."""
        outputs = []
        for request_id in request_ids:
            request = self._requests.get(request_id)
            if request is None:
                continue
            if request.status == RequestStatus.RUNNING:
                self._running.remove(request)
            else:
                self._waiting.remove_request(request)
            self._finish(request, status)
            outputs.append(_make_output(request))
            del self._requests[request_id]
        return outputs

    def schedule(self) -> SchedulerOutput:
        """The next step. After it, every scheduled token counts as computed. A token that is still
        being sampled is a placeholder (SchedulerOutput.put_sampled_tokens)."""
        step = _Step(token_budget=self._config.max_num_batched_tokens)
        # A lone request has nobody to hold up.
        if len(self._running) + len(self._waiting) > 1:
            step.threshold = self._config.long_prefill_token_threshold
        self._schedule_running(step)
        if not self._preempted_request_ids:
            self._schedule_waiting(step)
        self._advance(step)
        step.output.preempted_request_ids = self._preempted_request_ids
        step.output.finished_request_ids = self._finished_request_ids
        self._preempted_request_ids = []
        self._finished_request_ids = []
        return step.output

    def _schedule_running(self, step: _Step) -> None:
        index = 0
        while index < len(self._running) and step.token_budget > 0:
            request = self._running[index]
            if self._awaits_end(request):
                index += 1
                continue
            num_left = request.num_tokens_with_placeholders - request.num_computed_tokens
            num_tokens = self._capped(step, num_left)
            num_known_blocks = len(request.block_ids[0])
            index = self._allocate_or_preempt(step, index, num_tokens)
            if index < 0:  # a request that had to preempt itself ends the walk
                break
            self._add_to_step(step, request, ScheduledKind.RUNNING, num_tokens, num_known_blocks)
            index += 1

    def _awaits_end(self, request: Request) -> bool:
        """What is being sampled or pooled is the last that it gets: nothing is left to compute."""
        return request.num_output_placeholders > 0 and (
            request.pooling is not None
            or self._reaches_length(request, request.num_tokens_with_placeholders)
        )

    def _allocate_or_preempt(self, step: _Step, index: int, num_tokens: int) -> int:
        """Preempts until running[index] has its blocks. Returns its index, which a victim that
        stands before it moves, or -1 if it was preempted itself."""
        request = self._running[index]
        while not self.kv_cache_manager.allocate_for_running(request, num_tokens):
            victim = self._choose_victim()
            self._preempt(step, victim)
            if victim == index:
                return -1
            if victim < index:
                index -= 1
        return index

    def _schedule_waiting(self, step: _Step) -> None:
        while (
            step.token_budget > 0
            and len(self._waiting) > 0
            and len(self._running) < self._config.max_num_seqs
        ):
            request = self._waiting.peek_request()
            computed = self.kv_cache_manager.get_computed_blocks(request)
            num_tokens = self._capped(step, request.num_tokens - computed.num_tokens)
            num_reserved_blocks = (
                int(self._config.watermark * self._config.num_blocks) if self._running else 0
            )
            # Nothing behind the head is tried: it would be overtaken for ever.
            if not self.kv_cache_manager.allocate_for_admission(
                request, computed, num_tokens, num_reserved_blocks
            ):
                return
            self._waiting.pop_request()
            self._running.append(request)
            is_new = request.status == RequestStatus.WAITING
            request.status = RequestStatus.RUNNING
            request.num_computed_tokens = computed.num_tokens
            if request.num_cached_tokens < 0:
                request.num_cached_tokens = computed.num_tokens
            kind = ScheduledKind.NEW if is_new else ScheduledKind.RESUMED
            self._add_to_step(step, request, kind, num_tokens, 0)

    def _capped(self, step: _Step, num_tokens: int) -> int:
        if step.threshold > 0:
            num_tokens = min(num_tokens, step.threshold)
        return min(num_tokens, step.token_budget)

    def _add_to_step(
        self,
        step: _Step,
        request: Request,
        kind: ScheduledKind,
        num_tokens: int,
        num_known_blocks: int,
    ) -> None:
        step.requests.append(request)
        step.num_tokens.append(num_tokens)
        step.output.scheduled_requests.append(
            ScheduledRequest(
                request_id=request.request_id,
                kind=kind,
                num_computed_tokens=request.num_computed_tokens,
                new_block_ids=[table[num_known_blocks:] for table in request.block_ids],
            )
        )
        step.token_budget -= num_tokens

    def _choose_victim(self) -> int:
        running = self._running
        if self._config.scheduling_policy is SchedulingPolicy.FCFS:
            return len(running) - 1
        return max(
            range(len(running)), key=lambda i: (running[i].priority, running[i].arrival_time)
        )

    def _preempt(self, step: _Step, index: int) -> None:
        request = self._running.pop(index)
        if request in step.requests:  # scheduled in this step: withdraw it
            entry = step.requests.index(request)
            step.token_budget += step.num_tokens.pop(entry)
            del step.requests[entry]
            del step.output.scheduled_requests[entry]
        # Blocks that a withdrawn chunk was to fill have their key already, but the chunk will not
        # run: whoever found them would read what was never written.
        self.kv_cache_manager.drop_keys(
            request, request.num_computed_tokens // self._config.block_size
        )
        self.kv_cache_manager.free(request)
        request.num_computed_tokens = 0
        request.status = RequestStatus.PREEMPTED
        request.num_preemptions += 1
        self._num_preemptions += 1
        self._waiting.prepend_request(request)
        self._preempted_request_ids.append(request.request_id)

    def _advance(self, step: _Step) -> None:
        entries = zip(step.requests, step.num_tokens, step.output.scheduled_requests, strict=True)
        for request, num_tokens, scheduled in entries:
            start = request.num_computed_tokens
            scheduled.token_ids = request.all_token_ids[start : start + num_tokens]
            if len(scheduled.token_ids) < num_tokens:
                scheduled.token_ids.append(PLACEHOLDER_TOKEN_ID)
            request.num_computed_tokens = start + num_tokens
            scheduled.samples = request.num_computed_tokens == request.num_tokens_with_placeholders
            if scheduled.samples:
                request.num_output_placeholders += 1
            step.output.total_num_scheduled_tokens += num_tokens

    def update_from_output(
        self, scheduler_output: SchedulerOutput, model_runner_output: ModelRunnerOutput
    ) -> list[RequestOutput]:
        """Takes the tokens sampled and the embeddings made in the step that scheduler_output
        describes; requests that end are freed at once. What failed, or is missing, ends its request
        with an error. Requests that were finished since schedule() are passed over; those that were
        preempted keep their token. One output for each request that got a token or
        log-probabilities of its prompt, or ended."""
        outputs = []
        any_finished = False
        sampled_tokens = deque(model_runner_output.sampled_tokens)
        scored_prompts = deque(model_runner_output.prompt_logprobs)
        embeddings = deque(model_runner_output.embeddings)
        for scheduled in scheduler_output.scheduled_requests:
            prompt_logprobs = _next_of(scored_prompts, scheduled.request_id)
            if not scheduled.samples and prompt_logprobs is None:
                continue
            token = _next_of(sampled_tokens, scheduled.request_id)
            embedding = _next_of(embeddings, scheduled.request_id)
            request = self._requests.get(scheduled.request_id)
            if request is None or request.status == RequestStatus.WAITING:
                continue
            is_running = request.status == RequestStatus.RUNNING
            if scheduled.samples:
                request.num_output_placeholders -= 1
            if request.pooling is not None:
                has_result = embedding is not None and not embedding.failed
            else:
                has_result = token is not None and not token.failed and token.token_id >= 0
            has_no_result = scheduled.samples and not has_result
            failed = has_no_result or (prompt_logprobs is not None and prompt_logprobs.failed)
            if failed:
                request.status = RequestStatus.FINISHED_ERROR
            elif token is not None:
                request.append_output_token_id(token.token_id)
                self._check_for_end(request, token.token_id)
            elif embedding is not None:
                request.status = RequestStatus.FINISHED_STOPPED
            if request.finished:
                if not is_running:
                    self._waiting.remove_request(request)
                self._finish(request, request.status)
                any_finished = True
            elif is_running:
                self.kv_cache_manager.register_full_blocks(request, request.num_computed_tokens)
            output = _make_output(request)
            outputs.append(output)
            if failed:
                continue
            if token is not None:
                output.new_token_ids.append(token.token_id)
                if token.logprobs is not None:
                    output.new_logprobs.append(token.logprobs)
            if embedding is not None:
                output.embedding = embedding.values
            if prompt_logprobs is not None:
                output.prompt_logprobs = prompt_logprobs.tokens
                request.num_prompt_logprobs += len(prompt_logprobs.tokens)
        if any_finished:
            self._running = [request for request in self._running if not request.finished]
            for output in outputs:
                if output.finished:
                    del self._requests[output.request_id]
        return outputs

    def fail_step(self, scheduler_output: SchedulerOutput) -> list[RequestOutput]:
        """For a step that could not be computed: its requests end with an error. What it was to
        write may be in the cache's books already, so nothing in there is trusted: other running
        requests begin again, and all prefixes are forgotten. A step that was scheduled after it
        must not run."""
        ids = [scheduled.request_id for scheduled in scheduler_output.scheduled_requests]
        outputs = self.finish_requests(ids, RequestStatus.FINISHED_ERROR)
        while self._running:
            self._running[-1].num_output_placeholders = 0
            self._preempt(_Step(token_budget=0), len(self._running) - 1)
        self.reset_prefix_cache()
        return outputs

    def _check_for_end(self, request: Request, token_id: int) -> None:
        """min_tokens does not count here: until then the sampler chooses no end id."""
        params = request.sampling_params
        if token_id == request.eos_token_id and not params.ignore_eos:
            request.status = RequestStatus.FINISHED_STOPPED
        elif request.is_stop_token_id(token_id):
            request.status = RequestStatus.FINISHED_STOPPED
            request.stop_reason = token_id
        elif self._reaches_length(request, request.num_tokens):
            request.status = RequestStatus.FINISHED_LENGTH

    def _reaches_length(self, request: Request, num_tokens: int) -> bool:
        num_output_tokens = num_tokens - request.num_prompt_tokens
        return (
            num_tokens >= self._config.max_model_len
            or num_output_tokens >= request.sampling_params.max_tokens
        )

    def _finish(self, request: Request, status: RequestStatus) -> None:
        """Frees what the request holds. The caller takes it out of its queue and of _requests."""
        request.status = status
        if status == RequestStatus.FINISHED_ERROR:
            self.kv_cache_manager.drop_keys(request, 0)
        self.kv_cache_manager.free(request)
        self._finished_request_ids.append(request.request_id)

    def has_unfinished_requests(self) -> bool:
        return bool(self._requests)

    def has_finished_requests(self) -> bool:
        """There are ended requests of which no step has told the executor yet."""
        return bool(self._finished_request_ids)

    def find_request(self, request_id: str) -> Request | None:
        """None if unknown or finished."""
        return self._requests.get(request_id)

    def stats(self) -> SchedulerStats:
        pool = self.kv_cache_manager.block_pool
        prefix = self.kv_cache_manager.prefix_cache_stats
        return SchedulerStats(
            num_running_requests=len(self._running),
            num_waiting_requests=len(self._waiting),
            num_usable_blocks=pool.num_usable_blocks,
            num_free_blocks=pool.num_free_blocks,
            num_cached_blocks=pool.num_cached_blocks,
            prefix_cache_queried_tokens=prefix.num_queried_tokens,
            prefix_cache_hit_tokens=prefix.num_hit_tokens,
            num_preemptions=self._num_preemptions,
        )

    def reset_prefix_cache(self) -> bool:
        """Forgets all cached prefixes. False, and nothing done, while any request holds blocks."""
        return self.kv_cache_manager.block_pool.reset_prefix_cache()

    def running_request_ids(self) -> list[str]:
        """For tests and traces."""
        return [request.request_id for request in self._running]

    def waiting_request_ids(self) -> list[str]:
        """For tests and traces."""
        return self._waiting.request_ids()


def _next_of(entries: deque[OfRequest], request_id: str) -> OfRequest | None:
    """Takes the first entry if it is about the request."""
    return entries.popleft() if entries and entries[0].request_id == request_id else None


def _make_output(request: Request) -> RequestOutput:
    return RequestOutput(
        request_id=request.request_id,
        finish_reason=finish_reason(request.status),
        stop_reason=request.stop_reason,
        num_cached_tokens=max(request.num_cached_tokens, 0),
    )
