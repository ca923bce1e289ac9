"""gemma-3-270m from a real GGUF file of mixed quantised types, against transformers reading it."""

import json
import random

import gemma3
import pytest
import torch
from registry_models import RegistryUnavailable, gemma3_gguf, npm_tokenizer
from tokenizers import Tokenizer

from pinfer.export.evaluation import EagerModel
from pinfer.export.exporter import read_checkpoint
from pinfer.export.models.registry import read_spec
from pinfer.export.text import build_text
from pinfer.export.tokenizer_verify import random_text
from pinfer.export.weights import WeightFormats
from pinfer.runtime.weight_format import FLOAT32

pytestmark = pytest.mark.slow
TOLERANCE = 2e-5  # of the logits' scale


@pytest.fixture(scope="module")
def path():
    try:
        return gemma3_gguf()
    except RegistryUnavailable as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def checkpoint(path):
    return read_checkpoint(path)


def test_ids_of_transformers(path, checkpoint):
    """On random texts those of the published tokenizer.json: what transformers makes of the file
    cuts runs of spaces in other ways."""
    ours = Tokenizer.from_str(json.dumps(checkpoint.tokenizer))
    theirs = gemma3.their_tokenizer(path)
    for text in gemma3.PROMPTS:
        assert ours.encode(text).ids == theirs(text)["input_ids"], repr(text)
    try:
        published = Tokenizer.from_file(str(npm_tokenizer("gemma3") / "tokenizer.json"))
    except RegistryUnavailable as error:
        pytest.skip(str(error))
    rng = random.Random(5)
    for text in (random_text(rng, ["<start_of_turn>", "<eos>"]) for _ in range(1000)):
        assert ours.encode(text).ids == published.encode(text).ids, repr(text)


def test_text(checkpoint):
    """The file has no chat template: it is the base model."""
    text = build_text(checkpoint)
    assert text.eos_token_ids == (gemma3.END_ID,) and text.bos_token_id == 2
    assert text.chat_template_json is None


def test_greedy_generation_and_logits_of_transformers(path, checkpoint):
    """What transformers generates is what our logits, in one pass over it, put first each time."""
    spec = read_spec(checkpoint)
    assert [layer.sliding_window for layer in spec.layers] == [512, 512, 512, 512, 512, 0] * 3
    model = EagerModel(spec, checkpoint, WeightFormats(FLOAT32, FLOAT32), torch.float32, 1024)
    theirs = gemma3.their_model(path)
    for whole, num_prompt_tokens in gemma3.their_texts(path):
        with torch.no_grad():
            expected = theirs(whole[None]).logits[0]
        found = model.logits(model.hidden_states(whole.int()))
        assert (found - expected).abs().max() <= TOLERANCE * expected.abs().max()
        found[:, gemma3.END_ID] = -torch.inf
        generated = whole[num_prompt_tokens:]
        assert found[num_prompt_tokens - 1 : -1].argmax(1).equal(generated)
