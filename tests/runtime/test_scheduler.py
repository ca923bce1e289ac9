"""What the traces and scenarios do not reach: the interface towards engine and executor. The C++
twin is in tests/engine_cpp/scheduler."""

import math

import pytest

from pinfer.runtime.core.engine_config import EngineConfig
from pinfer.runtime.core.model_runner_output import ModelRunnerOutput, SampledToken
from pinfer.runtime.core.request import Request, RequestOptions, RequestStatus
from pinfer.runtime.core.sampling_params import SamplingParams
from pinfer.runtime.core.scheduler_output import ScheduledKind
from pinfer.runtime.scheduler.scheduler import Scheduler


def make_scheduler(**fields):
    defaults = {"block_size": 4, "num_blocks": 20, "max_model_len": 64}
    return Scheduler(EngineConfig(**defaults | fields))


def make_request(request_id, num_tokens=6, max_tokens=8):
    params = SamplingParams(max_tokens=max_tokens)
    prompt = range(100, 100 + num_tokens)
    return Request(request_id, prompt, params, RequestOptions(eos_token_ids=[2]))


def sample(output):
    return ModelRunnerOutput(
        [SampledToken(entry.request_id, 7) for entry in output.scheduled_requests if entry.samples]
    )


def test_a_step_tells_the_executor_everything():
    scheduler = make_scheduler()
    scheduler.add_request(make_request("a"))
    output = scheduler.schedule()
    (entry,) = output.scheduled_requests
    assert (entry.request_id, entry.kind, entry.samples) == ("a", ScheduledKind.NEW, True)
    assert entry.token_ids == [100, 101, 102, 103, 104, 105]
    assert entry.new_block_ids == [[1, 2]]
    assert output.total_num_scheduled_tokens == 6
    (result,) = scheduler.update_from_output(output, sample(output))
    assert result.new_token_ids == [7] and not result.finished
    (entry,) = scheduler.schedule().scheduled_requests
    assert (entry.kind, entry.num_computed_tokens) == (ScheduledKind.RUNNING, 6)
    assert entry.token_ids == [7] and entry.new_block_ids == [[]]


def test_refusals():
    scheduler = make_scheduler()
    scheduler.add_request(make_request("a"))
    with pytest.raises(ValueError, match="request_id a is in use"):
        scheduler.add_request(make_request("a"))
    options = RequestOptions(arrival_time=math.nan)
    with pytest.raises(ValueError, match="arrival_time is not finite"):
        scheduler.add_request(Request("b", [1], SamplingParams(), options))


def test_ended_requests_are_reported_to_the_executor_once():
    scheduler = make_scheduler()
    scheduler.add_request(make_request("a", max_tokens=1))
    scheduler.add_request(make_request("b"))
    output = scheduler.schedule()
    scheduler.update_from_output(output, sample(output))
    assert scheduler.find_request("a") is None
    request = scheduler.find_request("b")
    assert request is not None and request.output_token_ids == [7]
    scheduler.finish_requests(["b"], RequestStatus.FINISHED_ABORTED)
    assert scheduler.has_finished_requests()
    assert scheduler.schedule().finished_request_ids == ["a", "b"]
    assert scheduler.schedule().finished_request_ids == []
    assert not scheduler.has_unfinished_requests()


def test_finish_from_outside():
    scheduler = make_scheduler()
    for request_id in "abc":
        scheduler.add_request(make_request(request_id))
    output = scheduler.schedule()
    scheduler.update_from_output(output, sample(output))
    outputs = scheduler.finish_requests(["c", "unknown", "a"], RequestStatus.FINISHED_STOPPED)
    assert [(out.request_id, out.finish_reason) for out in outputs] == [
        ("c", "stop"),
        ("a", "stop"),
    ]
    assert scheduler.running_request_ids() == ["b"]


def test_a_failed_step_leaves_no_keys():
    scheduler = make_scheduler()
    scheduler.add_request(make_request("a", 9))
    scheduler.schedule()
    assert scheduler.stats().num_cached_blocks == 2
    scheduler.finish_requests(["a"], RequestStatus.FINISHED_ERROR)
    assert scheduler.stats().num_cached_blocks == 0
    assert scheduler.stats().num_free_blocks == 19


