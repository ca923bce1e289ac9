"""Tiny checkpoints and their bundles, once a session."""

import sys
from pathlib import Path

import pytest
import successor_model
import tiny_models

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("tiny")


@pytest.fixture(scope="session", params=sorted(tiny_models.VARIANTS))
def tiny(request, tiny_folder):
    """(reference model, float32 bundle) of each variant."""
    checkpoint = tiny_models.make_checkpoint(request.param, tiny_folder)
    bundle = tiny_folder / f"{request.param}-bundle"
    if not bundle.exists():  # the fixture is made again for each module that goes over its params
        tiny_models.export(checkpoint, bundle, "--dtype", "float32")
    return tiny_models.reference(checkpoint), bundle


@pytest.fixture(scope="session")
def tied_checkpoint(tiny_folder):
    return tiny_models.make_checkpoint("tied", tiny_folder)


@pytest.fixture(scope="session")
def tied_bundle(tied_checkpoint, tiny_folder):
    bundle = tiny_folder / "tied-float32"
    tiny_models.export(tied_checkpoint, bundle, "--dtype", "float32")
    return bundle


@pytest.fixture(scope="session")
def bundles(tmp_path_factory):
    """Makes bundles of successor and fixed-logits models."""
    return successor_model.BundleMaker(tmp_path_factory.mktemp("successor"))
