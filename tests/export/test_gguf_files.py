"""GGUF files: quantised types, models in several files, numbers to the last bit, and refusals."""

import gguf
import numpy as np
import pytest
import tiny_models
import torch
from bundle_tensors import bundle_tensors
from gguf import GGMLQuantizationType as Kind
from gguf_checkpoints import write_gguf

from pinfer.export.errors import ExportError
from pinfer.export.exporter import read_checkpoint
from pinfer.export.gguf_architectures import ARCHITECTURES
from pinfer.export.models.registry import FAMILIES, read_spec
from pinfer.export.text import generation_defaults
from pinfer.export.weights import WeightFormats, plan_weights
from pinfer.runtime.weight_format import FLOAT32

FORMATS = WeightFormats(FLOAT32, FLOAT32)
NORM = "model.norm.weight"


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return tiny_models.make_checkpoint("tied", tmp_path_factory.mktemp("gguf-files"))


def settings(architecture, **more):
    """Metadata of a small model, without the namespace."""
    return {
        "block_count": 1, "context_length": 64, "embedding_length": 64, "feed_forward_length": 96,
        "attention.head_count": 4, "attention.layer_norm_rms_epsilon": 1e-5, **more,
    }  # fmt: skip


def bare_gguf(path, architecture="llama", metadata=None, tensors=None, general=None):
    """A file of these settings and tensors (name: values, or (bytes, kind))."""
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in {**settings(architecture), **(metadata or {})}.items():
        if value is not None:
            add(writer, f"{architecture}.{key}", value)
    for key, value in (general or {}).items():
        add(writer, key, value)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(["<unk>", "<s>", "</s>", "▁", "a"])
    writer.add_token_scores([0.0] * 5)
    writer.add_token_types([2, 3, 3, 1, 1])
    writer.add_bos_token_id(1)
    for name, values in (tensors or {}).items():
        data, kind = values if isinstance(values, tuple) else (values, None)
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def add(writer, key, value):
    kinds = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32,
             str: writer.add_string}  # fmt: skip
    kinds.get(type(value), writer.add_array)(key, value)


def test_every_architecture_is_a_family():
    assert {entry.model for entry in ARCHITECTURES.values()} <= FAMILIES.keys()
    known = gguf.MODEL_ARCH_NAMES.values()
    assert set(ARCHITECTURES) <= set(known)


# ---- numbers ----

# Those that the package can write.
WRITTEN = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"]
# Those that it can only read.
READ = ["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ3_S", "IQ2_S",
        "IQ1_S", "IQ1_M", "IQ4_NL", "IQ4_XS", "TQ1_0", "TQ2_0", "MXFP4"]  # fmt: skip


