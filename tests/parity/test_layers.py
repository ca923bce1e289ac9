"""The tree keeps its layers, and the check sees each kind of violation."""

from pathlib import Path

import pytest
from check_layers import long_files, violations

ROOT = Path(__file__).parents[2]


def test_tree_keeps_its_layers():
    assert violations(ROOT) == []


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.parametrize(
    ("files", "violation"),
    [
        (
            {"runtime/core/a.py": "import pinfer.runtime.scheduler", "engine_cpp/core/a.h": ""},
            "runtime/core/a.py: core must not import scheduler",
        ),
        (
            {"runtime/engine/a.py": "from pinfer.export import trace"},
            "runtime/engine/a.py: runtime must not import pinfer.export",
        ),
        (
            {"runtime/engine/a.py": "def f():\n    from . import b"},
            "runtime/engine/a.py: import by the full name pinfer.runtime.*",
        ),
        (
            {"export/a.py": "from pinfer.runtime import sampler"},
            "export/a.py: export must not import pinfer.runtime.sampler",
        ),
        (
            {"csrc/kernels/a.cc": "#include <ATen/ATen.h>"},
            "csrc/kernels/a.cc: is torch-free but includes ATen/ATen.h",
        ),
        (
            {"engine_cpp/server/a.cc": '#  include "torch/torch.h"'},
            "engine_cpp/server/a.cc: is torch-free but includes torch/torch.h",
        ),
        (
            {"engine_cpp/core/a.h": '#include "kv_cache/block_pool.h"'},
            "engine_cpp/core/a.h: core must not include kv_cache/block_pool.h",
        ),
        (
            {"engine_cpp/include/pinfer/a.hpp": '#include "core/status.h"'},
            "engine_cpp/include/pinfer/a.hpp: public header includes private core/status.h",
        ),
        (
            {
                "engine_cpp/core/a.h": '#include "core/b.h"',
                "engine_cpp/core/b.h": '#include "core/a.h"',
            },
            "engine_cpp: include cycle ",
        ),
        (
            {"runtime/sampler/a.py": "", "engine_cpp/sampler/a.cc": ""},
            "runtime/sampler/a.py has no engine_cpp/sampler/a.h",
        ),
    ],
)
def test_violation_is_seen(files, violation, tmp_path):
    write(tmp_path, files)
    found = violations(tmp_path)
    assert len(found) == 1
    assert found[0].startswith(violation)


def test_what_is_allowed_passes(tmp_path):
    write(
        tmp_path,
        {
            "runtime/scheduler/a.py": "from pinfer.runtime.kv_cache import b\nimport json",
            "runtime/executor/a.py": "from pinfer.runtime import ops",
            "export/a.py": "from pinfer.runtime.bundle import b\nfrom pinfer.export import c",
            "engine_cpp/scheduler/a.h": '#include "kv_cache/b.h"\n#include <vector>',
            "csrc/a.cc": '#include "csrc/ops.h"',
        },
    )
    assert violations(tmp_path) == []


def test_long_files_are_noted(tmp_path):
    write(tmp_path, {"csrc/a.cc": "\n" * 501, "csrc/b.cc": "\n" * 500})
    assert list(long_files(tmp_path)) == ["csrc/a.cc: 501 lines (limit 500)"]
