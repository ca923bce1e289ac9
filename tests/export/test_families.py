"""Every model family against transformers, in eager PyTorch over the ops that the engine runs.

The compiled parts of the same models: tests/e2e/test_families.py.
"""

import copy
import json
import subprocess
import sys
from pathlib import Path

import family_models
import pytest
import torch
import transformers

from pinfer.export.errors import ExportError
from pinfer.export.evaluation import EagerModel
from pinfer.export.exporter import read_checkpoint
from pinfer.export.models import listing
from pinfer.export.models.registry import FAMILIES, read_spec
from pinfer.export.models.spec import ConfigReader
from pinfer.export.weights import WeightFormats
from pinfer.runtime.weight_format import FLOAT32

ROOT = Path(__file__).parents[2]
TOLERANCE = 2e-5  # of the logits' scale
NUM_TOKENS = 200  # past every window and every original context length


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("families")


def eager(checkpoint, max_model_len=None):
    spec = read_spec(checkpoint)
    length = max_model_len or spec.max_position_embeddings
    return EagerModel(spec, checkpoint, WeightFormats(FLOAT32, FLOAT32), torch.float32, length)


def ids_of(count, seed=1):
    return torch.randint(3, 259, (count,), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("family", "variant"), family_models.CASES)
def test_logits_equal_transformers(family, variant, folder):
    path = family_models.make_checkpoint(family, variant, folder)
    model = eager(read_checkpoint(path))
    ids = ids_of(NUM_TOKENS)
    with torch.no_grad():
        expected = family_models.reference(path)(ids[None]).logits[0]
    found = model.logits(model.hidden_states(ids.int()))
    difference = (found - expected).abs().max() / expected.abs().max()
    assert difference < TOLERANCE


def test_short_contexts_of_longrope(folder):
    """Up to the original context the short divisors are right, as transformers has them."""
    path = family_models.make_checkpoint("phi3", "longrope", folder)
    model = eager(read_checkpoint(path), max_model_len=64)
    ids = ids_of(64)
    with torch.no_grad():
        expected = family_models.reference(path)(ids[None]).logits[0]
    found = model.logits(model.hidden_states(ids.int()))
    assert (found - expected).abs().max() / expected.abs().max() < TOLERANCE


# ---- configuration ----


def config_of(family, variant, folder):
    path = family_models.make_checkpoint(family, variant, folder)
    return json.loads((path / "config.json").read_text())


def read(config):
    """(spec, reader) of a config.json."""
    name = config["architectures"][0]
    reader = ConfigReader("config.json", config)
    return FAMILIES[name].read_spec(reader, name), reader


@pytest.mark.parametrize("family", family_models.FAMILIES)
def test_every_key_of_the_config_class_is_read(family, folder):
    """Used, ignored by name because it does not matter, or refused; also where it is false."""
    entry = family_models.FAMILIES[family]
    variant = next(iter(entry.variants))
    config = config_of(family, variant, folder)
    reader = read(config)[1]
    keys = set(getattr(transformers, entry.config)().to_dict()) | set(config)
    unread = {
        key
        for key in keys - reader.COMMON_KEYS
        if not reader.was_read(key) and not key.startswith("_") and not key.endswith("_version")
    }
    assert not unread


def changed(value):
    """Other values than this one."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value * 2, value + 1]
    if isinstance(value, float):
        return [value * 1.5]
    if isinstance(value, str):
        return ["other"]
    if isinstance(value, list) and value and isinstance(value[0], str):
        return [["full_attention", "sliding_attention"] * len(value)]
    return []


def described(spec):
    rotaries = [(r.inv_freq.tolist(), r.attention_scaling) for r in spec.rotaries]
    return (spec, rotaries)


# Of no effect on the model by themselves, with the reason.
WITHOUT_EFFECT = {
    ("mistral", "head_dim"): "what is written is what follows from hidden_size",
    (
        "phi3",
        "original_max_position_embeddings",
    ): "of rotary scaling, which the plain variant lacks",
    ("qwen2", "max_window_layers"): "of the window, which is switched off",
    ("qwen2", "use_sliding_window"): "of layers from max_window_layers on, and there are none",
    ("qwen3", "use_sliding_window"): "of layers from max_window_layers on, and there are none",
    ("qwen2", "sliding_window"): "of the window, which is switched off",
    ("qwen2_moe", "max_window_layers"): "of the window, which is switched off",
    ("qwen2_moe", "sliding_window"): "of the window, which is switched off",
    ("qwen3", "max_window_layers"): "of the window, which is switched off",
    ("qwen3", "sliding_window"): "of the window, which is switched off",
    ("qwen3_moe", "sliding_window"): "of the window, which is switched off",
    ("qwen3_moe", "intermediate_size"): "of layers without experts, and there are none",
    ("qwen2_moe", "intermediate_size"): "of layers without experts, and there are none",
    ("smollm3", "sliding_window"): "of the window, which is switched off",
    ("smollm3", "use_sliding_window"): "layer_types wins, and lists no window",
    ("smollm3", "layer_types"): "of the window, which is switched off",
    ("smollm3", "no_rope_layer_interval"): "no_rope_layers wins",
    ("gemma3", "_sliding_window_pattern"): "layer_types wins",
}


@pytest.mark.parametrize("family", family_models.FAMILIES)
def test_every_key_that_is_read_matters(family, folder):
    """A setting that is read and dropped would be worse than one that is refused."""
    variant = next(iter(family_models.FAMILIES[family].variants))
    config = config_of(family, variant, folder)
    spec, reader = read(config)
    for key, value in config.items():
        used = reader.was_read(key) and not reader.is_ignored(key)
        if not used or (family, key) in WITHOUT_EFFECT:
            continue
        for other in changed(value):
            config_with = copy.deepcopy(config) | {key: other}
            try:
                assert described(read(config_with)[0]) != described(spec), (key, value, other)
            except ExportError as error:
                assert key in str(error) or str(other)[:20] in str(error), (key, error)


@pytest.mark.parametrize("family", family_models.FAMILIES)
def test_unknown_keys_are_refused(family, folder):
    variant = next(iter(family_models.FAMILIES[family].variants))
    path = family_models.make_checkpoint(family, variant, folder)
    checkpoint = read_checkpoint(path)
    checkpoint.config["frobnication_factor"] = 2
    with pytest.raises(ExportError, match="frobnication_factor=2"):
        read_spec(checkpoint)


# ---- the list of models ----


def specs_of(name, folder):
    for family, variant in family_models.CASES:
        config = config_of(family, variant, folder)
        if config["architectures"] == [name]:
            yield read(config)[0]


@pytest.mark.parametrize("name", FAMILIES)
def test_the_list_says_what_families_have(name, folder):
    specs = list(specs_of(name, folder))
    assert len(specs) >= 3, "tests/family_models.py: expected three variants or more"
    layers = [layer for spec in specs for layer in spec.layers]
    assert any(layer.sliding_window for layer in layers) == FAMILIES[name].window
    assert any(layer.num_experts for layer in layers) == FAMILIES[name].experts


def test_the_documented_list_is_the_list():
    text = (ROOT / "docs" / "models.md").read_text()
    assert f"\n{listing.models_markdown()}\n" in text, "put models_markdown() into docs/models.md"


def test_list_models():
    program = Path(sys.executable).parent / "pinfer-export"
    result = subprocess.run([program, "--list-models"], capture_output=True, text=True)
    assert result.returncode == 0 and result.stderr == ""
    assert result.stdout.rstrip("\n") == listing.models_text()
    assert all(name in result.stdout for name in FAMILIES)
