"""Formats the C and C++ files that git knows with the pinned clang-format; --check only looks."""

import subprocess
import sys
from pathlib import Path

SUFFIXES = ("*.c", "*.h", "*.hpp", "*.cc", "*.cpp", "*.cu", "*.cuh")


def main() -> int:
    listed = subprocess.run(
        [
            "git",
            "-c",
            "safe.directory=*",
            "ls-files",
            "--cached",
            "--others",
            "--exclude-standard",
            *SUFFIXES,
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    files = [name for name in listed.stdout.splitlines() if Path(name).is_file()]
    mode = ["--dry-run", "-Werror"] if "--check" in sys.argv[1:] else ["-i"]
    clang_format = Path(sys.executable).parent / "clang-format"
    return subprocess.run([clang_format, *mode, *files]).returncode if files else 0


if __name__ == "__main__":
    sys.exit(main())
