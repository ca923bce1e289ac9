"""Text models inside models that also see, and checkpoints of the base model."""

import json

import family_models
import pytest
import tiny_models
import torch
import transformers
from bundle_tensors import bundle_tensors
from safetensors.torch import load_file, save_file

from pinfer.export.errors import ExportError
from pinfer.export.evaluation import EagerModel
from pinfer.export.exporter import read_checkpoint
from pinfer.export.models.registry import read_spec
from pinfer.export.text import build_text
from pinfer.export.weights import WeightFormats, plan_weights
from pinfer.runtime.weight_format import FLOAT32

FORMATS = WeightFormats(FLOAT32, FLOAT32)
IDS = torch.randint(3, 250, (70,), generator=torch.Generator().manual_seed(1))
TEXT = {"vocab_size": 301, "hidden_size": 64, "intermediate_size": 101, "num_hidden_layers": 7,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "sliding_window": 16,
        "max_position_embeddings": 256}  # fmt: skip
VISION = {"hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 1,
          "num_attention_heads": 2, "image_size": 28, "patch_size": 14}  # fmt: skip


@pytest.fixture(scope="module")
def gemma3(tmp_path_factory):
    """(folder, model) of a whole Gemma 3, as transformers saves it."""
    folder = tmp_path_factory.mktemp("multimodal") / "gemma3"
    torch.manual_seed(3)
    config = transformers.Gemma3Config(
        text_config=TEXT, vision_config=VISION, mm_tokens_per_image=4, image_token_index=300,
        eos_token_id=[2, 106],
    )  # fmt: skip
    model = transformers.Gemma3ForConditionalGeneration(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_text(tiny_models.tokenizer_json())
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>"}))
    return folder, model


def logits(path):
    checkpoint = read_checkpoint(path)
    model = EagerModel(read_spec(checkpoint), checkpoint, FORMATS, torch.float32, 256)
    return model.logits(model.hidden_states(IDS.int()))


def copied(folder, target, rename, **changes):
    """The checkpoint with other names of tensors, and other keys of config.json."""
    target.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (target / name).write_text((folder / name).read_text())
    tensors = load_file(folder / "model.safetensors")
    save_file({rename(name): values for name, values in tensors.items()},
              target / "model.safetensors")  # fmt: skip
    config = json.loads((folder / "config.json").read_text()) | changes
    (target / "config.json").write_text(json.dumps(config))
    return target


def as_of_transformers_5(name):
    """Everything but the head is part of one base model."""
    name = name.replace("language_model.model.", "language_model.")
    return f"model.{name}"


@pytest.mark.parametrize("rename", [str, as_of_transformers_5])
def test_logits_of_the_text_model(gemma3, tmp_path, rename):
    folder, model = gemma3
    path = copied(folder, tmp_path / "m", rename)
    beginning = "language_model.model." if rename is str else "model.language_model."
    assert any(name.startswith(beginning) for name in load_file(path / "model.safetensors"))
    with torch.no_grad():
        expected = model(IDS[None]).logits[0]
    assert (logits(path) - expected).abs().max() <= 2e-5 * expected.abs().max()


@pytest.mark.parametrize("name", ["language_model.lm_head.weight", "lm_head.weight"])
def test_a_head_of_its_own(gemma3, tmp_path, name):
    path = copied(gemma3[0], tmp_path / "m", str, tie_word_embeddings=False)
    tensors = load_file(path / "model.safetensors")
    head = torch.randn(301, 64)
    save_file({**tensors, name: head}, path / "model.safetensors")
    checkpoint, plan = planned(path)
    assert torch.equal(checkpoint.tensors.load("lm_head.weight"), head)
    assert plan.head["linear_weight"].sources == (("lm_head.weight", (301, 64)),)


def test_what_is_left_out_is_said(gemma3, tmp_path):
    folder, _ = gemma3
    warnings = read_checkpoint(folder).warnings
    assert len(warnings) == 1
    assert "multi_modal_projector, vision_tower" in warnings[0] and "text model" in warnings[0]
    text = build_text(read_checkpoint(folder))
    assert text.eos_token_ids == (2, 106)
    assert build_text(read_checkpoint(folder, text_only=True)).eos_token_ids == (2, 106)


def test_sizes_that_the_first_release_left_out(tmp_path, gemma3):
    """text_config held what differs from the defaults of transformers' class."""
    folder, _ = gemma3
    path = copied(folder, tmp_path / "m", str, text_config={"num_hidden_layers": 3})
    spec = read_spec(read_checkpoint(path))
    theirs = transformers.Gemma3TextConfig()
    layer = spec.layers[0]
    assert spec.vocab_size == theirs.vocab_size
    assert (layer.hidden_size, layer.intermediate_size) == (2304, theirs.intermediate_size)
    assert (layer.num_heads, layer.num_kv_heads, layer.head_dim) == (8, 4, 256)
    assert spec.max_position_embeddings == theirs.max_position_embeddings
    defaults = read_checkpoint(path).config
    assert all(getattr(theirs, key) == defaults[key] for key in ("hidden_size", "head_dim"))


def test_refusals(gemma3, tmp_path):
    folder, _ = gemma3
    path = copied(folder, tmp_path / "a", str, frobnication_factor=2)
    with pytest.raises(ExportError, match="frobnication_factor=2"):
        read_checkpoint(path)
    path = copied(folder, tmp_path / "b", str, text_config=None)
    with pytest.raises(ExportError, match="'text_config': expected an object"):
        read_checkpoint(path)
    path = copied(folder, tmp_path / "c", lambda name: name.replace("vision_tower", "ears"))
    checkpoint = read_checkpoint(path)
    with pytest.raises(ExportError, match="tensors not supported: ears"):
        plan_weights(read_spec(checkpoint), checkpoint, FORMATS)


# ---- base models ----


@pytest.mark.parametrize(
    ("family", "prefix"),
    [("llama", "model."), ("gpt2", "transformer."), ("gpt_neox", "gpt_neox."),
     ("gemma2", "model.")],
)  # fmt: skip
def test_names_without_the_base_models_prefix(family, prefix, tmp_path):
    """As AutoModel saves them; the head, if there is one, keeps its name."""
    original = family_models.make_checkpoint(family, "plain", tmp_path)
    path = copied(original, tmp_path / "bare", lambda name: name.removeprefix(prefix))
    assert not any(n.startswith(prefix) for n in load_file(path / "model.safetensors"))
    found, expected = (bundle_tensors(each) for each in (path, original))
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], values) for name, values in expected.items())


def planned(path):
    checkpoint = read_checkpoint(path)
    return checkpoint, plan_weights(read_spec(checkpoint), checkpoint, FORMATS)
