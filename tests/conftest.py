"""Fixtures shared by all tests: programs, tiny checkpoints, bundles."""

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))


@pytest.fixture(scope="session")
def pinfer() -> Path:
    """The installed program, or PINFER_BINARY: another build of it (sanitizers)."""
    path = Path(os.environ.get("PINFER_BINARY", Path(sys.executable).parent / "pinfer")).resolve()
    assert path.is_file(), f"{path} is missing: run `make install`"
    return path


@pytest.fixture(scope="session")
def build_dir() -> Path:
    """Where the C++ tests' helper programs are (make build-tests)."""
    return Path(os.environ.get("PINFER_BUILD_DIR", ROOT / "build" / "cpu-release"))
