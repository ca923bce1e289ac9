"""Compiled artifacts by content: a fine-tune of a known architecture compiles nothing.

The key covers all that the artifact depends on: the part's sizes and dtypes, the target, the
versions of torch and of the compiler, and the exporter's own code.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from pinfer.export import artifact, part_check, parts
from pinfer.export.artifact import BuiltArtifact
from pinfer.export.part import Part
from pinfer.runtime import ops
from pinfer.runtime.layers import modules

# By path where an import would cost seconds.
CODE = [
    *(Path(module.__file__) for module in (artifact, part_check, parts, modules, ops)),
    *(Path(__file__).with_name(name) for name in ("inductor_sources.py", "part.py", "trace.py")),
]


class ArtifactCache:
    """A directory of artifacts. Safe for several exporters at once: entries appear by rename."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @staticmethod
    def key(part: Part, spec: object, target: str, more_code: Iterable[Path] = ()) -> str:
        """What `part` (made from the frozen dataclass `spec`) compiles to depends on this alone."""
        code = hashlib.sha256()
        for path in (*CODE, *more_code):
            code.update(path.read_bytes())
        content: dict[str, Any] = {
            "part": part.name,
            "spec": _plain(spec),
            "inputs": [[e.name, str(e.dtype), list(e.shape)] for e in part.inputs],
            "output": [part.output.name, str(part.output.dtype), list(part.output.shape)],
            "constants": [
                [name, str(value.dtype), list(value.shape)]
                for name, value in part.constants().items()
            ],
            "target": target,
            "torch": torch.__version__,
            "compiler": [artifact.compiler(), artifact.compiler_version()],
            "code": code.hexdigest(),
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def get(self, key: str, name: str) -> BuiltArtifact | None:
        """The entry, or None if there is none or it is damaged."""
        folder = self._folder / key
        path = folder / f"{name}.so"
        try:
            meta = json.loads((folder / "meta.json").read_text())
            if hashlib.sha256(path.read_bytes()).hexdigest() != meta["sha256"]:
                return None
            return BuiltArtifact(path, tuple(meta["symbols"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def put(self, key: str, built: BuiltArtifact) -> None:
        """Stores a copy; a cache that cannot be written is not an error."""
        target = self._folder / key
        staging = self._folder / f".{key[:16]}-{secrets.token_hex(4)}"
        try:
            staging.mkdir(parents=True)
            shutil.copyfile(built.path, staging / built.path.name)
            sha256 = hashlib.sha256(built.path.read_bytes()).hexdigest()
            meta = {"symbols": list(built.symbols), "sha256": sha256}
            (staging / "meta.json").write_text(json.dumps(meta))
            if target.exists() and self.get(key, built.path.stem) is None:
                shutil.rmtree(target, ignore_errors=True)
            os.rename(staging, target)
        except OSError:
            shutil.rmtree(staging, ignore_errors=True)


def default_cache_folder(output: Path) -> Path:
    """Of all that exports keep: PINFER_CACHE_DIR, the user's cache directory, or the output's
    sibling without a HOME."""
    named = os.environ.get("PINFER_CACHE_DIR")
    if named:
        return Path(named)
    user = os.environ.get("XDG_CACHE_HOME")
    if not user and os.environ.get("HOME"):
        user = str(Path(os.environ["HOME"]) / ".cache")
    if user:
        return Path(user) / "pinfer"
    return output.parent / ".pinfer-cache"


def _plain(spec: object) -> Any:
    """The spec's plain values; the head's part is made from numbers, not from rotary tables."""
    return {
        field.name: value if not dataclasses.is_dataclass(value) else _plain(value)
        for field in dataclasses.fields(spec)  # type: ignore[arg-type]
        if not isinstance(value := getattr(spec, field.name), torch.Tensor)
    }
