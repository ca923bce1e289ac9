"""Writes a bundle so that its place holds nothing, the old bundle, or the complete new one.

Everything goes into a sibling temporary directory; files are fsynced, the manifest comes last, and
one rename puts the directory into place (with --force an atomic exchange, where the system has it).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import re
import secrets
import shutil
from pathlib import Path
from types import TracebackType
from typing import Any

from pinfer.export.errors import ExportError
from pinfer.runtime.bundle.hashing import HashingFile, hash_file

MANIFEST = "manifest.json"
MANIFEST_HASH = "manifest.sha256"
# A bundle under construction, or (.old) one that stands aside while the new one takes its place.
TEMPORARY = re.compile(r"^\.(?P<name>.+)\.pinfer-tmp-(?P<pid>\d+)-[0-9a-f]+(?P<old>\.old)?$")
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
AT_FDCWD = -100
RENAME_EXCHANGE = 2


class BundleWriter:
    """The bundle under construction. Use as a context manager: leaves nothing behind on failure."""

    def __init__(self, output: Path, force: bool) -> None:
        output = output.resolve()  # a link keeps pointing at the bundle that is replaced behind it
        self.output = output
        self.files: dict[str, dict[str, Any]] = {}
        self._force = force
        self._writing: str | None = None
        _recover(output)
        _check_output(output, force)
        try:
            output.parent.mkdir(parents=True, exist_ok=True)
            name = f".{output.name}.pinfer-tmp-{os.getpid()}-{secrets.token_hex(4)}"
            self.folder = output.parent / name
            self.folder.mkdir()
        except OSError as error:
            raise ExportError(f"{output}: cannot write there: {error.strerror}") from error

    def __enter__(self) -> BundleWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        if isinstance(error, OSError) and error.errno in NO_ROOM and self._writing is not None:
            raise ExportError(f"{self.output / self._writing}: {error.strerror}") from error

    def path(self, name: str) -> Path:
        """Where to write file `name` (a relative path) oneself; tell add_written() afterwards."""
        self._writing = name
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def add_written(self, name: str, size: int, sha256: str) -> None:
        self.files[name] = {"size": size, "sha256": sha256}
        self._writing = None

    def add_bytes(self, name: str, data: bytes) -> None:
        with HashingFile(self.path(name)) as file:
            file.write(data)
            self.add_written(name, *file.finish())

    def add_file(self, name: str, source: Path) -> None:
        target = self.path(name)
        shutil.copyfile(source, target)
        _fsync(target)
        self.add_written(name, *hash_file(target))

    def commit(self, manifest: dict[str, Any]) -> None:
        """Writes the manifest and its hash, and puts the bundle into place."""
        manifest = {**manifest, "files": dict(sorted(self.files.items()))}
        text = json.dumps(manifest, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        with HashingFile(self.path(MANIFEST)) as file:
            file.write(text.encode())
            _, digest = file.finish()
        with HashingFile(self.path(MANIFEST_HASH)) as file:
            file.write(digest.encode())
            file.finish()
        for folder in (self.folder, *(p for p in self.folder.rglob("*") if p.is_dir())):
            _fsync(folder)
        self._rename()
        _fsync(self.output.parent)

    def _rename(self) -> None:
        try:
            # Fails where anything but an empty directory stands in the way.
            os.rename(self.folder, self.output)
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise
        if not self._force:
            raise ExportError(f"{self.output}: appeared during the export; not replaced")
        _check_output(self.output, force=True)
        _exchange(self.folder, self.output)  # the old bundle is now in self.folder


def _check_output(output: Path, force: bool) -> None:
    if not output.exists():
        return
    if not force:
        raise ExportError(f"{output}: exists already (--force replaces a bundle)")
    if not output.is_dir() or not ((output / MANIFEST).is_file() or not any(output.iterdir())):
        raise ExportError(f"{output}: --force replaces only a bundle, and this is none")


def _exchange(new: Path, old: Path) -> None:
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is not None:
        arguments = (AT_FDCWD, os.fsencode(new), AT_FDCWD, os.fsencode(old), RENAME_EXCHANGE)
        if renameat2(*arguments) == 0:
            return
    # Two steps where the file system cannot exchange: between them the old bundle stands aside. If
    # this process ends there, the next export puts it back.
    aside = new.with_name(f"{new.name}.old")
    try:
        os.rename(old, aside)
        os.rename(new, old)
    finally:
        if aside.exists() and not old.exists():
            os.rename(aside, old)
        shutil.rmtree(aside, ignore_errors=True)


def _recover(output: Path) -> None:
    """Ends what exporters that died while writing this output have left: an old bundle that stood
    aside comes back if its place is empty; everything else goes."""
    try:
        siblings = sorted(output.parent.iterdir())
    except OSError:
        return
    for path in siblings:
        match = TEMPORARY.match(path.name)
        if not match or match["name"] != output.name or _is_running(int(match["pid"])):
            continue
        if match["old"] and not output.exists():
            with contextlib.suppress(OSError):
                os.rename(path, output)
        else:
            shutil.rmtree(path, ignore_errors=True)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