def test_a_missing_token_ends_its_request_alone():
    scheduler = make_scheduler()
    for request_id in "abc":
        scheduler.add_request(make_request(request_id))
    output = scheduler.schedule()
    sampled = sample(output)
    del sampled.sampled_tokens[1]
    outputs = scheduler.update_from_output(output, sampled)
    assert [out.finish_reason for out in outputs] == ["", "error", ""]
    assert [out.new_token_ids for out in outputs] == [[7], [], [7]]


def test_an_id_that_comes_back_in_the_middle_of_a_step_is_another():
    scheduler = make_scheduler()
    scheduler.add_request(make_request("a"))
    scheduler.add_request(make_request("b"))
    output = scheduler.schedule()
    scheduler.finish_requests(["a"], RequestStatus.FINISHED_ABORTED)
    scheduler.add_request(make_request("a"))
    outputs = scheduler.update_from_output(output, sample(output))
    assert [out.request_id for out in outputs] == ["b"]
    request = scheduler.find_request("a")
    assert request is not None and request.num_output_tokens == 0


def test_cached_tokens_are_those_of_the_first_admission():
    scheduler = make_scheduler(num_blocks=5)
    scheduler.add_request(make_request("a", 5))
    scheduler.add_request(make_request("b", 5))
    cached = {"a": set(), "b": set()}
    resumed_at = []
    while scheduler.has_unfinished_requests():
        output = scheduler.schedule()
        for entry in output.scheduled_requests:
            if entry.kind is ScheduledKind.RESUMED:
                resumed_at.append(entry.num_computed_tokens)
        for out in scheduler.update_from_output(output, sample(output)):
            cached[out.request_id].add(out.num_cached_tokens)
    # b is preempted, and finds more of itself when it comes back.
    assert max(resumed_at) > 4
    assert cached == {"a": {0}, "b": {4}}
    assert scheduler.stats().num_free_blocks == scheduler.stats().num_usable_blocks


def test_sampled_tokens_take_the_place_of_placeholders():
    scheduler = make_scheduler()
    for request_id in "abc":
        scheduler.add_request(make_request(request_id))
    first = scheduler.schedule()
    second = scheduler.schedule()
    assert [entry.token_ids for entry in second.scheduled_requests] == [[-1], [-1], [-1]]
    failed = SampledToken("b", failed=True)  # it ends; what is computed for it must be a token
    tokens = [SampledToken("a", 7), failed, SampledToken("c", 9)]
    second.put_sampled_tokens(tokens)
    assert [entry.token_ids for entry in second.scheduled_requests] == [[7], [0], [9]]
    outputs = scheduler.update_from_output(first, ModelRunnerOutput(tokens))
    assert [output.finish_reason for output in outputs] == ["", "error", ""]


def test_a_failed_step_ends_its_requests_and_leaves_nothing_in_the_cache():
    scheduler = make_scheduler()
    scheduler.add_request(make_request("fails", 9))
    scheduler.add_request(make_request("gone", 8))
    first = scheduler.schedule()
    scheduler.finish_requests(["gone"], RequestStatus.FINISHED_ABORTED)
    scheduler.add_request(make_request("goes on", 9))
    second = scheduler.schedule()  # is not to run: it goes on from what the first was to write
    assert [entry.num_computed_tokens for entry in second.scheduled_requests] == [9, 8]
    outputs = scheduler.fail_step(first)
    assert [(out.request_id, out.finish_reason) for out in outputs] == [("fails", "error")]
    assert scheduler.stats().num_cached_blocks == 0
    assert scheduler.stats().num_free_blocks == scheduler.stats().num_usable_blocks
    third = scheduler.schedule()
    assert third.preempted_request_ids == ["goes on"]
    assert third.finished_request_ids == ["fails"]
    (entry,) = scheduler.schedule().scheduled_requests
    assert (entry.request_id, entry.kind) == ("goes on", ScheduledKind.RESUMED)
    assert (entry.num_computed_tokens, entry.num_scheduled_tokens) == (0, 9)
    assert entry.samples
