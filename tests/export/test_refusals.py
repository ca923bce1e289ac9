"""What the exporter refuses: before it compiles anything, naming the file, key or tensor."""

import json
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest
import tiny_models
import torch
from safetensors.torch import load_file, save_file

from pinfer.export.config import ExportConfig
from pinfer.export.errors import ExportError
from pinfer.export.exporter import export
from pinfer.export.safetensors_file import read_header


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return tiny_models.make_checkpoint("tied", tmp_path_factory.mktemp("refusals"))


@pytest.fixture
def model(original, tmp_path):
    """A copy of a good checkpoint, to be damaged."""
    return shutil.copytree(original, tmp_path / "model")


def edit_config(model, **changes):
    path = model / "config.json"
    config = json.loads(path.read_text())
    for key, value in changes.items():
        if value is ...:
            config.pop(key, None)
        else:
            config[key] = value
    path.write_text(json.dumps(config))


def refuse(model, *parts, last_stage="read", **options):
    """The export fails before it goes on to a later stage, every part stands in its message, and
    nothing is left behind."""
    output = model.parent / "bundle"
    stages = []
    with pytest.raises(ExportError) as caught:
        export(
            ExportConfig(model=model, output=output, **options),
            lambda stage, *_: stages.append(stage),
        )
    assert stages[0] == "read" and stages[-1] == last_stage, stages
    for part in parts:
        assert part in str(caught.value), caught.value
    assert sorted(p.name for p in model.parent.iterdir()) == [model.name]


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"architectures": ["GrokForCausalLM"]}, ["GrokForCausalLM", "LlamaForCausalLM"]),
        ({"architectures": ...}, ["architectures"]),
        ({"hidden_act": "mish"}, ["hidden_act", "mish"]),
        ({"frobnication_factor": 2}, ["frobnication_factor=2"]),
        ({"quantization_config": {"bits": 4}}, ["quantization_config"]),
        ({"num_hidden_layers": "two"}, ["num_hidden_layers", "two"]),
        ({"num_hidden_layers": 0}, ["num_hidden_layers"]),
        ({"num_attention_heads": 4, "num_key_value_heads": 3}, ["4", "3", "multiple"]),
        ({"hidden_size": 66, "head_dim": None}, ["66", "4", "head_dim"]),
        ({"head_dim": 15}, ["head_dim 15", "even"]),
        ({"rms_norm_eps": -1}, ["rms_norm_eps"]),
        ({"vocab_size": 400}, ["embed_tokens", "[400, 64]", "[300, 64]"]),
        ({"pretraining_tp": 2}, ["pretraining_tp"]),
        ({"tie_word_embeddings": False}, ["lm_head.weight", "tie_word_embeddings"]),
    ],
)
def test_config(model, changes, parts):
    edit_config(model, **changes)
    refuse(model, *parts)


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"rope_scaling": {"rope_type": "novel"}}, ["novel"]),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, ["dynamic"]),
        ({"rope_scaling": {"rope_type": "yarn"}}, ["yarn", "factor"]),
        ({"rope_scaling": {"type": "linear", "rope_type": "llama3", "factor": 2}}, ["disagree"]),
        ({"rope_scaling": {"type": "linear"}}, ["linear", "factor"]),
        ({"rope_scaling": {"type": "linear", "factor": 0}}, ["factor"]),
        ({"rope_scaling": {"type": "linear", "factor": 2, "extra": 1}}, ["extra"]),
        ({"rope_theta": 5e5, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}},
         ["rope_theta", "500000"]),
        ({"rope_parameters": {"full_attention": {"rope_type": "default"}}}, ["per layer type"]),
        ({"partial_rotary_factor": 0.5}, ["partial_rotary_factor"]),
        ({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}},
         ["partial_rotary_factor"]),
    ],
)  # fmt: skip
def test_rotary_settings(model, changes, parts):
    edit_config(model, rope_parameters=..., rope_theta=..., rope_scaling=...)
    edit_config(model, **changes)
    refuse(model, *parts)


def test_missing_and_unexpected_tensors(model):
    path = model / "model.safetensors"
    tensors = load_file(path)
    name = "model.layers.1.mlp.up_proj.weight"
    kept = tensors.pop(name)
    save_file(tensors, path)
    refuse(model, "missing", name)
    save_file({**tensors, name: kept, "model.layers.0.extra.weight": torch.ones(2)}, path)
    refuse(model, "not supported", "model.layers.0.extra.weight")
    save_file({**tensors, name: kept[:-1].contiguous()}, path)
    refuse(model, name, "[95, 64]", "[96, 64]")
    kept[0, 0] = float("nan")
    save_file({**tensors, name: kept}, path)
    refuse(model, name, "not finite", last_stage="weights")


