"""Shared by the parity tests: the modules of this folder, and the engines that can run here."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from replay_traces import ENGINES, replay_trace_cpp

TESTS = Path(__file__).parents[1]


def _missing_engine(engine: str) -> str | None:
    """Why the engine cannot run, or None."""
    if engine != "cpp":
        return None
    try:
        replay_trace_cpp(
            {"config": {"num_blocks": 2, "max_model_len": 8}, "requests": [], "max_steps": 0}
        )
    except (FileNotFoundError, AttributeError) as error:
        return f"the C++ scheduler is not there: {error}"
    return None


@pytest.fixture(params=sorted(ENGINES))
def engine(request):
    """Name of an engine of replay_traces.ENGINES."""
    reason = _missing_engine(request.param)
    if reason is not None:
        pytest.skip(reason)
    return request.param


@pytest.fixture
def both_engines():
    reason = _missing_engine("cpp")
    if reason is not None:
        pytest.skip(reason)
