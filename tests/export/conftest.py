"""Shared by the exporter's tests: the modules of this folder and of tests/."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
