"""Models in GGUF files: the same logits as the checkpoint they were made of, and refusals."""

import family_models
import gguf
import numpy as np
import pytest
import torch
import transformers
from gguf import GGMLQuantizationType as Kind
from gguf_checkpoints import write_gguf

from pinfer.export.errors import ExportError
from pinfer.export.evaluation import EagerModel
from pinfer.export.exporter import read_checkpoint
from pinfer.export.models.registry import read_spec
from pinfer.export.weights import WeightFormats
from pinfer.runtime.weight_format import FLOAT32

# What GGUF can say: no window but Gemma's and Phi's, no types of layers, no odd scales.
CASES = [
    ("llama", "plain"), ("llama", "llama3_biases_tied"), ("llama", "yarn_odd_heads"),
    ("llama", "linear_gelu"), ("mistral", "no_window"), ("mixtral", "plain"),
    ("mixtral", "odd_tied"), ("qwen2", "plain"), ("qwen2", "yarn_tied"), ("qwen2_moe", "plain"),
    ("qwen2_moe", "mlp_only_no_bias"), ("qwen3", "plain"), ("qwen3", "biases_tied"),
    ("qwen3_moe", "sparse_step"), ("gemma", "plain"), ("gemma", "one_kv_head_bias"),
    ("gemma2", "plain"), ("gemma3", "plain"), ("phi3", "plain"), ("phi3", "partial_window"),
    ("phi3", "longrope"), ("starcoder2", "plain"), ("starcoder2", "untied_gelu"),
    ("gpt2", "plain"), ("gpt_neox", "plain"), ("gpt_neox", "serial"),
    ("gpt_neox", "rotated_whole"), ("olmo2", "plain"), ("olmo2", "yarn_odd"),
    ("granite", "plain"), ("granite", "biases"), ("smollm3", "plain"), ("smollm3", "listed"),
]  # fmt: skip
IDS = torch.randint(3, 250, (200,), generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("gguf-models")


def logits(path):
    checkpoint = read_checkpoint(path)
    spec = read_spec(checkpoint)
    formats = WeightFormats(FLOAT32, FLOAT32)
    model = EagerModel(spec, checkpoint, formats, torch.float32, spec.max_position_embeddings)
    return model.log_probabilities(model.hidden_states(IDS.int()))


def close(found, expected, tolerance=1e-5):
    scale = expected.abs().max()
    assert (found - expected).abs().max() <= tolerance * scale


@pytest.mark.parametrize(("family", "variant"), CASES)
def test_logits(family, variant, folder):
    checkpoint = family_models.make_checkpoint(family, variant, folder)
    path = write_gguf(checkpoint, folder / f"{checkpoint.name}.gguf")
    close(logits(path), logits(checkpoint))
