"""Large tensors are read, packed and written a few panels at a time: the bundle's bytes do not show
it."""

import family_models
import pytest
import torch
from gguf import GGMLQuantizationType as Kind
from gguf_checkpoints import write_gguf
from safetensors.torch import load_file, save_file

from pinfer.export import packed_tensors
from pinfer.export.exporter import read_checkpoint
from pinfer.export.models.registry import read_spec
from pinfer.export.packed_tensors import PackedTensors
from pinfer.export.weights import WeightFormats, plan_weights, write_weights
from pinfer.runtime.weight_format import BFLOAT16, FLOAT32, INT8, WeightFormat

INT4 = WeightFormat("int4", 32)
# Plain; with rows to transpose; with heads that are stored one after another; with experts.
FAMILIES = ("llama", "gpt2", "gpt_neox", "mixtral")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("weight-pieces")


def stored_as(kind, family, folder):
    """The checkpoint of a family in safetensors, pytorch_model.bin or a GGUF file."""
    made = family_models.make_checkpoint(family, "plain", folder)
    if kind == "safetensors":
        return made
    if kind == "torch":
        copy = made.with_name(f"{made.name}-torch")
        copy.mkdir(exist_ok=True)
        for path in made.glob("*.json"):
            (copy / path.name).write_bytes(path.read_bytes())
        torch.save(load_file(made / "model.safetensors"), copy / "pytorch_model.bin")
        return copy
    path = made.with_name(f"{made.name}-{kind}.gguf")
    return path if path.is_file() else write_gguf(made, path, Kind[kind])


def written(path, target, formats):
    checkpoint = read_checkpoint(path)
    plan = plan_weights(read_spec(checkpoint), checkpoint, formats)
    packed = PackedTensors(checkpoint)
    result = write_weights(target, plan, packed, {}, lambda *_: None)
    assert len(result.sha256) == 64 and result.size == target.stat().st_size
    return target.read_bytes(), list(packed.rounded), len(list(packed.pieces(plan.embedding)))


@pytest.mark.parametrize("format", [FLOAT32, BFLOAT16, INT8, INT4], ids=lambda f: f.name)
@pytest.mark.parametrize(
    ("family", "kind"),
    [(family, "safetensors") for family in FAMILIES]
    + [("llama", "torch"), ("llama", "F32"), ("gpt2", "F32"), ("llama", "Q4_1"), ("llama", "Q8_0")],
)
def test_pieces_are_the_whole(family, kind, format, folder, tmp_path, monkeypatch):
    path = stored_as(kind, family, folder)
    formats = WeightFormats(format, format)
    whole, rounded, num_pieces = written(path, tmp_path / "whole", formats)
    assert num_pieces == 1
    monkeypatch.setattr(packed_tensors, "PIECE", 1)
    found, rounded_again, num_pieces = written(path, tmp_path / "pieces", formats)
    assert num_pieces > 15  # panels of the vocabulary
    assert found == whole and rounded_again == rounded


def test_a_tied_head_that_is_stored_too_is_compared_in_pieces(folder, tmp_path, monkeypatch):
    """Only its last row differs."""
    made = family_models.make_checkpoint("gemma", "plain", folder)
    tensors = load_file(made / "model.safetensors")
    for path in made.glob("*.json"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    embedding = tensors["model.embed_tokens.weight"]
    monkeypatch.setattr(packed_tensors, "PIECE", 1)
    for change, is_tied in ((0, True), (1, False)):
        head = embedding.clone()
        head[-1, -1] += change
        save_file({**tensors, "lm_head.weight": head}, tmp_path / "model.safetensors")
        checkpoint = read_checkpoint(tmp_path)
        plan = plan_weights(read_spec(checkpoint), checkpoint, WeightFormats(FLOAT32, FLOAT32))
        assert (plan.head["linear_weight"] is plan.embedding) == is_tied
        assert bool(plan.warnings) == (not is_tied)
