"""Compares libpinfer's C interface with the one that has been frozen, pinfer-1.abi.

Usage: python check_abi.py LIBRARY [--update]

LIBRARY needs its debug information: build/cpu-release/engine_cpp/libpinfer.so.1. Exit status 0: the
same interface. 1: it differs; what abidiff says is printed. A change that breaks programs compiled
against version 1 must not be made; for one that adds to the interface, run with --update, which
writes the file again, and commit it. Needs Debian's abigail-tools.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

HERE = Path(__file__).parent
FROZEN = HERE / "pinfer-1.abi"
HEADERS = HERE.parents[1] / "engine_cpp" / "include" / "pinfer"

PRIVATE = "PINFER_PRIVATE"

# Of abidiff's exit status: it failed, it was called wrongly, and a change breaks programs.
FAILED, USAGE, INCOMPATIBLE = 1, 2, 8


def dump(library: Path, output: Path) -> None:
    """Writes the interface: the functions, and the types that the public header declares; no place
    in files and no number of a line, so that it changes with the interface alone."""
    command = ["abidw", "--headers-dir", HEADERS, "--drop-private-types"]
    command += ["--exported-interfaces-only", "--no-show-locs", "--no-comp-dir-path"]
    command += ["--no-corpus-path", "--no-elf-needed", "--no-architecture"]
    command += ["--type-id-style", "hash"]
    subprocess.run([*command, "--out-file", output, library], check=True)
    # What the exporter and the tests of the same release use is not of the interface (exports.map).
    tree = ElementTree.parse(output)
    for parent in tree.getroot().iter():
        for child in list(parent):
            version = child.get("version") or child.get("elf-symbol-id", "").rpartition("@")[2]
            if version == PRIVATE:
                parent.remove(child)
    tree.write(output)


def check(library: Path) -> int:
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "found.abi"
        dump(library, found)
        command = ["abidiff", "--no-corpus-path", FROZEN, found]
        result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode == 0:
        return 0
    print(result.stdout + result.stderr)
    if result.returncode & (FAILED | USAGE):
        print("abidiff failed")
    elif result.returncode & INCOMPATIBLE:
        print("programs compiled against version 1 of the interface would break")
    else:
        print("the interface has changed: if it has only grown, run this with --update")
    return 1


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare libpinfer's interface with version 1.")
    parser.add_argument("library", type=Path)
    parser.add_argument("--update", action="store_true", help="write pinfer-1.abi from LIBRARY")
    arguments = parser.parse_args()
    if arguments.update:
        dump(arguments.library, FROZEN)
        return 0
    return check(arguments.library)


if __name__ == "__main__":
    sys.exit(main())
