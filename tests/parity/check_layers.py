"""Layering, mirroring and size rules of the tree, in one place and enforced.

Usage: python check_layers.py REPO_ROOT   (exit status 1 and one line per violation)

- a folder of the engine uses only the folders that ENGINE_LAYERS gives it, in C++ and in Python
- nothing of ours includes a torch C++ header; public headers include no private one
- export uses of pinfer.runtime what EXPORT_MAY_USE names: the bundle format, the ops, the layers
  that it traces, and the C++ engine's binding, with which it proves what it writes; runtime never
  uses export
- a Python file in a mirrored folder has a C++ twin of the same stem
- (a note, no violation) files over MAX_LINES lines
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

MAX_LINES = 500

# folder -> folders it may use (besides itself). Order is bottom to top; an edge never points up.
ENGINE_LAYERS: dict[str, set[str]] = {
    "core": set(),
    "json": set(),
    "bundle": {"core"},
    "kv_cache": {"core"},
    "scheduler": {"core", "kv_cache"},
    "executor": {"core", "bundle"},
    "sampler": {"core"},
    "tokenizer": {"core"},
    "template": {"core", "json"},
    "engine": {
        "core",
        "json",
        "bundle",
        "kv_cache",
        "scheduler",
        "executor",
        "sampler",
        "tokenizer",
        "template",
    },
    "server": {"json"},  # and public headers
    "cli": {"json", "server"},  # and public headers
}
TORCH_HEADERS = ("torch", "ATen", "c10")
MIRRORED = ("core", "kv_cache", "scheduler", "sampler")
EXPORT_MAY_USE = {
    "bundle",
    "ops",
    "cuda_ops",
    "layers",
    "weight_format",
    "cuda_weight_format",
    "binding",
    "library",
}
REFERENCE_MAY_USE = {"ops", "layers", "weight_format"}  # beside the layers below it
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^">]+)[">]', re.M)
CPP_SUFFIXES = (".h", ".hpp", ".cc", ".cpp", ".cu", ".cuh", ".inc")


def sources(root: Path, folder: str, *suffixes: str) -> list[Path]:
    return [path for path in sorted((root / folder).rglob("*")) if path.suffix in suffixes]


def python_imports(path: Path) -> Iterator[str]:
    """The dotted names that a file imports, at any depth of the file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            if node.level:
                yield "<relative>"
            elif node.module == "pinfer.runtime":
                yield from (f"pinfer.runtime.{alias.name}" for alias in node.names)
            elif node.module:
                yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def check_python(root: Path) -> Iterator[str]:
    for path in sources(root, "export", ".py") + sources(root, "runtime", ".py"):
        relative = path.relative_to(root)
        top, own = relative.parts[0], relative.parts[1]
        for name in python_imports(path):
            parts = name.split(".")
            if name == "<relative>" or parts[0] in ("export", "runtime"):
                yield f"{relative}: import by the full name pinfer.{top}.*"
            if parts[:2] == ["pinfer", "export"] and top == "runtime":
                yield f"{relative}: runtime must not import {name}"
            if parts[:2] == ["pinfer", "runtime"] and len(parts) > 2:
                used = parts[2]
                if top == "export" and used not in EXPORT_MAY_USE:
                    yield f"{relative}: export must not import {name}"
                if top == "runtime" and own in ENGINE_LAYERS:
                    if used not in ENGINE_LAYERS[own] | {own} | REFERENCE_MAY_USE:
                        yield f"{relative}: {own} must not import {used}"


def check_torch_free(root: Path) -> Iterator[str]:
    """A small C header of ours declares what is used of torch's C interface."""
    for folder in ("csrc", "engine_cpp"):
        for path in sources(root, folder, *CPP_SUFFIXES):
            for included in INCLUDE.findall(path.read_text()):
                if included.split("/")[0] in TORCH_HEADERS:
                    yield f"{path.relative_to(root)}: is torch-free but includes {included}"


def check_cpp_layers(root: Path) -> Iterator[str]:
    base = root / "engine_cpp"
    graph: dict[str, set[str]] = {}
    for path in sources(root, "engine_cpp", *CPP_SUFFIXES):
        relative = path.relative_to(base)
        own = relative.parts[0]
        for included in INCLUDE.findall(path.read_text()):
            used = included.split("/")[0]
            if used in ENGINE_LAYERS and own in ENGINE_LAYERS:
                if used not in ENGINE_LAYERS[own] | {own}:
                    yield f"engine_cpp/{relative}: {own} must not include {included}"
            if own == "include" and used in ENGINE_LAYERS:
                yield f"engine_cpp/{relative}: public header includes private {included}"
            graph.setdefault(str(relative), set()).add(included)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        yield f"engine_cpp: include cycle {' -> '.join(error.args[1])}"


def check_mirror(root: Path) -> Iterator[str]:
    for folder in MIRRORED:
        python = {path.stem for path in sources(root, f"runtime/{folder}", ".py")} - {"__init__"}
        cpp = {path.stem for path in sources(root, f"engine_cpp/{folder}", ".h")}
        for stem in sorted(python - cpp):
            yield f"runtime/{folder}/{stem}.py has no engine_cpp/{folder}/{stem}.h"


def long_files(root: Path) -> Iterator[str]:
    for folder in ("export", "runtime", "csrc", "engine_cpp"):
        for path in sources(root, folder, ".py", ".cmake", *CPP_SUFFIXES):
            num_lines = path.read_text().count("\n")
            if num_lines > MAX_LINES:
                yield f"{path.relative_to(root)}: {num_lines} lines (limit {MAX_LINES})"


def violations(root: Path) -> list[str]:
    checks = (check_python, check_torch_free, check_cpp_layers, check_mirror)
    return [violation for check in checks for violation in check(root)]


def main(root: Path) -> int:
    found = violations(root)
    for note in long_files(root):
        print("note:", note, file=sys.stderr)
    print("\n".join(found) or "layers ok")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
