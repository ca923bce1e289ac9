"""Where libpinfer lies."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path


def find_library() -> Path:
    """libpinfer.so: what PINFER_LIBRARY names, else the one beside the package."""
    named = os.environ.get("PINFER_LIBRARY")
    if named:
        candidates = [Path(named)]
    else:
        spec = importlib.util.find_spec("pinfer")
        locations = spec.submodule_search_locations if spec is not None else None
        candidates = [Path(location) / "lib" / "libpinfer.so" for location in locations or []]
    for path in candidates:
        if path.is_file():
            return path
    tried = ", ".join(map(str, candidates)) or "no directory of package pinfer"
    raise FileNotFoundError(
        f"libpinfer.so not found: looked for {tried}; "
        "set PINFER_LIBRARY to the library's path or reinstall pinfer"
    )
