"""What a directory says about how it embeds: taken, or refused by name."""

import json

import embedding_models
import pytest

from pinfer.export.checkpoint import Checkpoint, NoTensors
from pinfer.export.errors import ExportError
from pinfer.export.models.registry import FAMILIES, read_spec
from pinfer.export.sentence_transformers import (
    Pooling,
    is_embedding_model,
    longest_input,
    read_pooling,
)

SWITCHES_OFF = {
    "word_embedding_dimension": 64,
    "pooling_mode_cls_token": False,
    "pooling_mode_mean_tokens": False,
    "pooling_mode_max_tokens": False,
    "pooling_mode_mean_sqrt_len_tokens": False,
    "pooling_mode_weightedmean_tokens": False,
    "pooling_mode_lasttoken": False,
    "include_prompt": True,
}


def pooling_of(folder, pooling, *kinds, **prompts):
    embedding_models.write_files(folder, pooling, *kinds, **prompts)
    return read_pooling(folder, 64)


def test_modes_normalisation_and_prompts(tmp_path):
    assert not is_embedding_model(tmp_path)
    assert read_pooling(tmp_path, 64) == Pooling("last", True, {}, None)
    last = {**SWITCHES_OFF, "pooling_mode_lasttoken": True}
    assert pooling_of(tmp_path, last, "Pooling", "Normalize") == Pooling("last", True)
    assert is_embedding_model(tmp_path)
    mean = {**SWITCHES_OFF, "pooling_mode_mean_tokens": True}
    assert pooling_of(tmp_path, mean, "Pooling") == Pooling("mean", False)
    assert pooling_of(tmp_path, {}, "Pooling") == Pooling("mean", False)  # as it is by default
    named = {"embedding_dimension": 64, "pooling_mode": "lasttoken"}
    prompts = {"prompts": {"query": "Q: "}, "default_prompt_name": "query"}
    found = pooling_of(tmp_path, named, "Pooling", "Normalize", **prompts)
    assert found == Pooling("last", True, {"query": "Q: "}, "query")


@pytest.mark.parametrize(
    ("pooling", "kinds", "prompts", "message"),
    [
        ({"pooling_mode": "cls"}, ("Pooling",), {}, "pooling mode cls is not supported"),
        ({"pooling_mode_lasttoken": True}, ("Pooling",), {}, "mean [+] lasttoken"),
        (SWITCHES_OFF, ("Pooling",), {}, "pooling mode none"),
        ({"word_embedding_dimension": 32}, ("Pooling",), {}, "hidden_size 64"),
        ({"include_prompt": False}, ("Pooling",), {}, "include_prompt is False"),
        ({"novel": 3}, ("Pooling",), {}, "novel=3"),
        ({}, ("Pooling", "Dense"), {}, "module Dense of folder '2_Dense'"),
        ({}, ("Normalize", "Pooling"), {}, "module Normalize"),
        ({}, (), {}, "no Pooling"),
        ({}, ("Pooling",), {"prompts": {"a": 3}}, "an object of texts"),
        ({}, ("Pooling",), {"default_prompt_name": "a"}, "'a' is the name of no prompt"),
    ],
)
def test_refusals_name_the_file_and_the_setting(tmp_path, pooling, kinds, prompts, message):
    with pytest.raises(ExportError, match=message) as refused:
        pooling_of(tmp_path, pooling, *kinds, **prompts)
    assert str(tmp_path) in str(refused.value)


def test_modules_outside_the_directory_are_refused(tmp_path):
    for path in ("../other", "/etc"):
        modules = [{"type": "a.Transformer", "path": ""}, {"type": "a.Pooling", "path": path}]
        (tmp_path / "modules.json").write_text(json.dumps(modules))
        with pytest.raises(ExportError, match="expected a folder of the directory"):
            read_pooling(tmp_path, 64)
    for text in ("{", "3", "[3]", '[{"type": 1, "path": ""}]'):
        (tmp_path / "modules.json").write_text(text)
        with pytest.raises(ExportError, match=r"modules\.json"):
            read_pooling(tmp_path, 64)


def test_the_longest_input(tmp_path):
    assert longest_input(tmp_path, {}) is None
    assert longest_input(tmp_path, {"model_max_length": 77}) == 77
    assert longest_input(tmp_path, {"model_max_length": 1e30}) is None
    path = tmp_path / "sentence_bert_config.json"
    path.write_text(json.dumps({"max_seq_length": 50, "do_lower_case": False}))
    assert longest_input(tmp_path, {"model_max_length": 77}) == 50
    for settings, message in (
        ({"do_lower_case": True}, "do_lower_case is True"),
        ({"max_seq_length": 0}, "max_seq_length"),
        ({"model_args": {"a": 1}}, "model_args"),
    ):
        path.write_text(json.dumps(settings))
        with pytest.raises(ExportError, match=message):
            longest_input(tmp_path, {})


def checkpoint(**config):
    return Checkpoint("x", "x", config, NoTensors(), "float32", None)


def test_encoders_and_two_way_attention_are_refused():
    with pytest.raises(ExportError, match="BertModel"):
        read_spec(checkpoint(architectures=["BertModel"]), embeds=True)
    with pytest.raises(ExportError, match=r"Qwen3Model.*--task embed"):
        read_spec(checkpoint(architectures=["Qwen3Model"]))
    with pytest.raises(ExportError, match="is_causal"):
        read_spec(checkpoint(architectures=["Qwen2Model"], is_causal=False), embeds=True)


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_every_family_has_a_model_without_a_head(family):
    """Known by its name, so that what is missing is the config's keys."""
    base = {"GPT2LMHeadModel": "GPT2Model", "Gemma3ForCausalLM": "Gemma3TextModel"}
    name = base.get(family, family.replace("ForCausalLM", "Model"))
    with pytest.raises(ExportError, match=r"hidden_size|num_|max_|n_|moe_"):
        read_spec(checkpoint(architectures=[name]), embeds=True)
