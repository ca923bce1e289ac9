"""Data files that isolate one rule each; GoogleTest runs the same ones."""

import json
from pathlib import Path

import pytest
from cache_simulation import CacheSimulation
from replay_traces import ENGINES

FOLDER = Path(__file__).parents[1] / "scenarios" / "scheduler"
SCENARIOS = sorted(FOLDER.glob("*.json"))


def differences(expected, got, where):
    """Where got departs from what expected names; of an object only the named keys count."""
    if isinstance(expected, dict):
        for key, value in expected.items():
            yield from differences(value, got.get(key), f"{where}.{key}")
    elif isinstance(expected, list) and isinstance(got, list) and len(expected) == len(got):
        for index, value in enumerate(expected):
            yield from differences(value, got[index], f"{where}[{index}]")
    elif expected != got:
        yield f"{where}: expected {expected}, got {got}"


def test_scenarios_are_there():
    assert len(SCENARIOS) >= 10


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path, engine):
    scenario = json.loads(path.read_text())
    result = ENGINES[engine](scenario)
    found = []
    for expected in scenario["expect"]:
        step = expected["step"]
        found += differences(expected, result["steps"][step], f"step {step}")
    found += differences(scenario.get("expect_final", {}), result, "final")
    assert found == [], scenario["rule"]
    assert CacheSimulation(scenario).problems(result) == []
