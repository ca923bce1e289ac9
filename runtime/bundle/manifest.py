"""The bundle's manifest as Python sees it: format version, and reading with checks."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

FORMAT_VERSION = 1


class BundleError(Exception):
    """A bundle that cannot be used; the message names the file, what was expected and found."""


def read_manifest(bundle: Path) -> dict[str, Any]:
    """The manifest of `bundle`, its hash checked. BundleError if damaged or of another format."""
    path, hash_path = bundle / "manifest.json", bundle / "manifest.sha256"
    for file in (path, hash_path):
        if not file.is_file():
            raise BundleError(f"{file}: file not found")
    data = path.read_bytes()
    expected = hash_path.read_bytes()
    found = hashlib.sha256(data).hexdigest().encode()
    if expected != found:
        raise BundleError(f"{path}: does not match {hash_path}: one of them is damaged")
    manifest = json.loads(data)
    if manifest.get("format_version") != FORMAT_VERSION:
        raise BundleError(
            f"{path}: format version {manifest.get('format_version')!r}, expected {FORMAT_VERSION}"
        )
    return manifest
