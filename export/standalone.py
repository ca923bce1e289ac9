"""One executable file that is the engine's program and a bundle.

The bundle's files are appended to the program as a ZIP archive without compression, each at a page
boundary: the engine maps them where they lie (engine_cpp/bundle/archive.h), and any unzip lists
them.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pinfer.export.config import ExportConfig
from pinfer.export.errors import ExportError

PAGE = 4096
PADDING_FIELD = 0xD935  # of an entry, as Android's zipalign writes it
LOCAL_HEADER = 30  # bytes before an entry's name
ZIP64_FIELD = 20  # bytes in the header of an entry that may need 64 bits
EPOCH = (1980, 1, 1, 0, 0, 0)  # the same bundle gives the same bytes
LAST = "weights.safetensors"

Export = Callable[[ExportConfig], dict[str, Any]]


def export_standalone(config: ExportConfig, export: Export) -> dict[str, Any]:
    """Exports config.model into the file config.output; returns the bundle's manifest. `export`
    writes a bundle. ExportError if it cannot."""
    output = config.output
    if output.is_dir():
        raise ExportError(f"{output}: is a directory; --standalone writes a file")
    if output.exists() and not config.force:
        raise ExportError(f"{output}: exists already (--force replaces it)")
    program = find_program()
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{output.name}.", dir=output.parent) as folder:
        bundle, partial = Path(folder) / "bundle", Path(folder) / "program"
        manifest = export(replace(config, output=bundle, force=False))
        append_bundle(program, bundle, partial)
        os.replace(partial, output)
    return manifest


def find_program() -> Path:
    """The pinfer program of this installation. ExportError if there is none of this version."""
    beside = Path(sys.executable).parent / "pinfer"
    found = str(beside) if beside.is_file() else shutil.which("pinfer")
    if found is None:
        raise ExportError("--standalone: no program pinfer is installed beside Python or in PATH")
    said = subprocess.run([found, "--version"], capture_output=True, text=True).stdout.strip()
    if said != f"pinfer {version('pinfer')}":
        raise ExportError(
            f"--standalone: {found} says {said!r}, expected 'pinfer {version('pinfer')}'"
        )
    return Path(found)


def append_bundle(program: Path, bundle: Path, target: Path) -> None:
    """Writes and fsyncs `target`, an executable."""
    if zipfile.is_zipfile(program):
        raise ExportError(f"--standalone: {program} carries a bundle already")
    files = sorted(path for path in bundle.rglob("*") if path.is_file())
    files.sort(key=lambda path: path.name == LAST)
    with target.open("xb") as file:
        with program.open("rb") as source:
            shutil.copyfileobj(source, file)
        file.write(bytes(-file.tell() % PAGE))
        # "a" leaves alone what stands before the archive.
        with zipfile.ZipFile(file, "a", zipfile.ZIP_STORED) as archive:
            for path in files:
                _append(archive, path.relative_to(bundle).as_posix(), path)
        file.flush()
        os.fchmod(file.fileno(), 0o755)
        os.fsync(file.fileno())


def _append(archive: zipfile.ZipFile, name: str, path: Path) -> None:
    assert archive.fp is not None
    size = path.stat().st_size
    is_wide = size * 1.05 > zipfile.ZIP64_LIMIT
    entry = zipfile.ZipInfo(name, EPOCH)
    entry.file_size = size
    entry.external_attr = 0o644 << 16
    header = LOCAL_HEADER + len(name.encode()) + (ZIP64_FIELD if is_wide else 0)
    gap = -(archive.fp.tell() + header + 4) % PAGE
    entry.extra = struct.pack("<HH", PADDING_FIELD, gap) + bytes(gap)
    with path.open("rb") as source, archive.open(entry, "w", force_zip64=is_wide) as stored:
        assert archive.fp.tell() % PAGE == 0, name
        shutil.copyfileobj(source, stored, 1 << 20)
