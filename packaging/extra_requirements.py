"""Prints the requirements of one of pyproject.toml's extras, one a line (Python 3.11 and newer)."""

import sys
from pathlib import Path

import tomllib

project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
print("\n".join(project["optional-dependencies"][sys.argv[1]]))
