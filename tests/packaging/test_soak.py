"""Engines that are opened, used in every way and closed leave nothing (engine_cpp/engine/soak.cc).
PINFER_BUILD_DIR may name the tree of a sanitizer."""

import pytest


@pytest.mark.parametrize("rounds", [30, pytest.param(1000, marks=pytest.mark.slow)])
def test_engines_leave_nothing(run, build_dir, chat_bundle, rounds):
    soak = build_dir / "tests" / "engine_cpp" / "engine" / "soak"
    run(soak, chat_bundle, str(rounds), timeout=3000)
