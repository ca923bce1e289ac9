"""Every model family against transformers, in eager PyTorch over the ops that the engine runs.

The compiled parts of the same models: tests/e2e/test_families.py.
"""

import subprocess
import sys
from pathlib import Path

import family_models
import pytest
import torch

from pinfer.export.evaluation import EagerModel
from pinfer.export.exporter import read_checkpoint
from pinfer.export.models import listing
from pinfer.export.models.registry import FAMILIES, read_spec
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


# ---- the list of models ----


def specs_of(name, folder):
    for family, variant in family_models.CASES:
        checkpoint = read_checkpoint(family_models.make_checkpoint(family, variant, folder))
        if checkpoint.config["architectures"] == [name]:
            yield read_spec(checkpoint)


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
