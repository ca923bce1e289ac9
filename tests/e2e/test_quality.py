"""What quantised weights and caches cost: SmolLM2 over 20,000 tokens of English and code.

The checkpoint was quantised to four bits once, so it is measured on a copy moved off that grid.
"""

import argparse
import dataclasses
import shlex
from pathlib import Path

import gguf
import pytest
import registry_models
import torch
from gguf import GGMLQuantizationType
from moved_weights import moved_weights, with_weights

from pinfer.export.evaluation import Evaluation, evaluate, read_windows
from pinfer.export.gguf_file import read_gguf
from pinfer.export.models.registry import read_spec
from pinfer.export.weights import WeightFormats
from pinfer.runtime.weight_format import BFLOAT16, FLOAT32, INT8, WeightFormat

pytestmark = pytest.mark.slow

LICENCES = Path("/usr/share/common-licenses")
TEXTS = [LICENCES / "GPL-3", LICENCES / "Apache-2.0", argparse.__file__, shlex.__file__]
NUM_WINDOWS = 40  # of 512 tokens, of which the first is given: half English, half code
MIN_TOKENS = 20_000
INT4 = WeightFormat("int4", 32)


@pytest.fixture(scope="module")
def checkpoint():
    try:
        read = read_gguf(registry_models.smollm2_gguf())
    except registry_models.RegistryUnavailable as error:
        pytest.skip(f"the model cannot be had here: {error}")
    return with_weights(read, moved_weights(read))


@pytest.fixture(scope="module")
def windows(checkpoint, tmp_path_factory):
    text = tmp_path_factory.mktemp("text") / "text"
    text.write_text("\n".join(Path(path).read_text(encoding="utf-8") for path in TEXTS))
    windows = read_windows("--eval", text, checkpoint, max_model_len=512)
    return dataclasses.replace(windows, ids=windows.ids[:NUM_WINDOWS])


def measure(checkpoint, windows, linear, embedding, cache) -> Evaluation:
    formats = WeightFormats(linear, embedding)
    found = evaluate(
        windows, checkpoint, read_spec(checkpoint), formats, cache, lambda done, total: None
    )
    print(f"{linear} {embedding} {cache}: {found}")
    assert found.tokens >= MIN_TOKENS
    return found


@pytest.mark.parametrize("cache", [torch.bfloat16, torch.int8], ids=str)
def test_int8(checkpoint, windows, cache):
    found = measure(checkpoint, windows, INT8, INT8, cache)
    assert found.perplexity <= 1.01 * found.perplexity_float32
    assert found.mean_kl <= 0.01


def test_int8_cache_alone(checkpoint, windows):
    found = measure(checkpoint, windows, BFLOAT16, BFLOAT16, torch.int8)
    assert found.perplexity <= 1.01 * found.perplexity_float32
    assert found.mean_kl <= 0.01


@pytest.fixture(scope="module")
def int4(checkpoint, windows):
    return measure(checkpoint, windows, INT4, INT8, torch.bfloat16)


@pytest.mark.xfail(
    strict=True, reason="1.34 measured: rounding without calibration, as q4_0's 1.37"
)
def test_int4(int4):
    assert int4.perplexity <= 1.12 * int4.perplexity_float32


def test_int4_beside_q4_0(checkpoint, windows, int4):
    """Groups of 32, as llama.cpp's q4_0 has them; its own rows are rounded to 8 bits as well, which
    is left out here, in its favour."""
    weights = {name: checkpoint.tensors.load(name) for name in checkpoint.tensors.names()}
    for name, weight in weights.items():
        if weight.dim() == 2:
            kind = "Q8_0" if name == "model.embed_tokens.weight" else "Q4_0"
            weights[name] = rounded(weight, GGMLQuantizationType[kind])
    theirs = measure(with_weights(checkpoint, weights), windows, FLOAT32, FLOAT32, torch.float32)
    assert int4.perplexity <= 1.05 * theirs.perplexity


def rounded(weight: torch.Tensor, kind: GGMLQuantizationType) -> torch.Tensor:
    return torch.from_numpy(gguf.dequantize(gguf.quantize(weight.numpy(), kind), kind))
