"""JSON files of a model directory: read with messages that name the file and what is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pinfer.export.errors import ExportError


def read_json_object(path: Path, required: bool = True) -> dict[str, Any]:
    """The object in `path`; {} if the file is missing and not required."""
    if not path.is_file():
        if required:
            raise ExportError(f"{path}: file not found")
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ExportError(f"{path}: not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise ExportError(f"{path}: expected a JSON object, found {type(value).__name__}")
    return value
