"""Drives a Scheduler through a recorded workload and writes down every decision: for the tests that
compare the scheduler with recorded traces and with its C++ twin (engine_cpp/scheduler/replay.h says
what a trace may hold)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pinfer.runtime.core.engine_config import EngineConfig, SchedulingPolicy
from pinfer.runtime.core.kv_cache_config import KVCacheConfig, make_kv_cache_config
from pinfer.runtime.core.model_runner_output import ModelRunnerOutput, SampledToken
from pinfer.runtime.core.request import Request, RequestOptions, RequestStatus
from pinfer.runtime.core.request_output import RequestOutput
from pinfer.runtime.core.sampling_params import SamplingParams
from pinfer.runtime.core.scheduler_output import ScheduledKind, SchedulerOutput
from pinfer.runtime.scheduler.scheduler import Scheduler

Json = dict[str, Any]


def replay_trace(trace: Mapping[str, Any]) -> Json:
    return _Replay(trace).run()


def _read_config(json: Mapping[str, Any]) -> EngineConfig:
    names = (
        "block_size",
        "num_blocks",
        "max_model_len",
        "max_num_seqs",
        "max_num_batched_tokens",
        "enable_prefix_caching",
        "long_prefill_token_threshold",
        "watermark",
        "scheduler_reserve_full_isl",
        "async_scheduling",
    )
    config = EngineConfig(
        scheduling_policy=SchedulingPolicy(json.get("policy", "fcfs")),
        **{name: json[name] for name in names if name in json},
    )
    config.validate()
    return config


def read_kv_cache_config(json: Mapping[str, Any]) -> KVCacheConfig:
    config = _read_config(json)
    windows = json.get("layer_windows", [0])
    return make_kv_cache_config(windows, config.block_size, config.max_model_len)


def read_prompt(json: Mapping[str, Any]) -> list[int]:
    if "prompt_ranges" not in json:
        return list(json["prompt_token_ids"])
    return [first + i for first, count in json["prompt_ranges"] for i in range(count)]


def _read_request(json: Mapping[str, Any]) -> Request:
    names = ("max_tokens", "min_tokens", "ignore_eos", "stop_token_ids")
    params = SamplingParams(**{name: json[name] for name in names if name in json})
    names = ("eos_token_ids", "priority", "arrival_time", "cache_salt")
    options = {name: json[name] for name in names if name in json}
    if "eos_token_id" in json:
        options["eos_token_ids"] = [json["eos_token_id"]]
    return Request(json["request_id"], read_prompt(json), params, RequestOptions(**options))


def _arrival_step(json: Mapping[str, Any]) -> int:
    return json.get("arrival_step", 0)


def sampled_token_id(json: Mapping[str, Any], index: int) -> int:
    return json["sampled_token_ids"][index] if "sampled_token_ids" in json else 1000 + index


def _block_ids_json(block_ids: list[list[int]]) -> list[int] | list[list[int]]:
    """Recorded traces have one group of layers and say its block ids alone."""
    return block_ids[0] if len(block_ids) == 1 else block_ids


class _Replay:
    def __init__(self, trace: Mapping[str, Any]) -> None:
        self._trace = trace
        self._requests: Sequence[Mapping[str, Any]] = trace["requests"]
        self._request_json = {request["request_id"]: request for request in self._requests}
        self._last_arrival = max(map(_arrival_step, self._requests), default=-1)
        config = trace["config"]
        self._scheduler = Scheduler(_read_config(config), read_kv_cache_config(config))
        self._async_scheduling = _read_config(config).async_scheduling
        self._in_flight: SchedulerOutput | None = None  # scheduled last
        self._finished: list[Json] = []  # of the step that runs
        self._token_ids: dict[str, list[int]] = {}  # of each request, sampled so far

    def run(self) -> Json:
        has_steps = "steps" in self._trace
        num_steps = len(self._trace["steps"]) if has_steps else self._trace["max_steps"]
        steps = []
        for step in range(num_steps):
            is_done = step > self._last_arrival and not self._scheduler.has_unfinished_requests()
            if is_done and not has_steps:
                break
            steps.append(self._run_step(step))
        pool = self._scheduler.kv_cache_manager.block_pool
        return {
            "steps": steps,
            "final_free_block_ids": pool.free_block_ids(),
            "final_cached_block_ids": pool.cached_block_ids(),
            "final_token_ids": self._token_ids,
            "final_stats": self._stats_json(),
        }

    def _run_step(self, step: int) -> Json:
        result: Json = {"step": step}
        self._finished = []
        self._add_requests(step, result)
        self._abort_requests(step, "pre")
        if step in self._trace.get("reset_prefix_cache_steps", []):
            result["reset_prefix_cache"] = self._scheduler.reset_prefix_cache()
        output = self._scheduler.schedule()
        self._abort_requests(step, "mid")
        last, self._in_flight = self._in_flight, output
        computed = last if self._async_scheduling else output
        if computed is not None:
            sampled = self._sample(computed)
            self._add_outputs(self._scheduler.update_from_output(computed, sampled))

        result["scheduled"] = [
            {
                "request_id": request.request_id,
                "num_scheduled_tokens": request.num_scheduled_tokens,
                "num_computed_tokens": request.num_computed_tokens,
                "kind": request.kind.value,
                "new_block_ids": _block_ids_json(request.new_block_ids),
            }
            for request in output.scheduled_requests
        ]
        result["preempted"] = output.preempted_request_ids
        result["finished"] = self._finished
        result["running"] = self._scheduler.running_request_ids()
        result["waiting"] = self._scheduler.waiting_request_ids()
        result["num_free_blocks"] = self._scheduler.stats().num_free_blocks
        result["num_cached_tokens"] = {
            request.request_id: request.num_computed_tokens
            for request in output.scheduled_requests
            if request.kind is not ScheduledKind.RUNNING
        }
        return result

    def _add_requests(self, step: int, result: Json) -> None:
        for json in self._requests:
            if _arrival_step(json) != step:
                continue
            try:
                self._scheduler.add_request(_read_request(json))
            except ValueError as error:
                refused = {"request_id": json["request_id"], "message": str(error)}
                result.setdefault("refused", []).append(refused)

    def _abort_requests(self, step: int, phase: str) -> None:
        for json in self._requests:
            if json.get("abort_step") == step and json.get("abort_phase", "pre") == phase:
                ids = [json["request_id"]]
                self._add_outputs(
                    self._scheduler.finish_requests(ids, RequestStatus.FINISHED_ABORTED)
                )

    def _sample(self, output: SchedulerOutput) -> ModelRunnerOutput:
        """Stands in for the model: the recorded tokens, one for each request that samples."""
        sampled = ModelRunnerOutput()
        for scheduled in output.scheduled_requests:
            if not scheduled.samples:
                continue
            token = SampledToken(scheduled.request_id)
            request = self._scheduler.find_request(scheduled.request_id)
            if request is not None:  # else aborted since
                json = self._request_json[scheduled.request_id]
                index = request.num_output_tokens
                token.failed = json.get("fails_at") == index
                token.token_id = sampled_token_id(json, index)
            sampled.sampled_tokens.append(token)
        return sampled

    def _add_outputs(self, outputs: Sequence[RequestOutput]) -> None:
        for output in outputs:
            self._token_ids.setdefault(output.request_id, []).extend(output.new_token_ids)
        self._finished.extend(
            {
                "request_id": output.request_id,
                "finish_reason": output.finish_reason,
                "stop_reason": output.stop_reason,
            }
            for output in outputs
            if output.finished
        )

    def _stats_json(self) -> Json:
        stats = self._scheduler.stats()
        return {
            "num_usable_blocks": stats.num_usable_blocks,
            "num_free_blocks": stats.num_free_blocks,
            "num_cached_blocks": stats.num_cached_blocks,
            "prefix_cache_queried_tokens": stats.prefix_cache_queried_tokens,
            "prefix_cache_hit_tokens": stats.prefix_cache_hit_tokens,
            "num_preemptions": stats.num_preemptions,
        }
