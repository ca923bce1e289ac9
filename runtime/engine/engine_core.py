"""The heart of the engine: one call of step() is one step of generation for all running
requests."""

from __future__ import annotations

from collections.abc import Sequence

from pinfer.runtime.core.engine_config import EngineConfig
from pinfer.runtime.core.kv_cache_config import KVCacheConfig
from pinfer.runtime.core.model_runner_output import ModelRunnerOutput, PromptLogprobs
from pinfer.runtime.core.pooling_params import PoolingMode
from pinfer.runtime.core.request import Request, RequestStatus
from pinfer.runtime.core.request_output import RequestOutput
from pinfer.runtime.core.scheduler_output import SchedulerOutput
from pinfer.runtime.engine.pooler import Pooler
from pinfer.runtime.executor.model_runner import ModelRunner
from pinfer.runtime.sampler.logprobs import log_softmax_top
from pinfer.runtime.sampler.sampler import Sampler
from pinfer.runtime.scheduler.scheduler import Scheduler

# Rows of prompt logits that are held at once.
PROMPT_LOGITS_ROWS = 64


class EngineCore:
    """config: valid, max_model_len and num_blocks known. The executor's cache is laid out by
    kv_cache_config. embeds: all requests are for embeddings, else none."""

    def __init__(
        self,
        config: EngineConfig,
        kv_cache_config: KVCacheConfig,
        executor: ModelRunner,
        sampler: Sampler,
        embeds: bool = False,
    ) -> None:
        self._scheduler = Scheduler(config, kv_cache_config)
        self._executor = executor
        self._sampler = sampler
        self._pooler = Pooler()
        self._embeds = embeds
        self._async_scheduling = config.async_scheduling
        self._in_flight: SchedulerOutput | None = None  # a step whose output is not taken in yet

    def add_request(self, request: Request) -> None:
        """ValueError if it can never run."""
        self._scheduler.add_request(request)

    def finish_requests(
        self, request_ids: Sequence[str], status: RequestStatus
    ) -> list[RequestOutput]:
        return self._scheduler.finish_requests(request_ids, status)

    def has_work(self) -> bool:
        return (
            self._scheduler.has_unfinished_requests()
            or self._scheduler.has_finished_requests()
            or self._in_flight is not None
        )

    def step(self) -> list[RequestOutput]:
        """Schedules, computes, samples (or pools) and takes the tokens in; with async_scheduling
        those of the step before."""
        step = self._scheduler.schedule()
        last, self._in_flight = self._in_flight, None
        output = ModelRunnerOutput()
        if last is not None:
            output = self._collect(last)
            step.put_sampled_tokens(output.sampled_tokens)
        self._executor.execute_model(step)
        if not self._async_scheduling:
            return self._scheduler.update_from_output(step, self._collect(step))
        if step.total_num_scheduled_tokens > 0:
            self._in_flight = step
        return [] if last is None else self._scheduler.update_from_output(last, output)

    def _collect(self, scheduler_output: SchedulerOutput) -> ModelRunnerOutput:
        output = ModelRunnerOutput()
        if self._embeds:
            self._pool(scheduler_output, output)
        else:
            self._sample(scheduler_output, output)
            self._score_prompts(scheduler_output, output)
        return output

    def _sample(self, scheduler_output: SchedulerOutput, output: ModelRunnerOutput) -> None:
        logits = self._executor.compute_logits(scheduler_output.sampled_rows()).numpy()
        sampling = [entry for entry in scheduler_output.scheduled_requests if entry.samples]
        for row, scheduled in zip(logits, sampling, strict=True):
            request = self._scheduler.find_request(scheduled.request_id)
            if request is None:
                continue
            token = self._sampler.sample(row, request)
            output.sampled_tokens.append(token)
            num_listed = request.sampling_params.logprobs
            if num_listed is not None and not token.failed:
                token.logprobs = log_softmax_top(
                    row, num_listed, token.token_id, self._sampler.masked_token_ids
                )

    def _pool(self, scheduler_output: SchedulerOutput, output: ModelRunnerOutput) -> None:
        """A request that was preempted begins again with its first token, unless it needs the last
        one only."""
        self._pooler.forget(scheduler_output.finished_request_ids)
        self._pooler.forget(scheduler_output.preempted_request_ids)
        first_row = 0
        for scheduled in scheduler_output.scheduled_requests:
            begin = first_row
            first_row += scheduled.num_scheduled_tokens
            request = self._scheduler.find_request(scheduled.request_id)
            if request is None or request.pooling is None:
                continue
            needs_all = request.pooling.mode == PoolingMode.MEAN
            if needs_all or scheduled.samples:
                rows = range(begin if needs_all else first_row - 1, first_row)
                states = self._executor.compute_hidden_states(rows).numpy()
                self._pooler.add(scheduled.request_id, states)
            if scheduled.samples:
                output.embeddings.append(self._pooler.take(scheduled.request_id, request.pooling))

    def _score_prompts(self, scheduler_output: SchedulerOutput, output: ModelRunnerOutput) -> None:
        """The logits at position p are about the token at p + 1. What a preempted request has
        passed on already is left out when it is computed again."""
        first_row = 0
        for scheduled in scheduler_output.scheduled_requests:
            begin = first_row
            first_row += scheduled.num_scheduled_tokens
            request = self._scheduler.find_request(scheduled.request_id)
            if request is None or request.sampling_params.prompt_logprobs is None:
                continue
            computed = scheduled.num_computed_tokens
            position = max(computed, request.num_prompt_logprobs)
            end = min(computed + scheduled.num_scheduled_tokens, request.num_prompt_tokens - 1)
            if position >= end:
                continue
            scored = PromptLogprobs(scheduled.request_id)
            output.prompt_logprobs.append(scored)
            for p in range(position, end, PROMPT_LOGITS_ROWS):
                rows = range(begin + p - computed,
                             begin + min(p + PROMPT_LOGITS_ROWS, end) - computed)  # fmt: skip
                for i, row in enumerate(self._executor.compute_logits(rows).numpy()):
                    logprobs = log_softmax_top(
                        row,
                        request.sampling_params.prompt_logprobs,
                        request.all_token_ids[p + i + 1],
                        self._sampler.masked_token_ids,
                    )
                    if logprobs is None:
                        scored.failed = True
                        return
                    scored.tokens.append(logprobs)
