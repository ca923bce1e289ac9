"""`--backend tensorrt --plan` over a stand-in for torch_tensorrt, which checks what it is given and
divides the graph. The real one, which needs TensorRT and a GPU, has not been run."""

import os
import subprocess
import sys
from pathlib import Path

import family_models
import pytest

FAKE = Path(__file__).with_name("fake_tensorrt")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return family_models.make_checkpoint("llama", "plain", tmp_path_factory.mktemp("plan"))


def plan(checkpoint, *options, device="cuda", modules=FAKE, **environment):
    path = os.pathsep.join(filter(None, [str(modules), os.environ.get("PYTHONPATH")]))
    result = subprocess.run(
        [sys.executable, "-m", "pinfer.export", checkpoint, "--backend", "tensorrt", "--plan",
         "--device", device, *options],
        env={**os.environ, "PYTHONPATH": path, **environment}, capture_output=True, text=True,
    )  # fmt: skip
    return result.returncode, result.stdout, result.stderr.splitlines()[-1:]


@pytest.mark.parametrize("options", [(), ("--quantize", "int4", "--kv-dtype", "fp8")])
def test_partition_of_a_layer_is_printed(checkpoint, options):
    status, out, last = plan(checkpoint, *options)
    assert status == 0, last
    assert out.startswith("decoder_layer: LayerSpec(hidden_size=64,")
    assert out.count("Dry-Run Results for Graph") == 1  # both layers are of one kind
    # Our own ops stand between the engines: norm, qkv, views, attention, ...
    assert "pinfer.row_linear.default: 4" in out and "pinfer.rotary_attention" in out
    assert "TRT Engine #3" in out


def test_it_writes_nothing_and_needs_no_output(checkpoint, tmp_path):
    status, _, _ = plan(checkpoint, "-o", tmp_path / "bundle")
    assert status == 0 and not (tmp_path / "bundle").exists()


def test_its_failure_is_told(checkpoint):
    status, _, last = plan(checkpoint, FAKE_TENSORRT_FAILS="no device")
    assert status == 1
    assert last == ["pinfer-export: error: decoder_layer: torch_tensorrt failed: no device"]


def test_what_is_missing_is_told(checkpoint):
    status, _, (last,) = plan(checkpoint, modules="")
    assert status == 1
    assert "--backend tensorrt --plan: missing here: torch_tensorrt, tensorrt" in last
    status, _, (last,) = plan(checkpoint, device="cpu")
    assert status == 1 and last.endswith("--backend tensorrt is for --device cuda, found cpu")


def test_usage():
    for options, message in (
        (("--plan",), "--plan is for --backend tensorrt, and it is inductor"),
        ((), "Missing option '-o' / '--output'."),
    ):
        result = subprocess.run(
            [sys.executable, "-m", "pinfer.export", "model", *options],
            capture_output=True, text=True,
        )  # fmt: skip
        assert result.returncode == 2
        assert result.stderr.splitlines()[-1] == f"pinfer-export: error: {message}"
