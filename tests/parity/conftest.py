"""Shared by the parity tests: the modules of this folder, and the two engines."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from replay_traces import ENGINES


@pytest.fixture(params=sorted(ENGINES))
def engine(request):
    """Name of an engine of replay_traces.ENGINES."""
    return request.param
