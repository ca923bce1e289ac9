"""Data files that both samplers run; see tests/scenarios/sampler/README.md."""

import json
from pathlib import Path

import numpy as np
import pytest

from pinfer.runtime.core.request import Request, RequestOptions
from pinfer.runtime.core.sampling_params import SamplingParams
from pinfer.runtime.sampler.sampler import Sampler

FOLDER = Path(__file__).parents[1] / "scenarios" / "sampler"
CASES = [case for path in sorted(FOLDER.glob("*.json")) for case in json.loads(path.read_text())]


def read_logits(case):
    if "pattern" not in case:
        return np.array([float(logit) for logit in case["logits"]], dtype=np.float32)
    size, seed = case["pattern"]
    values = (np.arange(size, dtype=np.int64) * 7919 + seed) % 10007 / 1000 - 5
    return values.astype(np.float32)


def read_request(case):
    params = dict(case["params"])
    bias = {int(token_id): bias for token_id, bias in params.pop("logit_bias", {}).items()}
    options = RequestOptions(
        eos_token_ids=case.get("eos_token_ids", []), choice_index=case.get("choice_index", 0)
    )
    request = Request(
        "r0", case.get("prompt", [0]), SamplingParams(logit_bias=bias, **params), options
    )
    for token_id in case.get("output", []):
        request.append_output_token_id(token_id)
    return request


def sample_all(case, num):
    """The next num token ids; None where sampling failed."""
    logits, request = read_logits(case), read_request(case)
    sampler = Sampler(case.get("masked_token_ids", []))
    token_ids = []
    for _ in range(num):
        sampled = sampler.sample(logits, request)
        assert sampled.request_id == "r0"
        token_ids.append(None if sampled.failed else sampled.token_id)
        if not sampled.failed:
            request.append_output_token_id(sampled.token_id)
    return token_ids


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_case(case):
    expected = [None] if case.get("failed") else case["token_ids"]
    assert sample_all(case, len(expected)) == expected
