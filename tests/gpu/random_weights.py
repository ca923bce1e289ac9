"""Fills in the weights of a bundle that pack_bundles.py has left without.

Random numbers of about the size that a model's have. Needs numpy alone.

Usage: python random_weights.py BUNDLE
"""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path

import numpy as np

PIECE = 1 << 24  # bytes that are written at a time


def main() -> None:
    bundle = Path(sys.argv[1])
    path = bundle / "weights.safetensors"
    stored = json.loads((bundle / "stored.json").read_text())
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
    if path.stat().st_size == stored["size"]:
        return
    random = np.random.default_rng(0)
    # bfloat16 of +-2^-6 ... 2^-5. The bytes of fp8 are below 2, never NaN, and so are the scales of
    # float32 that follow them.
    numbers = random.integers(0, 1 << 16, PIECE // 2, dtype=np.uint16)
    plain = (0x3C80 | numbers & 0x807F).astype("<u2").tobytes()
    bytes_ = (numbers.view(np.uint8) & 0xBF).tobytes()
    with open(path, "r+b") as file:
        file.truncate(stored["size"])
        for name, entry in header.items():
            begin, end = entry["data_offsets"]
            file.seek(8 + length + begin)
            if name in stored["values"]:
                file.write(np.array(stored["values"][name], dtype="<f4").tobytes())
            elif entry["dtype"] == "F32":
                file.write(np.ones((end - begin) // 4, dtype="<f4").tobytes())
            elif not name.startswith("__pad_"):
                source = plain if entry["dtype"] == "BF16" else bytes_
                while begin < end:
                    begin += file.write(source[: min(PIECE, end - begin)])


if __name__ == "__main__":
    main()