def split_in_two(model):
    """The checkpoint as two shards with an index."""
    tensors = load_file(model / "model.safetensors")
    names = sorted(tensors)
    shards = {"model-00001-of-00002.safetensors": names[::2],
              "model-00002-of-00002.safetensors": names[1::2]}  # fmt: skip
    for shard, part in shards.items():
        save_file({n: tensors[n] for n in part}, model / shard)
    (model / "model.safetensors").unlink()
    index = {"weight_map": {n: shard for shard, part in shards.items() for n in part}}
    (model / "model.safetensors.index.json").write_text(json.dumps(index))
    return model / "model-00002-of-00002.safetensors"


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"


@pytest.mark.parametrize("damage", ["cut", "empty", "seven", "pointer", "gone", "longer"])
def test_damaged_shards(model, damage):
    shard = split_in_two(model)
    data = shard.read_bytes()
    whole = len(data)
    contents, message = {
        "cut": (data[:-4096], f"expected {whole} bytes, found {whole - 4096}"),
        "empty": (b"", "expected a safetensors file of at least 8 bytes, found 0"),
        "seven": (data[:7], "expected a safetensors file of at least 8 bytes, found 7"),
        "pointer": (
            POINTER,
            f"header says {int.from_bytes(POINTER[:8], 'little')} bytes, the file has"
            f" {len(POINTER)}",
        ),
        "longer": (data + bytes(100), f"expected {whole} bytes, found {whole + 100}"),
        "gone": (None, "file not found"),
    }[damage]
    shard.unlink()
    if contents is not None:
        shard.write_bytes(contents)
        refuse(model, str(shard), message, "incomplete download?")
    else:
        refuse(model, str(shard), message)


def test_damaged_index(model):
    shard = split_in_two(model)
    index = model / "model.safetensors.index.json"
    text = index.read_text()
    index.write_text(text[:-20])
    refuse(model, index.name, "JSON")
    index.write_text(text.replace(shard.name, "model-00003-of-00003.safetensors"))
    refuse(model, "model-00003-of-00003.safetensors", "not found")
    index.write_text(text.replace(shard.name, "../escape.safetensors"))
    refuse(model, "escape.safetensors", "plain file name")
    index.write_text("{}")
    refuse(model, "weight_map")


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]},
        {"dtype": "F33", "shape": [2], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [2], "data_offsets": [8, 16]},
        {"dtype": "F32", "shape": [2], "data_offsets": [0]},
        {"dtype": "F32", "shape": "2", "data_offsets": [0, 8]},
        {"shape": [2], "data_offsets": [0, 8]},
        7,
    ],
)
def test_headers_that_lie(tmp_path, entry):
    header = json.dumps({"t": entry}).encode()
    path = tmp_path / "x.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    with pytest.raises(ExportError, match=r"x\.safetensors"):
        read_header(path)
    path.write_bytes(struct.pack("<Q", 1 << 62) + header)
    with pytest.raises(ExportError, match="header says"):
        read_header(path)


def test_files_that_are_not_there(model, tmp_path):
    (model / "tokenizer.json").unlink()
    refuse(model, "tokenizer.json", "not found")
    (model / "config.json").write_text("{")
    refuse(model, "config.json", "JSON")
    with pytest.raises(ExportError, match="no such model"):
        export(ExportConfig(model=tmp_path / "no", output=tmp_path / "o"), lambda *_: None)
    gguf = tmp_path / "x.gguf"
    gguf.write_bytes(b"GGUF" + bytes(40))
    with pytest.raises(ExportError, match=r"x\.gguf"):
        export(ExportConfig(model=gguf, output=tmp_path / "o"), lambda *_: None)


def test_existing_output(model, tmp_path):
    output = tmp_path / "bundle"
    output.mkdir()
    (output / "precious").write_text("x")
    for force, part in ((False, "exists already"), (True, "only a bundle")):
        with pytest.raises(ExportError, match=part):
            export(ExportConfig(model=model, output=output, force=force), lambda *_: None)
    assert (output / "precious").read_text() == "x"


def test_longer_context_than_the_model(model):
    refuse(model, "--max-model-len 999", "256", max_model_len=999)


def test_exit_codes_and_last_line(model, tmp_path):
    program = Path(sys.executable).parent / "pinfer-export"

    def run(*arguments):
        return subprocess.run([program, *arguments], capture_output=True, text=True)

    for arguments in ([], [model], [model, "-o", "x", "--dtype", "int3"], ["--frobnicate"]):
        result = run(*arguments)
        assert result.returncode == 2, result.stderr
        assert result.stderr.strip().splitlines()[-1].startswith("pinfer-export: error: ")
    edit_config(model, hidden_act="mish")
    result = run(model, "-o", tmp_path / "out")
    assert result.returncode == 1
    assert result.stderr.strip().splitlines()[-1].startswith("pinfer-export: error: ")
    assert run("--version").stdout.startswith("pinfer-export")
