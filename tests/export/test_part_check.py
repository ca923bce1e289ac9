"""Compiled parts against eager, and parts that only libtorch can run."""

import json
import subprocess

import pytest
import tiny_models
import torch
from torch import nn

from pinfer.export import artifact, inductor_sources, trace
from pinfer.export.config import ExportConfig
from pinfer.export.errors import ExportError
from pinfer.export.exporter import export
from pinfer.export.part_check import check_part, sizes_to_run
from pinfer.export.parts import decoder_layer
from pinfer.export.providers import missing_symbols
from pinfer.runtime.layers import modules
from pinfer.runtime.layers.layer_spec import HeadSpec, LayerSpec
from pinfer.runtime.weight_format import FLOAT32

SPEC = LayerSpec(
    hidden_size=48, intermediate_size=40, num_heads=3, num_kv_heads=1, head_dim=16,
    norm_eps=1e-5, attention_scale=0.25, rotary_dim=16,
)  # fmt: skip


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    part = decoder_layer("decoder_layer", SPEC, 8, FLOAT32, torch.float32, 16)
    sources = inductor_sources.generate(part, trace.trace(part), "x86-64-v3")
    return artifact.build(part.name, sources, "x86-64-v3", tmp_path_factory.mktemp("part"))


def test_a_compiled_part_equals_eager(built):
    """The module's own weights are not written: those of a large model would stay in memory."""
    part = decoder_layer("decoder_layer", SPEC, 8, FLOAT32, torch.float32, 16)
    weights = part.constants().values()
    for value in weights:
        value.fill_(7)
    check_part(part, built, max_model_len=512)
    assert all((value == 7).all() for value in weights)


def test_sizes_hold_both_ends():
    for max_model_len in (100, 2048, 100_000):
        sizes = sizes_to_run(max_model_len)
        tokens = [entry.num_tokens for entry in sizes]
        assert min(tokens) == 1 and max(tokens) >= min(2048, max_model_len)
        assert {entry.num_seqs for entry in sizes} >= {1, 2, 5}
        longest = max(entry.context + entry.num_tokens for entry in sizes)
        assert longest >= min(max_model_len, 8192)


class OtherNorm(modules.DecoderLayer):
    """Differs from what was compiled, by little."""

    def forward(self, x, *more):
        return super().forward(x * 1.001, *more)


class WritesAnotherSlot(modules.DecoderLayer):
    """The same output for the first token, another cache."""

    def forward(self, x, cos, sin, k_cache, v_cache, slot_mapping, *more):
        y = super().forward(x, cos, sin, k_cache, v_cache, slot_mapping, *more)
        v_cache[0, 0, 0, 0] += 1
        return y


@pytest.mark.parametrize(("kind", "what"), [(OtherNorm, "in y"), (WritesAnotherSlot, "in v_cache")])
def test_a_difference_fails_the_export(built, kind, what):
    part = decoder_layer("decoder_layer", SPEC, 8, FLOAT32, torch.float32, 16)
    other = trace.Part(part.name, kind(SPEC, FLOAT32).eval(), part.inputs, part.output)
    with pytest.raises(ExportError, match=rf"decoder_layer: compiled code differs .* {what}"):
        check_part(other, built, max_model_len=512)


class SortingHead(modules.Head):
    """Uses an ATen operator for which Inductor generates no loop on the CPU."""

    def forward(self, x):
        logits = super().forward(x)
        return logits + 0.0 * torch.sort(logits, dim=-1).values


@pytest.fixture
def aten_bundle(tmp_path, monkeypatch):
    import pinfer.export.parts as parts

    checkpoint = tiny_models.make_checkpoint("tied", tmp_path)
    monkeypatch.setattr(parts, "Head", SortingHead)
    bundle = tmp_path / "bundle"
    config = ExportConfig(model=checkpoint, output=bundle, dtype="float32", use_cache=False)
    warnings = []
    export(config, lambda stage, *_: warnings.append(stage))
    assert any("head is not checked" in warning for warning in warnings)
    return checkpoint, bundle


@pytest.mark.slow
def test_an_aten_operator_is_served_by_torch_alone(aten_bundle, pinfer, tmp_path):
    checkpoint, bundle = aten_bundle
    manifest = json.loads((bundle / "manifest.json").read_text())
    assert manifest["providers"] == ["torch"]
    command = [pinfer, "run", bundle, "-p", "abc", "-n", "12", "--temperature", "0", "--ids"]
    refused = subprocess.run(command, capture_output=True, text=True)
    assert refused.returncode == 1
    assert "provider native cannot serve this bundle (it can be served by torch)" in refused.stderr
    served = subprocess.run([*command, "--provider", "torch"], capture_output=True, text=True)
    assert served.returncode == 0, served.stderr
    tiny_models.export(checkpoint, tmp_path / "plain", "--dtype", "float32")
    command[2] = tmp_path / "plain"
    assert subprocess.run(command, capture_output=True, text=True).stdout == served.stdout
    native = ExportConfig(
        model=checkpoint, output=tmp_path / "other", dtype="float32", provider="native",
        use_cache=False,
    )  # fmt: skip
    with pytest.raises(ExportError, match="head: provider native lacks aoti_torch_cpu_sort"):
        export(native, lambda *_: None)


def test_what_no_provider_has():
    symbols = ("aoti_torch_proxy_executor_call_function", "aoti_torch_cpu_sort_stable", "Sleef_x")
    assert missing_symbols("torch", symbols) == [symbols[0], symbols[2]]
    assert missing_symbols("native", symbols) == list(symbols)
    assert isinstance(modules.Head(HeadSpec(48, 10, 1e-5), FLOAT32), nn.Module)
