"""Both schedulers make the recorded decisions, and the recorded defect is absent."""

import json
import lzma
import subprocess
import sys
from pathlib import Path

import pytest
from cache_simulation import CacheSimulation
from replay_traces import ENGINES, compare, first_difference, load_traces

DATA = Path(__file__).parents[1] / "data"
TRACES = list(load_traces(DATA / "scheduler_traces"))
HAZARDS = list(load_traces(DATA / "scheduler_hazard"))


def test_all_traces_are_there():
    assert len(TRACES) == 219
    assert len(HAZARDS) == 2


def test_replay_matches_trace(engine):
    differences = [(trace["name"], compare(trace, engine)) for trace in TRACES]
    wrong = [f"{name}: {difference}" for name, difference in differences if difference is not None]
    assert not wrong, f"{len(wrong)} traces differ, the first ones:\n" + "\n".join(wrong[:5])


def test_traces_read_only_what_was_written():
    for trace in TRACES:
        assert not CacheSimulation(trace).problems(trace), trace["name"]


@pytest.mark.parametrize("trace", HAZARDS, ids=lambda trace: trace["name"])
def test_hazard_is_absent(trace, engine):
    # The simulation sees the defect in the recorded decisions ...
    recorded = CacheSimulation(trace).problems(trace)
    assert [f"step {step}" for step in trace["kv_hazard_steps"]] == [
        problem.split(":")[0] for problem in recorded
    ]
    # ... and none in ours, which part from them at the first step that would read garbage.
    result = ENGINES[engine](trace)
    assert CacheSimulation(trace).problems(result) == []
    difference = first_difference(trace, result)
    assert difference is not None
    assert difference.startswith(f"step {trace['kv_hazard_steps'][0]},")


def test_command_line(engine, tmp_path):
    script = Path(__file__).parent / "replay_traces.py"
    (tmp_path / "README.md").write_text("ignored")
    (tmp_path / "other.json").write_text('{"not": "a trace"}')

    def run(directory):
        command = [sys.executable, str(script), str(directory), "--engine", engine]
        done = subprocess.run(command, capture_output=True, text=True)
        return done.returncode, done.stdout.splitlines()[-1]

    assert run(tmp_path) == (1, "0 of 0 traces match")
    (tmp_path / "plain.json").write_text(json.dumps(TRACES[0]))
    (tmp_path / "packed.json.xz").write_bytes(lzma.compress(json.dumps(TRACES[1]).encode()))
    assert run(tmp_path) == (0, "2 of 2 traces match")
    (tmp_path / "wrong.json").write_text(json.dumps(HAZARDS[0]))
    assert run(tmp_path) == (1, "2 of 3 traces match")
