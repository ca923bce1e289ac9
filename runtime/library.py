"""Where libpinfer lies, and loading it."""

from __future__ import annotations

import ctypes
import importlib.util
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def find_library() -> Path:
    """The library: what PINFER_LIBRARY names, else the one beside the package."""
    named = os.environ.get("PINFER_LIBRARY")
    if named:
        candidates = [Path(named)]
    else:
        spec = importlib.util.find_spec("pinfer")
        locations = spec.submodule_search_locations if spec is not None else None
        candidates = [
            Path(location) / "lib" / name
            for location in locations or []
            for name in ("libpinfer.so.1", "libpinfer.so")  # in a wheel, and a link in a build tree
        ]
    for path in candidates:
        if path.is_file():
            return path
    tried = ", ".join(map(str, candidates)) or "no directory of package pinfer"
    raise FileNotFoundError(
        f"libpinfer not found: looked for {tried}; "
        "set PINFER_LIBRARY to the library's path or reinstall pinfer"
    )


def load_library(functions: Mapping[str, tuple[Any, Sequence[Any]]]) -> ctypes.CDLL:
    """libpinfer with these functions declared: result and parameter types by name."""
    loaded = ctypes.CDLL(str(find_library()))
    for name, (result, parameters) in functions.items():
        function = getattr(loaded, name)
        function.restype = result
        function.argtypes = parameters
    return loaded