@pytest.mark.parametrize("name", WRITTEN + READ)
def test_types_of_numbers(tmp_path, name):
    """Values are those of the gguf package, in the order of rows here."""
    kind = Kind[name]
    block, size = gguf.GGML_QUANT_SIZES[kind]
    random = np.random.default_rng(3)
    rows, columns = 64, max(block, 64)
    if name in WRITTEN:
        data = gguf.quantize(random.normal(size=(rows, columns)).astype(np.float32), kind)
    else:
        data = random.integers(0, 100, (rows, columns // block * size), dtype=np.uint8)
    file = bare_gguf(tmp_path / "m.gguf", tensors={
        "token_embd.weight": (data, kind), "blk.0.attn_q.weight": (data, kind)})  # fmt: skip
    tensors = read_checkpoint(file).tensors
    expected = torch.from_numpy(gguf.dequantize(data, kind)).float()
    found = tensors.load("model.embed_tokens.weight")
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
    assert tensors.shape("model.embed_tokens.weight") == (rows, columns)
    pairs = expected.view(4, 8, 2, columns).transpose(1, 2).reshape(rows, columns)
    found = tensors.load("model.layers.0.self_attn.q_proj.weight")
    torch.testing.assert_close(found, pairs, rtol=0, atol=0, equal_nan=True)
    assert tensors.is_quantized("model.embed_tokens.weight") == (name[0] not in "FB")


def test_a_type_that_cannot_be_read(tmp_path):
    file = tmp_path / "m.gguf"
    bare_gguf(file, tensors={"token_embd.weight": np.ones((2, 4), np.int32)})
    with pytest.raises(ExportError, match=r"token_embd\.weight: type I32 cannot be read"):
        read_checkpoint(file)


def test_gemmas_norms_keep_every_bit(tmp_path):
    """The file has 1 + w; w as a float32 would lose bits of what is near 0."""
    weights = torch.randn(4096) * torch.logspace(-7, 2, 4096)
    values = (1 + torch.cat([weights[::2], weights[1::2] - 1])).numpy()
    file = bare_gguf(
        tmp_path / "m.gguf", "gemma", {"embedding_length": 4096},
        {"output_norm.weight": values, "token_embd.weight": np.ones((5, 4096), np.float32)},
    )  # fmt: skip
    checkpoint = read_checkpoint(file)
    loaded = checkpoint.tensors.load(NORM)
    assert np.array_equal((loaded + 1).float().numpy(), values)


def test_settings_are_the_decimals_that_were_written(tmp_path):
    config = read_checkpoint(bare_gguf(tmp_path / "m.gguf")).config
    assert config["rms_norm_eps"] == 1e-5 and config["rope_theta"] == 10000.0


def test_sampling_defaults(tmp_path):
    file = bare_gguf(tmp_path / "m.gguf", general={
        "general.sampling.temp": 0.6, "general.sampling.top_k": 20, "general.sampling.top_p": 0.95,
        "general.sampling.min_p": 0.1, "general.sampling.penalty_repeat": 1.1,
        "general.sampling.penalty_last_n": 64})  # fmt: skip
    assert generation_defaults(read_checkpoint(file)) == {
        "temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.1, "repetition_penalty": 1.1,
    }  # fmt: skip


# ---- several files ----


def split(path, folder, count, total=None):
    """The file's tensors dealt out, metadata in the first, as llama-gguf-split has it."""
    reader = gguf.GGUFReader(path)
    total = len(reader.tensors) if total is None else total
    files = []
    for number in range(count):
        files.append(folder / f"big-{number + 1:05}-of-{count:05}.gguf")
        writer = gguf.GGUFWriter(files[-1], "llama")
        if number == 0:
            for field in reader.fields.values():
                if not field.name.startswith(("GGUF.", "general.architecture")):
                    kind, sub = field.types[0], field.types[-1] if len(field.types) > 1 else None
                    writer.add_key_value(field.name, field.contents(), kind, sub_type=sub)
        writer.add_uint16("split.no", number)
        writer.add_uint16("split.count", count)
        writer.add_int32("split.tensors.count", total)
        for tensor in reader.tensors[number::count]:
            writer.add_tensor(tensor.name, np.array(tensor.data))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return files


def test_a_model_in_several_files(llama, tmp_path):
    whole = write_gguf(llama, tmp_path / "whole.gguf")
    first, second, third = split(whole, tmp_path, 3)
    expected, found = bundle_tensors(whole), bundle_tensors(first)
    assert all(torch.equal(found[name], values) for name, values in expected.items())
    assert found.keys() == expected.keys() and read_checkpoint(first).name == "big"
    with pytest.raises(ExportError, match=r"general|file 2 of a model in 3"):
        read_checkpoint(second)
    first.rename(tmp_path / "other.gguf")
    with pytest.raises(ExportError, match=r"expected the first, NAME-00001-of-00003\.gguf"):
        read_checkpoint(tmp_path / "other.gguf")
    (tmp_path / "other.gguf").rename(first)
    third.unlink()
    with pytest.raises(ExportError, match=rf"{third.name}: file not found"):
        read_checkpoint(first)
    first, *_ = split(whole, tmp_path, 3, total=99)
    with pytest.raises(ExportError, match="expected 99 tensors in all files, found 20"):
        read_checkpoint(first)


# ---- refusals ----


@pytest.mark.parametrize(
    ("architecture", "metadata", "message"),
    [
        ("rwkv6", {}, "general.architecture is 'rwkv6'"),
        ("llama", {"block_count": None}, "metadata llama.block_count is missing"),
        ("llama", {"block_count": "one"}, "llama.block_count: an integer >= 1 expected"),
        ("llama", {"block_count": 0}, "llama.block_count: an integer >= 1 expected, found 0"),
        ("llama", {"attention.head_count": [4, 2]}, "head_count: one value for all layers"),
        ("llama", {"attention.head_count": 3}, "64 is not a multiple of the 3 heads"),
        ("llama", {"attention.layer_norm_rms_epsilon": None}, "rms_epsilon is missing"),
        ("llama", {"attention.layer_norm_rms_epsilon": "x"}, "a number expected, found 'x'"),
        ("llama", {"attention.value_length": 8}, "value_length: 16 expected, found 8"),
        ("llama", {"rope.dimension_count": 8}, "dimension_count: the head size 16 expected"),
        ("llama", {"attention.sliding_window": 16}, "llama.attention.sliding_window=16"),
        ("llama", {"attention.scale": 0.5}, "not supported: llama.attention.scale=0.5"),
        ("llama", {"pooling_type": 2}, "not supported: llama.pooling_type=2"),
        ("llama", {"pooling_type": 4}, "not supported: llama.pooling_type=4"),
        ("llama", {"frobnication": "x"}, "not supported: llama.frobnication='x'"),
        ("llama", {"attention.causal": False}, "not supported: llama.attention.causal=False"),
        ("llama", {"logit_scale": 0.1}, "not supported: llama.logit_scale=0.1"),
        ("llama", {"rope.scaling.type": "novel"}, "rope.scaling.type: 'novel' is not supported"),
        ("llama", {"rope.scaling.type": "longrope"}, "rope_factors_short.weight"),
        ("llama", {"rope.scaling.type": "yarn", "rope.scaling.factor": 2.0,
                   "rope.scaling.yarn_log_multiplier": 0.1}, "yarn_log_multiplier=0.1"),
        ("gpt2", {"attention.layer_norm_epsilon": 1e-5, "rope.freq_base": 1e4,
                  "attention.layer_norm_rms_epsilon": None}, "gpt2.rope.freq_base=10000.0"),
        ("olmo2", {"attention.sliding_window": 4096}, "olmo2.attention.sliding_window=4096"),
        ("gemma3", {"attention.sliding_window": 16, "attn_logit_softcapping": 5.0},
         "gemma3.attn_logit_softcapping=5.0"),
    ],
)  # fmt: skip
def test_settings_that_are_refused(tmp_path, architecture, metadata, message):
    with pytest.raises(ExportError, match=rf"m\.gguf: .*{message}".replace("'x'", ".x.")):
        read_checkpoint(bare_gguf(tmp_path / "m.gguf", architecture, metadata))


@pytest.mark.parametrize(
    "metadata",
    [
        {"expert_count": 0, "expert_used_count": 0, "tensor_data_layout": "Meta AI original pth"},
        {"attention.head_count": [4], "attention.causal": True, "pooling_type": 0},
        {"rope.scaling.type": "none", "rope.scaling.factor": 8.0},
        {"rope.scaling.type": "linear", "rope.scaling.factor": 1.0},
        {"rope.scaling.finetuned": True, "rope.scaling.factor": 0.0},
    ],
)
def test_settings_without_an_effect(tmp_path, metadata):
    plain = read_checkpoint(bare_gguf(tmp_path / "plain.gguf"))
    other = read_checkpoint(bare_gguf(tmp_path / "other.gguf", metadata=metadata))
    assert plain.config == other.config


def test_a_factor_without_a_type_is_linear(tmp_path):
    for key in ("rope.scaling.factor", "rope.scale_linear"):
        file = bare_gguf(tmp_path / "m.gguf", metadata={key: 4.0})
        assert read_checkpoint(file).config["rope_scaling"] == {"rope_type": "linear", "factor": 4}


def test_other_kinds_of_files(tmp_path):
    file = bare_gguf(tmp_path / "m.gguf", general={"general.type": "adapter"})
    with pytest.raises(ExportError, match="general.type is 'adapter', expected 'model'"):
        read_checkpoint(file)


def test_tensors_that_nobody_knows(llama, tmp_path):
    checkpoint = read_checkpoint(write_gguf(llama, tmp_path / "m.gguf"))
    names = checkpoint.tensors._tensors
    names["blk.0.attn_sinks.weight"] = names[NORM]
    with pytest.raises(ExportError, match=r"tensors not supported: blk\.0\.attn_sinks\.weight"):
        plan_weights(read_spec(checkpoint), checkpoint, FORMATS)
    del names["blk.0.attn_sinks.weight"], names[NORM]
    with pytest.raises(ExportError, match=rf"missing tensors: {NORM}"):
        plan_weights(read_spec(checkpoint), checkpoint, FORMATS)
