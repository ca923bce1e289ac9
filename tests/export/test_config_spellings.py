"""One model under all spellings of config.json: the logits of transformers, or refused."""

import json
import shutil

import family_models
import pytest
import tiny_models
import torch
import transformers

from pinfer.export.errors import ExportError
from pinfer.export.evaluation import EagerModel
from pinfer.export.exporter import read_checkpoint
from pinfer.export.models.registry import FAMILIES, read_spec
from pinfer.export.models.spec import ConfigReader
from pinfer.export.weights import WeightFormats
from pinfer.runtime.weight_format import FLOAT32

IDS = torch.randint(3, 259, (200,), generator=torch.Generator().manual_seed(1))
ROPE_KEYS = dict.fromkeys(("rope_parameters", "rope_theta", "rope_scaling"), ...)
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}  # fmt: skip
YARN = {"factor": 4.0, "original_max_position_embeddings": 64}


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return tiny_models.make_checkpoint("tied", tmp_path_factory.mktemp("spellings"))


def edited(original, target, changes):
    shutil.copytree(original, target)
    config = json.loads((target / "config.json").read_text()) | changes
    written = {key: value for key, value in config.items() if value is not ...}
    (target / "config.json").write_text(json.dumps(written))
    return target


def logits(path):
    checkpoint = read_checkpoint(path)
    formats = WeightFormats(FLOAT32, FLOAT32)
    model = EagerModel(read_spec(checkpoint), checkpoint, formats, torch.float32, 256)
    return model.logits(model.hidden_states(IDS.int()))


@pytest.mark.parametrize(
    "changes",
    [
        {"rope_theta": 1e6, "rope_scaling": None},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
        {"rope_theta": 1e6, "rope_scaling": {"type": "linear", "factor": 2.0}},
        {"rope_theta": 1e6, "rope_scaling": {"rope_type": "linear", "factor": 2.0}},
        {"rope_scaling": {"rope_type": "llama3", **LLAMA3}},
        {"rope_parameters": {"rope_type": "llama3", "rope_theta": 1e4, **LLAMA3}},
        {"rope_scaling": {"type": "yarn", **YARN}},
        {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0}},
        {"rope_theta": 1e6, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
        {},  # nothing at all: the family's theta
    ],
)
def test_rotary_spellings(original, tmp_path, changes):
    """At every position, those beyond the original length included."""
    path = edited(original, tmp_path / "m", ROPE_KEYS | changes)
    with torch.no_grad():
        expected = tiny_models.reference(path)(IDS[None]).logits[0]
    assert (logits(path) - expected).abs().max() <= 2e-5 * expected.abs().max()


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "dynamic"),
        ({"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}, "dynamic"),
        ({"rope_scaling": {"rope_type": "novel"}}, "novel"),
        ({"rope_theta": 1e6, "rope_parameters": {"rope_theta": 1e4}}, "rope_theta"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0},
          "rope_parameters": {"rope_type": "linear", "factor": 4.0}}, "disagree"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0},
          "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}, "disagree"),
        ({"rope_parameters": {"full_attention": {"rope_type": "default"},
                              "sliding_attention": {"rope_type": "default"}}}, "per layer type"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}},
         "partial_rotary_factor"),
        ({"rope_scaling": {"factor": 2.0}}, "factor"),
        ({"rope_scaling": "linear"}, "rope_scaling"),
        ({"rope_parameters": [1e4]}, "rope_parameters"),
        ({"rope_theta": "1e4"}, "rope_theta"),
        ({"rope_theta": -1.0}, "rope_theta"),
        ({"rope_scaling": {"type": "linear", "factor": float("nan")}}, "factor"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0, "mscale": 1.0}}, "mscale"),
        ({"rope_scaling": {"rope_type": "llama3", **LLAMA3, "high_freq_factor": None}},
         "high_freq_factor"),
        ({"rope_parameters": {"rope_type": ["yarn"], "factor": 2.0}}, "rope_type"),
    ],
)  # fmt: skip
def test_rotary_settings_that_are_refused(original, tmp_path, changes, key):
    path = edited(original, tmp_path / "m", ROPE_KEYS | changes)
    with pytest.raises(ExportError, match=key):
        read_spec(read_checkpoint(path))


@pytest.mark.parametrize(
    ("changes", "windows"),
    [
        ({"layer_types": ..., "_sliding_window_pattern": ..., "sliding_window_pattern": 3},
         [16, 16, 0, 16, 16, 0, 16]),
        ({"layer_types": ..., "_sliding_window_pattern": 2}, [16, 0, 16, 0, 16, 0, 16]),
        ({"layer_types": ..., "_sliding_window_pattern": ...}, [16] * 5 + [0, 16]),
        ({"layer_types": ["full_attention"] * 6 + ["sliding_attention"]}, [0] * 6 + [16]),
    ],
)  # fmt: skip
def test_patterns_of_windows(tmp_path, changes, windows):
    original = family_models.make_checkpoint("gemma3", "plain", tmp_path)
    spec = read_spec(read_checkpoint(edited(original, tmp_path / "m", changes)))
    assert [layer.sliding_window for layer in spec.layers] == windows
    local, other = 1 / 10000 ** (2 / 32), 1 / 1e6 ** (2 / 32)
    for index, window in enumerate(windows):
        second = spec.rotaries[spec.rotary_of_layer[index]].inv_freq[1].item()
        assert second == pytest.approx(local if window else other)


def read(config):
    name = config["architectures"][0]
    return FAMILIES[name].read_spec(ConfigReader("config.json", config), name)


def described(spec):
    return spec, [(r.inv_freq.tolist(), r.attention_scaling) for r in spec.rotaries]


@pytest.mark.parametrize("family", family_models.FAMILIES)
def test_absent_keys_mean_what_they_mean_to_transformers(family, tmp_path):
    """A key that config.json leaves out has the default of transformers' class, or is refused.
    Where that default does not fit the other keys, ours may."""
    entry = family_models.FAMILIES[family]
    variant = next(iter(entry.variants))
    path = family_models.make_checkpoint(family, variant, tmp_path)
    config = json.loads((path / "config.json").read_text())
    for key in config:
        if key in ("architectures", *ConfigReader.COMMON_KEYS):
            continue
        without = {k: v for k, v in config.items() if k != key}
        try:
            found = described(read(without))
            theirs = getattr(transformers, entry.config)(**without).to_dict()
            expected = described(read(without | {key: theirs.get(key)}))
        except ExportError:
            continue
        assert found == expected, key
