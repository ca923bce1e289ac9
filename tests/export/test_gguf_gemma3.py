"""gemma-3-270m from a real GGUF file of mixed quantised types, against transformers reading it."""

import json
import random

import pytest
import torch
import transformers
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
NUM_TOKENS = 32  # generated for each prompt
TOLERANCE = 2e-5  # of the logits' scale
PROMPTS = [
    "The capital of France is", "Water boils at", "Once upon a time", "def fibonacci(n):",
    "The three primary colours are", "In 1969, humans", "Roses are red,", "2 + 2 =",
    "A recipe for pancakes:\n\n1.", "Der schnellste Weg nach Berlin", "La vie est",
    "El perro de mi vecino", "日本の首都は", "Москва — столица", "The opposite of hot is",
    "Dear Sir or Madam,", "import numpy as np\n", "SELECT name FROM", "<html>\n<head>",
    "Monday, Tuesday,", "The quick brown fox", "To be or not to be,", "My favourite book is",
    "Photosynthesis is the process", "The largest planet", "A haiku about rain:\n",
    "Q: Who wrote Hamlet?\nA:", "1, 1, 2, 3, 5, 8,", "Shakespeare was born in",
    "🦙 llamas are", "The speed of light is", "x = [1, 2, 3]\nprint(",
]  # fmt: skip


@pytest.fixture(scope="module")
def path():
    try:
        return gemma3_gguf()
    except RegistryUnavailable as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def checkpoint(path):
    return read_checkpoint(path)


@pytest.fixture(scope="module")
def their_tokenizer(path):
    return transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)


def test_ids_of_transformers(checkpoint, their_tokenizer):
    """On random texts those of the published tokenizer.json: what transformers makes of the file
    cuts runs of spaces in other ways."""
    ours = Tokenizer.from_str(json.dumps(checkpoint.tokenizer))
    for text in PROMPTS:
        assert ours.encode(text).ids == their_tokenizer(text)["input_ids"], repr(text)
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
    assert text.eos_token_ids == (1,) and text.bos_token_id == 2
    assert text.chat_template_json is None


def test_greedy_generation_and_logits_of_transformers(path, checkpoint, their_tokenizer):
    """What transformers generates is what our logits, in one pass over it, put first each time."""
    spec = read_spec(checkpoint)
    assert [layer.sliding_window for layer in spec.layers] == [512, 512, 512, 512, 512, 0] * 3
    model = EagerModel(spec, checkpoint, WeightFormats(FLOAT32, FLOAT32), torch.float32, 1024)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    for prompt in PROMPTS:
        ids = their_tokenizer(prompt, return_tensors="pt")["input_ids"]
        with torch.no_grad():
            whole = theirs.generate(
                ids, max_new_tokens=NUM_TOKENS, min_new_tokens=NUM_TOKENS, do_sample=False
            )
            expected = theirs(whole).logits[0]
        hidden = model.hidden_states(whole[0].int())
        found = model.logits(hidden)
        scale = expected.abs().max()
        assert (found - expected).abs().max() <= TOLERANCE * scale, prompt
        generated = found[ids.shape[1] - 1 : -1]
        generated[:, 1] = -torch.inf  # min_new_tokens: no end
        assert generated.argmax(1).tolist() == whole[0, ids.shape[1] :].tolist(), prompt
