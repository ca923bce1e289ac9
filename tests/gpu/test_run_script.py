"""The script for a machine with a GPU runs to its end over the fake driver."""

import json
import os
import subprocess
import sys
from pathlib import Path

import cuda_bundles
import pytest

pytest.importorskip("triton", reason="--device cuda needs triton")

sys.path.insert(0, str(Path(__file__).parent))

import build_kernels

from pinfer.runtime.library import find_library

HERE = Path(__file__).parent
PROMPT = [5, 60, 61, 7, 200, 9, 41, 42]


def test_run_to_the_end(tmp_path, build_dir):
    fakes = build_dir / "tests" / "cuda" / "fakes"
    if not (fakes / "libpinfer_cuda.so").exists():
        pytest.skip("the fakes are not built: they need CUDA's headers (tests/gpu/cuda_wheels.py)")
    bundles = tmp_path / "pack" / "bundles"
    bundles.mkdir(parents=True)
    (bundles / "llama").symlink_to(cuda_bundles.make_bundle("llama", tmp_path))
    expected = {"prompt": PROMPT, "logprobs": {"llama": [-5.0] * (len(PROMPT) - 1)}}
    (bundles / "expected.json").write_text(json.dumps(expected))
    result = tmp_path / "result.json"
    ran = subprocess.run(
        [HERE / "run.sh", "--fake", fakes, "--built", find_library(), bundles.parent, result],
        env={**os.environ, "PYTHON": sys.executable}, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert "copies of device memory" in ran.stdout
    found = json.loads(result.read_text())
    assert [entry["model"] for entry in found["checked"]] == ["llama"]
    names = ("test", "graphs", "async_scheduling")
    tests = [tuple(entry[name] for name in names) for entry in found["measured"]]
    once = ["decode", "decode", "prefill"]
    overlapped = [("decode", True, True)] * 2
    plain = [(name, graphs, False) for graphs in (False, True) for name in once]
    assert tests == plain + overlapped
    assert all(entry["tokens_per_s"] > 0 for entry in found["measured"])
    assert found["copy_bytes_per_s"] > 0 and found["build_seconds"] is None


@pytest.mark.slow
def test_pack_fits_and_runs_where_it_is_unpacked(tmp_path, build_dir):
    """As on a machine with a GPU, from the packed tree alone: kernels, by nvcc, and the engine are
    built there. Only the driver and the kernels' library that run are fakes."""
    fakes = build_dir / "tests" / "cuda" / "fakes"
    if not (fakes / "libpinfer_cuda.so").exists():
        pytest.skip("the fakes are not built: they need CUDA's headers (tests/gpu/cuda_wheels.py)")
    if build_kernels.find_nvcc() is None:
        pytest.skip("no nvcc: `python tests/gpu/cuda_wheels.py nvcc` installs one")
    archive = tmp_path / "pack.tar.gz"
    subprocess.run([HERE / "pack.sh", archive, sys.executable], check=True)
    size = archive.stat().st_size
    print(f"pack: {size / 2**20:.1f} MiB")
    assert size < 60 << 20
    pack = tmp_path / "there"
    pack.mkdir()
    subprocess.run(["tar", "-xzf", archive, "-C", pack], check=True)
    for name in ("llama-8b-bf16", "llama-8b-fp8"):
        assert (pack / "bundles" / name / "stored.json").exists()
    result = tmp_path / "result.json"
    ran = subprocess.run(
        [pack / "tree" / "tests" / "gpu" / "run.sh", "--fake", fakes, pack, result],
        env={**os.environ, "PYTHON": sys.executable}, capture_output=True, text=True,
    )  # fmt: skip
    print(ran.stdout)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(result.read_text())
    assert len(found["checked"]) == len(cuda_bundles.MODELS) and found["build_seconds"] > 0


def test_random_weights_fill_the_file(tmp_path):
    """In the places that the header names, finite, and the tables as they are."""
    numpy = pytest.importorskip("numpy")
    header = {
        "a": {"dtype": "BF16", "shape": [3, 32], "data_offsets": [0, 192]},
        "norm": {"dtype": "F32", "shape": [16], "data_offsets": [192, 256]},
        "rotary.0.inv_freq": {"dtype": "F32", "shape": [16], "data_offsets": [256, 320]},
        "b": {"dtype": "U8", "shape": [128], "data_offsets": [320, 448]},
    }
    text = json.dumps(header).encode()
    text += b" " * (-(len(text) + 8) % 64)
    path = tmp_path / "weights.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text)
    frequencies = [1 / (i + 1) for i in range(16)]
    stored = {"size": 8 + len(text) + 448, "values": {"rotary.0.inv_freq": frequencies}}
    (tmp_path / "stored.json").write_text(json.dumps(stored))
    for _ in range(2):  # a second time nothing is left to do
        subprocess.run([sys.executable, HERE / "random_weights.py", tmp_path], check=True)
    data = path.read_bytes()
    assert len(data) == stored["size"]
    data = data[8 + len(text) :]
    plain = numpy.frombuffer(data[:192], "<u2").astype("<u4") << 16
    numbers = numpy.abs(plain.view("<f4"))
    assert numbers.min() >= 2**-6 and numbers.max() < 2**-5 and len(set(numbers)) > 20
    assert numpy.array_equal(numpy.frombuffer(data[192:256], "<f4"), numpy.ones(16))
    assert numpy.allclose(numpy.frombuffer(data[256:320], "<f4"), frequencies)
    assert (numpy.frombuffer(data[320:], "u1") & 0x40 == 0).all()
