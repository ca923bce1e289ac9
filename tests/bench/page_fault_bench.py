"""What touching every page of a bundle's mapped weights for the first time costs.

Usage: page_fault_bench.py BUNDLE [--runs N]

Page cache warm, one thread, milliseconds: the first touch of every page, a second one, and
MADV_POPULATE_READ in the place of the first.
"""

import argparse
import mmap
import statistics
import time
from pathlib import Path

import numpy as np

PAGE = 4096
MADV_POPULATE_READ = 22  # Linux 5.14


def milliseconds(call):
    started = time.perf_counter()
    call()
    return (time.perf_counter() - started) * 1000


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    times = {"first touch": [], "second touch": [], "populate": []}
    with (arguments.bundle / "weights.safetensors").open("rb") as file:
        for _ in range(arguments.runs):
            for populate in (False, True):
                mapped = mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ)
                pages = np.frombuffer(mapped, np.uint8)[::PAGE]
                if populate:
                    times["populate"].append(
                        milliseconds(lambda m=mapped: m.madvise(MADV_POPULATE_READ))
                    )
                else:
                    times["first touch"].append(milliseconds(pages.sum))
                    times["second touch"].append(milliseconds(pages.sum))
                del pages
                mapped.close()
    for name, values in times.items():
        print(f"{name:<14} median {statistics.median(values):6.1f} ms   min {min(values):6.1f}"
              f"   max {max(values):6.1f}")  # fmt: skip


if __name__ == "__main__":
    main()
