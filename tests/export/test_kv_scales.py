"""Scales of a cache of fp8 that a checkpoint brings."""

import json

import cuda_bundles
import family_models
import pytest
import torch
from safetensors.torch import load_file, save_file

from pinfer.export import kv_scales
from pinfer.export.errors import ExportError
from pinfer.export.exporter import read_checkpoint
from pinfer.export.models.registry import read_spec
from pinfer.export.weights import WeightFormats, plan_weights
from pinfer.runtime.weight_format import FLOAT32

SCALES = [(0.125, 0.5), (2.0, 0.0625)]


@pytest.fixture
def checkpoint(tmp_path):
    folder = family_models.make_checkpoint("llama", "plain", tmp_path)
    cuda_bundles.add_kv_scales(folder, SCALES)
    return folder


def read(folder):
    checkpoint = read_checkpoint(folder)
    spec = read_spec(checkpoint, False)
    plan_weights(spec, checkpoint, WeightFormats(FLOAT32, FLOAT32))  # has no tensor left over
    return kv_scales.read_kv_scales(spec, checkpoint)


def change(folder, **tensors):
    """None removes one."""
    path = folder / "model.safetensors"
    stored = {**load_file(path), **{f"model.layers.1.self_attn.{k}": v for k, v in tensors.items()}}
    save_file({k: v for k, v in stored.items() if v is not None}, path)


def test_scales_are_read_by_layer(checkpoint):
    assert read(checkpoint) == SCALES
    change(checkpoint, k_scale=torch.tensor(0.75, dtype=torch.bfloat16))
    assert read(checkpoint) == [SCALES[0], (0.75, SCALES[1][1])]


def test_most_checkpoints_have_none(tmp_path):
    assert read(family_models.make_checkpoint("llama", "plain", tmp_path)) is None


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "self_attn.v_scale' is missing; other layers have scales"),
        (torch.ones(2), r"v_scale': expected one scale for all heads, found \[2\]"),
        (torch.tensor([0.0]), "v_scale': expected a positive number, found 0.0"),
        (torch.tensor([-1.0]), "v_scale': expected a positive number, found -1.0"),
        (torch.tensor([torch.inf]), "v_scale': expected a positive number, found inf"),
        (torch.tensor([torch.nan]), "v_scale': expected a positive number, found nan"),
    ],
)
def test_scales_that_do_not_do(checkpoint, value, message):
    change(checkpoint, v_scale=value)
    with pytest.raises(ExportError, match=message):
        read(checkpoint)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("type", "int", "kv_cache_scheme.type: expected float, found 'int'"),
        ("num_bits", 4, "kv_cache_scheme.num_bits: expected 8, found 4"),
        ("strategy", "attn_head", "kv_cache_scheme.strategy: expected tensor, found 'attn_head'"),
        ("dynamic", True, "kv_cache_scheme.dynamic: expected False, found True"),
        ("symmetric", False, "kv_cache_scheme.symmetric: expected True, found False"),
    ],
)
def test_schemes_that_are_not_supported(checkpoint, key, value, message):
    path = checkpoint / "config.json"
    config = json.loads(path.read_text())
    config["quantization_config"]["kv_cache_scheme"][key] = value
    path.write_text(json.dumps(config))
    with pytest.raises(ExportError, match=f"quantization_config.{message}"):
        read(checkpoint)


def test_what_the_manifest_and_the_user_are_told():
    assert kv_scales.scale_entries("bfloat16", SCALES, 1) == {}
    assert kv_scales.scale_entries("fp8", SCALES, 1) == {"k_scale": 2.0, "v_scale": 0.0625}
    assert kv_scales.scale_entries("fp8", None, 1) == {"k_scale": 1.0, "v_scale": 1.0}
    assert kv_scales.scale_warning("fp8", SCALES) is None
    assert kv_scales.scale_warning("bfloat16", None) is None
    assert "they are 1.0" in kv_scales.scale_warning("fp8", None)
    assert "not used for bfloat16" in kv_scales.scale_warning("bfloat16", SCALES)
