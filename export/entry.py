"""pinfer-export's entry: says what to install where the exporter's requirements are missing."""

from __future__ import annotations

import sys


def main() -> None:
    """Exit codes: 0 done, 1 refused or failed, 2 usage."""
    try:
        # Here, so that its absence can be said.
        from pinfer.export.__main__ import main as run
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] == "pinfer":
            raise
        print(
            f"pinfer-export: error: {error.name} is missing: pip install 'pinfer[export]'",
            file=sys.stderr,
        )
        sys.exit(1)
    run()
