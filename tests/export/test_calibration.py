"""Rounding to int4 for a text (--calibrate): less error where the text is, nothing else changes."""

import dataclasses

import family_models
import pytest
import tiny_models
import torch

from pinfer.export.calibration import CalibratedTensors
from pinfer.export.config import ExportConfig
from pinfer.export.errors import ExportError
from pinfer.export.evaluation import evaluate, read_windows
from pinfer.export.exporter import export, read_checkpoint
from pinfer.export.gptq import quantize_int4
from pinfer.export.models.registry import read_spec
from pinfer.export.packed_tensors import PackedTensors
from pinfer.export.weights import WeightFormats, plan_weights
from pinfer.runtime.bundle.manifest import read_manifest
from pinfer.runtime.weight_format import FLOAT32, WeightFormat

INT4 = WeightFormat("int4", 32)
FORMATS = WeightFormats(INT4, FLOAT32)
TEXT = "\n".join(f"Line {i}: the quick brown fox jumps over {i * i} lazy dogs." for i in range(40))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("calibration")


@pytest.fixture(scope="module")
def text(folder):
    path = folder / "text"
    path.write_text(TEXT)
    return path


# ---- the rounding of one weight ----


def rows_and_weight(num_rows, out_features, in_features, seed=0):
    """Rows whose numbers go together, as those of a model do."""
    generator = torch.Generator().manual_seed(seed)
    mixed = torch.randn(in_features // 4, in_features, generator=generator)
    rows = torch.randn(num_rows, in_features // 4, generator=generator) @ mixed
    rows += 0.3 * torch.randn(num_rows, in_features, generator=generator)
    return rows, torch.randn(out_features, in_features, generator=generator)


def error(rows, weight, rounded):
    return float((rows @ (weight - rounded.dequantize()).T).square().sum())


@pytest.mark.parametrize("in_features", [32, 100, 288])
@pytest.mark.parametrize("group_size", [32, 128])
def test_products_are_closer_than_those_of_the_nearest(in_features, group_size):
    format = WeightFormat("int4", group_size)
    rows, weight = rows_and_weight(500, 48, in_features)
    nearest = format.quantize(weight)
    found = quantize_int4(weight, (rows.T @ rows).double(), format)
    assert found.numbers.shape == nearest.numbers.shape and found.numbers.dtype == torch.uint8
    assert int(found.numbers.max()) <= 15
    assert found.scales.shape == nearest.scales.shape and found.group_size == group_size
    assert error(rows, weight, found) < 0.7 * error(rows, weight, nearest)


def test_a_weight_on_the_grid_stays():
    """Nothing is left over that others would have to make up for."""
    rows, weight = rows_and_weight(200, 32, 96)
    on_grid = INT4.quantize(weight).dequantize()
    found = quantize_int4(on_grid, (rows.T @ rows).double(), INT4)
    assert (found.dequantize() - on_grid).abs().max() < 2e-3 * on_grid.abs().max()


@pytest.mark.parametrize("used", [0, 1, 40])
def test_inputs_that_the_text_does_not_use(used):
    """They are rounded as without a text, more or less; nothing is divided by zero."""
    rows, weight = rows_and_weight(200, 16, 96)
    rows[:, used:] = 0
    found = quantize_int4(weight, (rows.T @ rows).double(), INT4).dequantize()
    assert found.isfinite().all()
    step = (weight.view(16, 3, 32).amax(2) - weight.view(16, 3, 32).amin(2)).max() / 15
    assert (found - weight)[:, max(used, 1) :].abs().max() < 3 * step


# ---- a model ----


@pytest.mark.parametrize("family", ["llama", "gpt2", "gpt_neox", "gemma3", "mixtral"])
def test_a_model_is_closer_on_the_text(family, folder, text):
    """Rows to transpose, heads stored one after another, layers of two kinds, experts."""
    checkpoint = read_checkpoint(family_models.make_checkpoint(family, "plain", folder))
    spec = read_spec(checkpoint)
    windows = read_windows("--calibrate", text, checkpoint, 256)
    plan = plan_weights(spec, checkpoint, FORMATS)
    nearest = PackedTensors(checkpoint)
    calibrated = CalibratedTensors(windows, spec, checkpoint, FORMATS, torch.float32, 256)
    tensors = {entry.name: calibrated.tensor(entry) for entry in plan.tensors()}
    for entry in plan.tensors():
        is_rounded = entry.format == INT4 and not entry.num_experts
        same = torch.equal(tensors[entry.name], nearest.tensor(entry))
        assert same == (not is_rounded), entry.name

    def kl(load):
        few = dataclasses.replace(windows, ids=windows.ids[:2])
        arguments = (few, checkpoint, spec, FORMATS, torch.float32, 256, lambda *_: None)
        return evaluate(*arguments, load).mean_kl

    assert kl(lambda entry: tensors[entry.name]) < 0.9 * kl(nearest.tensor)


# ---- an export ----


def exported(checkpoint, bundle, **options):
    config = ExportConfig(model=checkpoint, output=bundle, verify=False, **options)
    export(config, lambda *_: None)
    return read_manifest(bundle)


def test_a_bundle_says_what_it_was_calibrated_with(folder, text):
    checkpoint = tiny_models.make_checkpoint("tied", folder)
    options = {"quantize": "int4", "dtype": "float32", "evaluate": text}
    plain = exported(checkpoint, folder / "plain", **options)
    found = exported(checkpoint, folder / "calibrated", calibrate=text, **options)
    assert "calibration" not in plain
    num_tokens = sum(
        len(ids) for ids in read_windows("--eval", text, read_checkpoint(checkpoint), 256).ids
    )
    assert found["calibration"] == {"text": "text", "tokens": num_tokens}
    assert found["evaluation"]["mean_kl"] < 0.9 * plain["evaluation"]["mean_kl"]


@pytest.mark.parametrize("quantize", [None, "int8"])
def test_other_formats_are_not_calibrated(quantize, folder, text):
    checkpoint = tiny_models.make_checkpoint("tied", folder)
    with pytest.raises(ExportError, match="--calibrate is about rounding to int4"):
        exported(checkpoint, folder / "no", quantize=quantize, calibrate=text)


def test_texts_that_cannot_be_used(folder, tmp_path):
    checkpoint = tiny_models.make_checkpoint("tied", folder)
    (tmp_path / "short").write_text("a")
    for name, message in (("none", "cannot be read"), ("short", "at least 2 tokens")):
        with pytest.raises(ExportError, match=f"--calibrate .*{name}: .*{message}"):
            exported(checkpoint, folder / "no", quantize="int4", calibrate=tmp_path / name)
