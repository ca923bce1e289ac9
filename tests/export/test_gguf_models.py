"""Models in GGUF files: the model of the checkpoint they were made of, and what is refused."""

import json
import shutil

import family_models
import pytest
import torch
import transformers
from bundle_tensors import bundle_tensors
from gguf_checkpoints import write_gguf

from pinfer.export.evaluation import EagerModel
from pinfer.export.exporter import read_checkpoint
from pinfer.export.models.registry import read_spec
from pinfer.export.weights import WeightFormats
from pinfer.runtime.weight_format import FLOAT32

FORMATS = WeightFormats(FLOAT32, FLOAT32)
TOLERANCE = 2e-5  # of the logits' scale
SCALE = {"query_pre_attn_scalar": 32}  # of Gemmas, which GGUF leaves to the head size
# Variants that GGUF can say, and what has to be otherwise in them: it knows no window but Gemma's
# and Phi's, no choice of activation, no list of layers' types.
VARIANTS = {
    ("llama", "plain"): {},
    ("llama", "llama3_biases_tied"): {},
    ("llama", "yarn_odd_heads"): {},
    ("llama", "linear_gelu"): {"hidden_act": "silu"},
    ("mistral", "no_window"): {},
    ("mixtral", "plain"): {},
    ("mixtral", "odd_tied"): {},
    ("qwen2", "plain"): {},
    ("qwen2", "yarn_tied"): {},
    ("qwen2_moe", "plain"): {},
    ("qwen3", "plain"): {},
    ("qwen3", "biases_tied"): {},
    ("qwen3_moe", "plain"): {"norm_topk_prob": True},
    ("gemma", "plain"): {},
    ("gemma", "one_kv_head_bias"): {},
    ("gemma2", "plain"): SCALE,
    ("gemma3", "plain"): SCALE,
    ("gemma3", "caps_bias"): {
        "query_pre_attn_scalar": 18,
        "layer_types": ["sliding_attention", "sliding_attention"],
    },
    ("phi3", "plain"): {},
    ("phi3", "partial_window"): {},
    ("phi3", "longrope"): {},
    ("starcoder2", "plain"): {},
    ("starcoder2", "untied_gelu"): {"hidden_act": "gelu_pytorch_tanh"},
    ("gpt2", "plain"): {},
    ("gpt_neox", "plain"): {},
    ("gpt_neox", "serial"): {},
    ("gpt_neox", "rotated_whole"): {},
    ("olmo2", "plain"): {},
    ("olmo2", "yarn_odd"): {},
    ("granite", "plain"): {},
    ("granite", "other_multipliers"): {},
    ("granite", "biases"): {},
    ("smollm3", "plain"): {},
}
# What transformers reads from GGUF; it does not know all of their settings.
READ_BY_TRANSFORMERS = [
    ("llama", "plain"), ("qwen2", "plain"), ("qwen3", "plain"), ("gemma2", "plain"),
    ("gemma3", "plain"), ("phi3", "plain"), ("starcoder2", "plain"), ("gpt2", "plain"),
]  # fmt: skip
IDS = torch.randint(3, 250, (200,), generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("gguf-models")


def made(family, variant, folder):
    """(checkpoint, GGUF file of the same model)"""
    checkpoint = folder / "as-gguf" / f"{family}-{variant}"
    if not checkpoint.is_dir():
        shutil.copytree(family_models.make_checkpoint(family, variant, folder), checkpoint)
        config = checkpoint / "config.json"
        settings = json.loads(config.read_text()) | VARIANTS[family, variant]
        config.write_text(json.dumps(settings))
        write_gguf(checkpoint, checkpoint.with_suffix(".gguf"))
    return checkpoint, checkpoint.with_suffix(".gguf")


@pytest.mark.parametrize(("family", "variant"), VARIANTS)
def test_the_model_is_that_of_the_checkpoint(family, variant, folder):
    """Every size, switch and number; rotary frequencies but for their last bits."""
    original, path = made(family, variant, folder)
    expected, found = (read_spec(read_checkpoint(p)) for p in (original, path))
    assert found.layers == expected.layers and found.head == expected.head
    assert found.embedding_scale == expected.embedding_scale
    assert found.max_position_embeddings == expected.max_position_embeddings
    assert found.tie_word_embeddings == expected.tie_word_embeddings
    for length in (64, 256):
        for i in range(len(found.layers)):
            ours, theirs = (
                spec.rotaries[spec.rotary_of_layer[i]].for_length(length)
                for spec in (found, expected)
            )
            torch.testing.assert_close(ours.inv_freq, theirs.inv_freq, rtol=2e-6, atol=0)
            assert ours.attention_scaling == pytest.approx(theirs.attention_scaling, rel=1e-6)
    stored, expected = bundle_tensors(path), bundle_tensors(original)
    assert stored.keys() == expected.keys()
    for name, values in expected.items():
        assert torch.equal(stored[name], values), name


@pytest.mark.parametrize(("family", "variant"), READ_BY_TRANSFORMERS)
def test_logits_of_transformers_reading_the_file(family, variant, folder):
    original, path = made(family, variant, folder)
    checkpoint = read_checkpoint(path)
    model = EagerModel(read_spec(checkpoint), checkpoint, FORMATS, torch.float32, 256)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(
        path.parent,
        gguf_file=path.name,
        config=transformers.AutoConfig.from_pretrained(original),
        dtype=torch.float32,
        attn_implementation="eager",
    ).eval()
    with torch.no_grad():
        expected = theirs(IDS[None]).logits[0]
    found = model.logits(model.hidden_states(IDS.int()))
    assert (found - expected).abs().max() <= TOLERANCE * expected.abs().max()
