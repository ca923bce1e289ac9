"""Validation and requests: the messages are those of the C++ twin (tests/engine_cpp/core)."""

import math

import pytest

from pinfer.runtime.core.engine_config import EngineConfig
from pinfer.runtime.core.request import (
    Request,
    RequestOptions,
    RequestStatus,
    finish_reason,
    is_finished,
)
from pinfer.runtime.core.sampling_params import SamplingParams

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"temperature": -1.0}, "temperature must be a finite number >= 0, got -1"),
        ({"temperature": NAN}, "temperature must be a finite number >= 0, got nan"),
        ({"temperature": INF}, "temperature must be a finite number >= 0, got inf"),
        ({"top_p": 0.0}, "top_p must be in (0, 1], got 0"),
        ({"top_p": 1.5}, "top_p must be in (0, 1], got 1.5"),
        ({"top_p": NAN}, "top_p must be in (0, 1], got nan"),
        ({"top_k": -2}, "top_k must be in [-1, 2147483647], got -2"),
        ({"min_p": 1.1}, "min_p must be in [0, 1], got 1.1"),
        ({"presence_penalty": 2.1}, "presence_penalty must be in [-2, 2], got 2.1"),
        ({"frequency_penalty": -2.1}, "frequency_penalty must be in [-2, 2], got -2.1"),
        ({"repetition_penalty": 0.0}, "repetition_penalty must be a finite number > 0, got 0"),
        ({"logit_bias": {5: 1000.0}}, "logit_bias[5] must be in [-100, 100], got 1000"),
        ({"logit_bias": {-1: 1.0}}, "logit_bias must be a map from ids >= 0, got -1"),
        ({"allowed_token_ids": [3, -1]}, "allowed_token_ids must be a list of ids >= 0, got -1"),
        ({"max_tokens": 0}, "max_tokens must be in [1, 2147483647], got 0"),
        ({"min_tokens": 17}, "min_tokens must be in [0, 16], got 17"),
        ({"stop_token_ids": [-5]}, "stop_token_ids must be a list of ids >= 0, got -5"),
        ({"stop": ["a", ""]}, 'stop must be a list of non-empty strings, got ""'),
    ],
)
def test_sampling_params_are_refused(fields, message):
    with pytest.raises(ValueError) as refused:
        SamplingParams(**fields).validate()
    assert str(refused.value) == message


def test_sampling_params_are_accepted():
    SamplingParams().validate()
    SamplingParams(temperature=1e-300, top_p=1e-9, top_k=-1, min_p=1.0, min_tokens=16).validate()
    SamplingParams(logit_bias={9: 100.0}, allowed_token_ids=[3]).validate_token_ids(10)
    with pytest.raises(ValueError, match="logit_bias must be a token id below 9, got 9"):
        SamplingParams(logit_bias={9: 100.0}).validate_token_ids(9)
    with pytest.raises(TypeError):
        SamplingParams(temprature=1.0)


@pytest.mark.parametrize(("temperature", "is_greedy"), [(0.0, True), (1e-5, True), (2e-5, False)])
def test_greedy(temperature, is_greedy):
    assert SamplingParams(temperature=temperature).is_greedy == is_greedy


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_num_seqs": 0}, "max_num_seqs must be in [1, 2147483647], got 0"),
        ({"block_size": 257}, "block_size must be in [1, 256], got 257"),
        ({"watermark": 1.0}, "watermark must be in [0, 1), got 1"),
        ({"gpu_memory_utilization": 0.0}, "gpu_memory_utilization must be in (0, 1], got 0"),
        ({"max_cuda_graph_seqs": -1}, "max_cuda_graph_seqs must be in [0, 2147483647], got -1"),
        ({"num_blocks": 2**25 + 1}, "num_blocks must be in [0, 33554432], got 33554433"),
        ({"num_blocks": 1}, "num_blocks must be at least 2 (one is the null block), got 1"),
        (
            {"max_num_seqs": 32, "max_num_batched_tokens": 31},
            "max_num_batched_tokens must be in [32, 2147483647], got 31",
        ),
    ],
)
def test_engine_config_is_refused(fields, message):
    with pytest.raises(ValueError) as refused:
        EngineConfig(**fields).validate()
    assert str(refused.value) == message


def test_engine_config_is_accepted():
    EngineConfig().validate()
    EngineConfig(num_blocks=2, max_model_len=640).validate()  # enough for a short window


def test_request_end_ids():
    params = SamplingParams(stop_token_ids=[9])
    request = Request("r0", [5], params, RequestOptions(eos_token_ids=[2, 3, 2, 4]))
    assert request.eos_token_id == 2
    assert request.extra_eos_token_ids == [3, 4]
    assert [i for i in range(10) if request.is_stop_token_id(i)] == [3, 4, 9]
    ignoring = Request("r1", [5], SamplingParams(ignore_eos=True), RequestOptions([2, 3]))
    assert not ignoring.is_stop_token_id(3)
    assert Request("r2", [5], SamplingParams()).eos_token_id is None


def test_request_seed():
    assert Request("r0", [5], SamplingParams(seed=-1)).seed == 2**64 - 1
    assert len({Request("r0", [5], SamplingParams()).seed for _ in range(20)}) == 20


def test_finish_reasons():
    finished = {status: finish_reason(status) for status in RequestStatus if is_finished(status)}
    assert list(finished.values()) == ["stop", "length", "abort", "error"]
    assert finish_reason(RequestStatus.PREEMPTED) == ""
