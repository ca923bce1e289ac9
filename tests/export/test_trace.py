"""Free dimensions: example sizes that nobody else has, and modules that do not leave them free."""

import itertools

import pytest
import torch
from tiny_models import make_checkpoint
from torch import nn

from pinfer.export import artifact, inductor_sources, parts, trace
from pinfer.export.config import ExportConfig
from pinfer.export.errors import ExportError
from pinfer.export.exporter import export
from pinfer.export.part import FREE_DIMENSIONS, Part, PartInput, example_sizes, fixed_sizes
from pinfer.export.part_check import check_part
from pinfer.runtime.layers import modules
from pinfer.runtime.layers.layer_spec import HeadSpec, LayerSpec
from pinfer.runtime.weight_format import FLOAT32

USUAL = LayerSpec(
    hidden_size=64, intermediate_size=96, num_heads=4, num_kv_heads=4, head_dim=16,
    norm_eps=1e-5, attention_scale=0.25, rotary_dim=16,
)  # fmt: skip
# Sizes of the model that are the usual example sizes: 23 tokens, 29 and 13 blocks, 7 logits, 5
# requests (and 6 = 5 + 1).
COLLIDING = LayerSpec(
    hidden_size=23, intermediate_size=29, num_heads=6, num_kv_heads=2, head_dim=26,
    norm_eps=1e-5, attention_scale=0.25, rotary_dim=26,
)  # fmt: skip
ONE_HEAD = LayerSpec(
    hidden_size=29, intermediate_size=7, num_heads=1, num_kv_heads=1, head_dim=10,
    norm_eps=1e-5, attention_scale=0.25, rotary_dim=10,
)  # fmt: skip


def model_parts(layer, vocab_size):
    head = HeadSpec(hidden_size=layer.hidden_size, vocab_size=vocab_size, norm_eps=1e-5)
    return (
        parts.decoder_layer(
            "decoder_layer", layer, layer.rotary_dim // 2, FLOAT32, torch.float32, 16
        ),
        parts.head(head, FLOAT32),
    )


def test_usual_examples_where_no_size_is_taken():
    layer, head = model_parts(USUAL, 300)
    usual = {name: preferred for name, (_, _, preferred) in FREE_DIMENSIONS.items()}
    assert {**example_sizes(layer), **example_sizes(head)} == usual


@pytest.mark.parametrize("layer", [USUAL, COLLIDING, ONE_HEAD])
@pytest.mark.parametrize("vocab_size", [5, 7, 8, 23, 300])
def test_examples_are_sizes_of_nothing_else(layer, vocab_size):
    for part in model_parts(layer, vocab_size):
        sizes = example_sizes(part)
        used = {n for entry in part.inputs for n in entry.shape if isinstance(n, str)}
        values = [sizes[name] + offset for name, offset in (trace.split_dimension(n) for n in used)]
        assert len(set(values)) == len(values) and min(values) >= 2
        assert not set(values) & fixed_sizes(part)
        for entry, example in zip(part.inputs, trace.example_inputs(part), strict=True):
            assert example.shape == tuple(
                n if isinstance(n, int) else sizes[trace.split_dimension(n)[0]] + n.count("+1")
                for n in entry.shape
            )


def test_sizes_inside_a_layer_are_taken():
    part, _ = model_parts(COLLIDING, 300)
    inner = {6, 2, 26, 29, 58, 6 * 26, 2 * 26, 10 * 26}
    assert inner <= fixed_sizes(part)


@pytest.mark.slow
@pytest.mark.parametrize("layer", [COLLIDING, ONE_HEAD])
def test_colliding_sizes_stay_free(layer):
    for part in model_parts(layer, 7):
        program = trace.trace(part)
        free = {
            str(size)
            for name in program.graph_signature.user_inputs
            for node in program.graph.nodes
            if node.name == name
            for size in node.meta["val"].shape
            if isinstance(size, torch.SymInt)
        }
        used = {n for entry in part.inputs for n in entry.shape if isinstance(n, str)}
        assert len(free) == len(used)


@pytest.mark.slow
@pytest.mark.parametrize("layer", [COLLIDING, ONE_HEAD])
def test_colliding_sizes_compute_the_same(layer, tmp_path):
    for part in model_parts(layer, 7):
        sources = inductor_sources.generate(part, trace.trace(part), "x86-64-v3")
        built = artifact.build(part.name, sources, "x86-64-v3", tmp_path / part.name)
        check_part(part, built, max_model_len=512)


class Fixed(nn.Module):
    def forward(self, x, y):
        return x * 2 if x.shape[0] == 7 else x


class Bounded(nn.Module):
    def forward(self, x, y):
        return x * 2 if x.shape[0] > 3 else x


class Multiple(nn.Module):
    def forward(self, x, y):
        return x.view(-1, 7, 24).sum(1)


class Tied(nn.Module):
    def forward(self, x, y):
        return x[2:] + y


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (Fixed, "num_logits must be free from 1 to 1048576, but the module fixes it at 7"),
        (Bounded, "num_logits must be free from 1 to 1048576, but the module takes only some"),
        (Multiple, "num_logits must be free from 1 to 1048576, but the module"),
        (Tied, "num_logits must be free from 1 to 1048576, but the module ties it to num_seqs"),
    ],
)
def test_a_dimension_that_does_not_stay_free_is_named(module, message):
    inputs = (
        PartInput("x", torch.float32, ("num_logits", 24)),
        PartInput("y", torch.float32, ("num_seqs", 24)),
    )
    part = Part("head", module(), inputs, PartInput("z", torch.float32, ("num_logits", 24)))
    with pytest.raises(ExportError) as caught:
        trace.trace(part)
    assert str(caught.value).startswith(f"head: {message}"), caught.value
    assert "\n" not in str(caught.value) and "TORCH_LOGS" not in str(caught.value)


class FixedLayer(modules.DecoderLayer):
    """Computes something else for just the number of tokens that it is traced with."""

    def forward(self, x, cos, sin, k_cache, v_cache, slots, table, seq_lens, starts):
        y = super().forward(x, cos, sin, k_cache, v_cache, slots, table, seq_lens, starts)
        return y * 2 if x.shape[0] == 23 else y


def test_a_module_that_fixes_a_dimension_leaves_no_bundle(tmp_path, monkeypatch):
    checkpoint = make_checkpoint("tied", tmp_path)
    monkeypatch.setattr(parts, "DecoderLayer", FixedLayer)
    config = ExportConfig(
        model=checkpoint,
        output=tmp_path / "bundle",
        dtype="float32",
        use_cache=False,
        verify=False,
    )
    stages = []
    with pytest.raises(ExportError, match="^decoder_layer: num_tokens must be free .* at 23$"):
        export(config, lambda stage, *_: stages.append(stage))
    assert "weights" not in stages
    assert [path.name for path in tmp_path.iterdir()] == [checkpoint.name]


def test_ranges_hold_the_examples():
    for low, high, preferred in FREE_DIMENSIONS.values():
        assert low <= preferred <= high
    preferred = [entry[2] for entry in FREE_DIMENSIONS.values()]
    assert all(
        a != b and a + 1 != b and a != b + 1 for a, b in itertools.combinations(preferred, 2)
    )
