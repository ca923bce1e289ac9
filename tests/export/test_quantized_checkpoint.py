"""Checkpoints that are quantised already: their integers and scales become the bundle's."""

import dataclasses
import json
import shutil
from dataclasses import dataclass, field

import gguf
import numpy as np
import pytest
import quantized_checkpoints as made
import tiny_models
import torch
from gguf import GGMLQuantizationType as Kind
from safetensors.torch import load_file, save_file

import pinfer as binding
from pinfer.export.choices import choose_formats
from pinfer.export.config import ExportConfig
from pinfer.export.errors import ExportError
from pinfer.export.evaluation import read_windows
from pinfer.export.exporter import export, read_checkpoint
from pinfer.export.models.registry import read_spec
from pinfer.export.packed_tensors import PackedTensors
from pinfer.export.quantized_checkpoint import QuantizedSource
from pinfer.export.weight_files import open_directory
from pinfer.export.weights import plan_weights, write_weights
from pinfer.runtime.weight_format import INT8, QuantizedWeight, WeightFormat, quantize_int4

# Of the checkpoint that is quantised here: [out, in] of the linear weights of a layer.
SHAPES = {
    **{f"self_attn.{name}_proj": (64, 64) for name in "qkvo"},
    "mlp.gate_proj": (96, 64),
    "mlp.up_proj": (96, 64),
    "mlp.down_proj": (64, 96),
}
FUSED = {
    "qkv_weight": ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
    "output_weight": ["self_attn.o_proj"],
    "up_weight": ["mlp.gate_proj", "mlp.up_proj"],
    "down_weight": ["mlp.down_proj"],
}
LAYERS = [f"model.layers.{i}." for i in range(2)]


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return tiny_models.make_checkpoint("tied", tmp_path_factory.mktemp("quantized"))


def planned(path, quantize, **options):
    """(checkpoint, formats, plan) as an export has them."""
    config = ExportConfig(
        model=path, output=path, quantize=quantize, **{"quantize_embedding": "none", **options}
    )
    checkpoint = read_checkpoint(path)
    spec = read_spec(checkpoint)
    formats = choose_formats(config, "float32", checkpoint)
    return checkpoint, formats, plan_weights(spec, checkpoint, formats)


def written(folder, path, quantize, **options):
    """(tensors of the bundle, names of what was rounded, the layers' format)."""
    checkpoint, formats, plan = planned(path, quantize, **options)
    packed = PackedTensors(checkpoint)
    write_weights(folder / "w.safetensors", plan, packed, {}, lambda *_: None)
    return load_file(folder / "w.safetensors"), tuple(packed.rounded), formats.linear


def flat(tensor):
    return tensor.view(torch.uint8).flatten().numpy()


# ---- whole checkpoints: every byte of the layers' weights ----


@dataclass(frozen=True)
class Case:
    """A checkpoint, and the format in which the bundle keeps it."""

    config: dict
    pack: object  # of a Weight: tensors by suffix
    group_size: int  # of the checkpoint
    kept_in: WeightFormat
    weight: dict = field(default_factory=dict)  # what random_weight is asked for


def int4(group_size):
    return WeightFormat("int4", group_size)


def words4(weight):
    return made.compressed_words(weight, 4, with_zeros=False)


def words4_with_zeros(weight):
    return made.compressed_words(weight, 4, with_zeros=True)


def words8(weight):
    return made.compressed_words(weight, 8, with_zeros=False)


def compressed(stored_as, bits, strategy, group_size=None, **changes):
    return made.compressed_config(stored_as, bits, strategy, group_size, **changes)


BYTES = {"bits": 8, "zeros": False}
CASES = {
    "gptq_32": Case(made.quantization_config("gptq"), made.gptq, 32, int4(32)),
    "gptq_64": Case(made.quantization_config("gptq", group_size=64), made.gptq, 64, int4(64)),
    "gptq_128": Case(made.quantization_config("gptq", group_size=128), made.gptq, 128, int4(128)),
    "gptq_v2": Case(
        made.quantization_config("gptq", checkpoint_format="gptq_v2"),
        lambda weight: made.gptq(weight, version=2), 32, int4(32),
    ),
    "gptq_v1_by_name": Case(
        made.quantization_config("gptq", checkpoint_format="gptq") | {"quant_method": "GPTQ"},
        made.gptq, 32, int4(32), {"zeros": 8},
    ),
    "gptq_no_g_idx": Case(
        made.quantization_config("gptq"),
        lambda weight: made.gptq(weight, with_groups=False), 32, int4(32),
    ),
    "gptq_bfloat16_scales": Case(
        made.quantization_config("gptq"),
        lambda weight: {k: v.bfloat16() if k == "scales" else v
                        for k, v in made.gptq(as_bfloat16(weight)).items()},
        32, int4(32),
    ),
    "awq_32": Case(made.quantization_config("awq"), made.awq, 32, int4(32)),
    "awq_64": Case(
        {"quant_method": "awq", "w_bit": 4, "q_group_size": 64, "version": "GEMM"},
        made.awq, 64, int4(64),
    ),
    "integers_channel": Case(
        compressed("int-quantized", 8, "channel"), made.compressed_integers, -1, INT8, BYTES
    ),
    "integers_group_64": Case(
        compressed("int-quantized", 8, "group", 64), made.compressed_integers, 64, INT8, BYTES
    ),
    "integers_group_32": Case(
        compressed("int-quantized", 8, "group", 32), made.compressed_integers, 32, INT8, BYTES
    ),
    "words4_32": Case(compressed("pack-quantized", 4, "group", 32), words4, 32, int4(32),
                      {"zeros": 8}),
    "words4_128": Case(compressed("pack-quantized", 4, "group", 128), words4, 128, int4(128),
                       {"zeros": 8}),
    "words4_zeros": Case(compressed("pack-quantized", 4, "group", 64), words4_with_zeros, 64,
                         int4(64)),
    "words8_channel": Case(compressed("pack-quantized", 8, "channel"), words8, -1, INT8, BYTES),
    "words8_64": Case(compressed("pack-quantized", 8, "group", 64), words8, 64, INT8, BYTES),
}  # fmt: skip


def as_bfloat16(weight):
    """With scales that bfloat16 has too."""
    scales = torch.from_numpy(weight.scales).bfloat16().half().numpy()
    weight.scales[:] = scales
    return weight


def weights_of(case, group_size=None, order=None):
    """A Weight of every linear layer. `order`: groups are those of the inputs in another one."""
    found = {}
    for seed, prefix in enumerate(LAYERS):
        for name, (out_features, in_features) in SHAPES.items():
            weight = made.random_weight(
                out_features, in_features, group_size or case.group_size, seed=seed, **case.weight
            )
            if order is not None:
                weight.group_of = weight.group_of[order(in_features)]
            found[prefix + name] = weight
    return found


def write_case(name, original, folder):
    """(checkpoint, the weights that it means)."""
    case = CASES[name]
    weights = weights_of(case)
    layers = {layer: case.pack(weight) for layer, weight in weights.items()}
    return made.write_model(original, folder / "model", case.config, layers), weights


def check_kept(tensors, weights, group_size):
    for i, prefix in enumerate(LAYERS):
        for constant, parts in FUSED.items():
            together = made.cat([weights[prefix + part] for part in parts])
            found = flat(tensors[f"layers.{i}.{constant}"])
            if together.zeros is not None:
                found = made.without_negative_zeros(found, group_size)
            assert np.array_equal(found, made.bundle_bytes(together, group_size)), constant


@pytest.mark.parametrize("name", CASES)
def test_bundle_has_the_same_integers_and_scales(original, tmp_path, name):
    """Of fused weights too. Last groups are smaller: 96 inputs in groups of 64 and 128."""
    case = CASES[name]
    model, weights = write_case(name, original, tmp_path)
    tensors, rounded, format = written(tmp_path, model, case.kept_in.name)
    assert format == case.kept_in and rounded == ()
    check_kept(tensors, weights, format.group_size or 32)


@pytest.mark.parametrize("group_size", [32, 64, 128])
@pytest.mark.parametrize("method", ["gptq", "awq"])
def test_scales_of_whole_rows_are_kept_in_any_group(original, tmp_path, method, group_size):
    """group_size -1, and the scale of a row repeated."""
    config = made.quantization_config(method, group_size=-1)
    weights = weights_of(CASES["gptq_32"], group_size=-1)
    pack = {"gptq": made.gptq, "awq": made.awq}[method]
    layers = {layer: pack(weight) for layer, weight in weights.items()}
    model = made.write_model(original, tmp_path / "model", config, layers)
    tensors, rounded, format = written(tmp_path, model, "int4", group_size=group_size)
    assert format.group_size == group_size and rounded == ()
    check_kept(tensors, weights, group_size)


def test_a_smaller_group_repeats_what_a_larger_one_has(original, tmp_path):
    model, weights = write_case("gptq_128", original, tmp_path)
    tensors, rounded, _ = written(tmp_path, model, "int4", group_size=32)
    assert rounded == ()
    check_kept(tensors, weights, 32)


def one_scale(weight):
    """One for the whole tensor."""
    weight.scales[:] = weight.scales[0, 0]
    return {**made.compressed_integers(weight), "weight_scale": stored_once(weight)}


def stored_once(weight):
    return torch.from_numpy(weight.scales[0, :1].copy())


def test_one_scale_for_all(original, tmp_path):
    weights = weights_of(CASES["integers_channel"])
    layers = {layer: one_scale(weight) for layer, weight in weights.items()}
    config = compressed("int-quantized", 8, "tensor")
    model = made.write_model(original, tmp_path / "model", config, layers)
    tensors, rounded, _ = written(tmp_path, model, "int8")
    assert rounded == ()
    check_kept(tensors, weights, 32)


@pytest.mark.parametrize(
    ("name", "quantize", "options"),
    [
        ("gptq_32", "int4", {"group_size": 64}),
        ("gptq_32", "int8", {}),
        ("awq_64", "int4", {"group_size": 128}),
        ("integers_group_32", "int4", {}),
        ("words8_64", "int4", {"group_size": 64}),
    ],
)
def test_what_a_format_cannot_hold_is_rounded_and_listed(
    original, tmp_path, name, quantize, options
):
    case = CASES[name]
    model, weights = write_case(name, original, tmp_path)
    tensors, rounded, format = written(tmp_path, model, quantize, **options)
    kind = "int8" if case.weight.get("bits") == 8 else "int4"
    expected = {
        f"{layer}.weight"
        for layer, weight in weights.items()
        # one scale for a whole row would be one in larger groups too
        if kind != quantize or weight.scales.shape[1] > 1
    }
    assert set(rounded) == expected and len(rounded) == len(expected)
    for layer, constant in (
        ("self_attn.o_proj", "output_weight"),
        ("mlp.down_proj", "down_weight"),
    ):
        if f"{LAYERS[1]}{layer}.weight" not in expected:
            continue
        weight = weights[LAYERS[1] + layer]
        found = format.unpack(tensors[f"layers.1.{constant}"], *weight.numbers.shape)
        error = (found - weight.values()).square().mean().sqrt()
        size = weight.values().square().mean().sqrt()
        assert 0 < error < size * (0.1 if quantize == "int4" else 0.01), layer


@pytest.mark.parametrize(
    ("stored", "wanted"), [(32, 32), (64, 64), (128, 128), (256, 128), (96, 32), (48, 32), (40, 32)]
)
def test_default_group_size_is_the_checkpoints(original, tmp_path, stored, wanted):
    weights = weights_of(CASES["gptq_32"], group_size=stored)
    layers = {layer: made.gptq(weight) for layer, weight in weights.items()}
    config = made.quantization_config("gptq", group_size=stored)
    model = made.write_model(original, tmp_path / "model", config, layers)
    assert planned(model, "int4")[1].linear == int4(wanted)
    assert planned(model, "int4", group_size=64)[1].linear == int4(64)


def test_default_group_size_does_not_depend_on_the_order_of_names(tmp_path):
    """Scales of whole rows, which differ in length: exports of a checkpoint are identical."""
    config = made.quantization_config("gptq", group_size=-1)
    found = set()
    for i in range(24):
        layers = {f"a{i}": (16, 64), f"b{i}": (16, 96)}
        tensors = {
            f"{name}.{suffix}": value
            for name, shape in layers.items()
            for suffix, value in made.gptq(made.random_weight(*shape, -1)).items()
        }
        found.add(source(tmp_path / str(i), config, tensors).group_size())
    assert len(found) == 1, found


def test_in_floats(original, tmp_path):
    """Without --quantize the same checkpoint is one of floats; what is kept is none the less so."""
    model, weights = write_case("words4_32", original, tmp_path)
    checkpoint, formats, plan = planned(model, None)
    assert checkpoint.dtype == "quantized" and "quantization_config" not in checkpoint.config
    assert formats.linear == WeightFormat("float32")
    expected = weights[LAYERS[1] + "mlp.down_proj"].values()
    packed = PackedTensors(checkpoint).tensor(plan.layers[1]["down_weight"])
    assert torch.equal(formats.linear.unpack(packed, 64, 96), expected.float())


# ---- tensors of one layer ----


def source(folder, config, tensors):
    folder.mkdir(exist_ok=True)
    save_file(tensors, folder / "model.safetensors")
    return QuantizedSource(open_directory(folder), str(folder / "config.json"), config)


def one_layer(folder, config, tensors):
    return source(folder, config, {f"m.proj.{suffix}": t for suffix, t in tensors.items()})


def check_layer(found, weight):
    """Exactly the integers, scales and floats; minima to float16's rounding."""
    name = "m.proj.weight"
    stored = found.load_quantized(name)
    assert list(found.names()) == [name]
    assert found.shape(name) == weight.numbers.shape
    assert np.array_equal(stored.numbers.numpy(), weight.numbers)
    assert stored.numbers.dtype == (torch.int8 if weight.zeros is None else torch.uint8)
    assert stored.scales.dtype == torch.float16
    assert np.array_equal(stored.scales.numpy(), weight.scales.astype(np.float16))
    expected = weight.values().float()
    loaded = found.load(name)
    assert loaded.dtype == torch.float32
    assert torch.equal(loaded, expected)
    if weight.zeros is None:
        assert stored.minima is None
        return
    minima = -weight.zeros * weight.scales.astype(np.float64)
    tolerance = 2.0**-11 * np.abs(minima)
    assert (np.abs(stored.minima.numpy() - minima) <= tolerance).all()
    limit = torch.from_numpy(tolerance).float()[:, weight.group_of] + 1e-7
    assert ((loaded - expected).abs() <= limit).all()


@pytest.mark.parametrize("group_size", [32, 128, -1])
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("in_features", [64, 96, 128, 264])
def test_gptq(tmp_path, version, group_size, in_features):
    """Zeros of 0, which the first version stores as 15, too."""
    weight = made.random_weight(24, in_features, group_size)
    assert weight.zeros.min() == 0
    config = made.quantization_config(
        "gptq", group_size=group_size, checkpoint_format="gptq" if version == 1 else "gptq_v2"
    )
    check_layer(one_layer(tmp_path, config, made.gptq(weight, version)), weight)


@pytest.mark.parametrize("group_size", [32, 128, -1])
@pytest.mark.parametrize("in_features", [1, 64, 100, 256])
def test_awq(tmp_path, group_size, in_features):
    weight = made.random_weight(24, in_features, group_size)
    config = made.quantization_config("awq", group_size=group_size)
    check_layer(one_layer(tmp_path, config, made.awq(weight)), weight)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize(
    ("strategy", "group_size"), [("channel", None), ("group", 32), ("group", 128)]
)
@pytest.mark.parametrize("in_features", [64, 100])
def test_compressed_integers(tmp_path, strategy, group_size, dtype, in_features):
    """-128 too, which no symmetric rounding of the exporter gives."""
    weight = as_bfloat16(made.random_weight(17, in_features, group_size or -1, **BYTES))
    assert weight.numbers.min() == -128
    tensors = made.compressed_integers(weight)
    tensors["weight_scale"] = tensors["weight_scale"].to(dtype)
    config = compressed("int-quantized", 8, strategy, group_size)
    check_layer(one_layer(tmp_path, config, tensors), weight)


@pytest.mark.parametrize("shape", [(1,), (1, 1), ()])
def test_compressed_integers_with_one_scale(tmp_path, shape):
    weight = made.random_weight(17, 64, -1, **BYTES)
    tensors = one_scale(weight)
    tensors["weight_scale"] = tensors["weight_scale"].reshape(shape)
    tensors["weight_zero_point"] = torch.zeros(shape, dtype=torch.int8)  # symmetric, and stored
    config = compressed("int-quantized", 8, "tensor")
    check_layer(one_layer(tmp_path, config, tensors), weight)


@pytest.mark.parametrize("zeros", ["none", "symmetric", "asymmetric"])
@pytest.mark.parametrize(
    ("strategy", "group_size"), [("channel", None), ("group", 32), ("group", 128)]
)
@pytest.mark.parametrize("in_features", [64, 96])
@pytest.mark.parametrize("out_features", [16, 21])
def test_compressed_words_of_4_bits(
    tmp_path, zeros, strategy, group_size, in_features, out_features
):
    """21 outputs: the last word of a column of zeros is filled up."""
    weight = made.random_weight(
        out_features, in_features, group_size or -1, zeros=zeros == "asymmetric" or 8
    )
    tensors = made.compressed_words(weight, 4, with_zeros=zeros != "none")
    config = compressed("pack-quantized", 4, strategy, group_size)
    check_layer(one_layer(tmp_path, config, tensors), weight)


@pytest.mark.parametrize("with_zeros", [False, True])
@pytest.mark.parametrize(
    ("strategy", "group_size"), [("channel", None), ("group", 32), ("group", 128)]
)
@pytest.mark.parametrize("out_features", [16, 21])
def test_compressed_words_of_8_bits(tmp_path, strategy, group_size, with_zeros, out_features):
    """Zeros that are stored, though all are 0: what fills their last word up is no zero."""
    weight = made.random_weight(out_features, 100, group_size or -1, **BYTES)
    tensors = made.compressed_words(weight, 8, with_zeros)
    config = compressed("pack-quantized", 8, strategy, group_size)
    check_layer(one_layer(tmp_path, config, tensors), weight)


@pytest.mark.parametrize(("bits", "in_features"), [(4, 100), (8, 99)])
def test_compressed_words_with_a_last_word_that_is_not_full(tmp_path, bits, in_features):
    """weight_shape says how many numbers there are."""
    weight = made.random_weight(16, in_features, 32, bits=bits, zeros=8 if bits == 4 else False)
    tensors = made.compressed_words(weight, bits, with_zeros=False)
    config = compressed("pack-quantized", bits, "group", 32)
    check_layer(one_layer(tmp_path, config, tensors), weight)


# ---- desc_act ----


def shuffled(in_features):
    return np.random.default_rng(in_features).permutation(in_features)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(("in_features", "group_size"), [(64, 32), (96, 64), (128, 32)])
def test_groups_of_inputs_in_another_order(tmp_path, in_features, group_size, version):
    weight = made.random_weight(16, in_features, group_size, zeros=8)
    weight.group_of = weight.group_of[shuffled(in_features)]
    config = made.quantization_config(
        "gptq", group_size=group_size, desc_act=True,
        checkpoint_format="gptq" if version == 1 else "gptq_v2",
    )  # fmt: skip
    found = one_layer(tmp_path, config, made.gptq(weight, version))
    assert found.load_quantized("m.proj.weight") is None
    assert torch.equal(found.load("m.proj.weight"), weight.values().float())


def test_desc_act_with_groups_in_order_is_kept(tmp_path):
    weight = made.random_weight(16, 96, 32)
    config = made.quantization_config("gptq", desc_act=True, static_groups=True)
    check_layer(one_layer(tmp_path, config, made.gptq(weight)), weight)


def test_groups_in_another_order_are_rounded_and_listed(original, tmp_path):
    weights = weights_of(CASES["gptq_32"])
    names = [LAYERS[0] + "self_attn.k_proj", LAYERS[1] + "mlp.down_proj"]
    for name in names:
        weights[name].group_of = weights[name].group_of[shuffled(len(weights[name].group_of))]
    layers = {layer: made.gptq(weight) for layer, weight in weights.items()}
    config = made.quantization_config("gptq", desc_act=True)
    model = made.write_model(original, tmp_path / "model", config, layers)
    tensors, rounded, format = written(tmp_path, model, "int4")
    assert rounded == tuple(f"{name}.weight" for name in names)
    # What is beside it in a fused weight is kept.
    parts = [weights[LAYERS[0] + part] for part in FUSED["qkv_weight"]]
    numbers, scales, minima = quantize_int4(parts[1].values().float(), 32)
    expected = made.int4_bytes(
        np.concatenate([parts[0].numbers, numbers.numpy(), parts[2].numbers]),
        np.concatenate([parts[0].scales, scales.numpy(), parts[2].scales]),
        np.concatenate([parts[0].minima(), minima.numpy(), parts[2].minima()]),
        32,
    )
    # The floats that are rounded again may differ in a last bit: minima are float16.
    stored = format.unpack(tensors["layers.0.qkv_weight"], 192, 64)
    assert (stored[64:128] - parts[1].values()).abs().max() < 0.03
    kept = np.r_[0:64, 128:192]
    found, wanted = (
        format.unpack(t, 192, 64)[kept]
        for t in (
            tensors["layers.0.qkv_weight"],
            torch.from_numpy(expected).view(tensors["layers.0.qkv_weight"].shape),
        )
    )
    assert torch.equal(found, wanted)


# ---- what is refused: settings ----


def without(config, key):
    return {k: v for k, v in config.items() if k != key}


def with_group(stored_as="pack-quantized", inputs=None, **weights):
    """A compressed-tensors config whose weights are described otherwise; ... leaves a key out."""
    config = compressed(stored_as, 4 if stored_as == "pack-quantized" else 8, "channel")
    group = config["config_groups"]["group_0"]
    group["weights"] = {k: v for k, v in {**group["weights"], **weights}.items() if v is not ...}
    group["input_activations"] = inputs
    return config


GPTQ, AWQ = made.quantization_config("gptq"), made.quantization_config("awq")
PACKED = compressed("pack-quantized", 4, "group", 32)
WEIGHTS = "quantization_config.config_groups.group_0.weights."
SETTINGS = {
    "no_method": ({"bits": 4}, ["quantization_config.quant_method", "gptq, awq", "None"]),
    "unknown_method": (
        {"quant_method": "bitsandbytes"},
        ["quantization_config.quant_method", "compressed-tensors", "'bitsandbytes'"],
    ),
    "method_that_is_no_text": ({"quant_method": 7}, ["quantization_config.quant_method", "7"]),
    "gptq_8_bits": ({**GPTQ, "bits": 8}, ["quantization_config.bits", "expected 4", "found 8"]),
    "gptq_3_bits": ({**GPTQ, "bits": 3}, ["quantization_config.bits", "expected 4", "found 3"]),
    "gptq_bits_as_text": ({**GPTQ, "bits": "4"}, ["quantization_config.bits", "found '4'"]),
    "gptq_no_bits": (without(GPTQ, "bits"), ["quantization_config.bits", "found None"]),
    "gptq_marlin": (
        {**GPTQ, "checkpoint_format": "marlin"},
        ["quantization_config.checkpoint_format", "gptq or gptq_v2", "'marlin'"],
    ),
    "gptq_no_group_size": (
        without(GPTQ, "group_size"), ["quantization_config.group_size", "found None"],
    ),
    "gptq_group_size_0": (
        {**GPTQ, "group_size": 0}, ["quantization_config.group_size", "-1", "found 0"],
    ),
    "gptq_group_size_-2": (
        {**GPTQ, "group_size": -2}, ["quantization_config.group_size", "-1", "found -2"],
    ),
    "gptq_group_size_as_text": (
        {**GPTQ, "group_size": "32"}, ["quantization_config.group_size", "found '32'"],
    ),
    "gptq_group_size_true": (
        {**GPTQ, "group_size": True}, ["quantization_config.group_size", "found True"],
    ),
    "gptq_group_size_1.5": (
        {**GPTQ, "group_size": 32.5}, ["quantization_config.group_size", "found 32.5"],
    ),
    "awq_gemv": (
        {**AWQ, "version": "gemv"}, ["quantization_config.version", "expected gemm", "'gemv'"],
    ),
    "awq_8_bits": ({**AWQ, "bits": 8}, ["quantization_config.bits", "expected 4", "found 8"]),
    "awq_w_bit": (
        {**without(AWQ, "bits"), "w_bit": 3}, ["quantization_config.w_bit", "expected 4", "3"],
    ),
    "awq_q_group_size": (
        {**without(AWQ, "group_size"), "q_group_size": 0},
        ["quantization_config.q_group_size", "found 0"],
    ),
    "float_quantized": (
        {**PACKED, "format": "float-quantized"},
        ["quantization_config.format", "int-quantized or pack-quantized", "'float-quantized'"],
    ),
    "no_format": (without(PACKED, "format"), ["quantization_config.format", "found None"]),
    "kv_cache_scheme": (
        {**PACKED, "kv_cache_scheme": {"num_bits": 8, "type": "int"}},
        ["quantization_config.kv_cache_scheme.type", "expected float", "'int'"],
    ),
    "sparsity": (
        {**PACKED, "sparsity_config": {"format": "sparse-24-bitmask"}},
        ["quantization_config.sparsity_config", "nothing", "sparse-24-bitmask"],
    ),
    "transform": (
        {**PACKED, "transform_config": {"config_groups": {"u": {}}}},
        ["quantization_config.transform_config", "nothing", "config_groups"],
    ),
    "no_groups": (
        without(PACKED, "config_groups"), ["quantization_config.config_groups", "found None"],
    ),
    "groups_empty": ({**PACKED, "config_groups": {}}, ["quantization_config.config_groups", "{}"]),
    "groups_as_list": ({**PACKED, "config_groups": [1]}, ["quantization_config.config_groups"]),
    "group_that_is_none": (
        {**PACKED, "config_groups": {"group_0": None}}, [WEIGHTS + "type", "found None"],
    ),
    "weights_that_are_none": (
        {**PACKED, "config_groups": {"group_0": {"weights": None}}},
        [WEIGHTS + "type", "expected int", "found None"],
    ),
    "two_kinds": (
        {**PACKED, "config_groups": {
            "group_0": PACKED["config_groups"]["group_0"],
            "group_1": compressed("pack-quantized", 8, "channel")["config_groups"]["group_0"],
        }},
        ["quantization_config.config_groups", "one num_bits", "4", "8", "32"],
    ),
    "floats": (with_group(type="float"), [WEIGHTS + "type", "expected int", "'float'"]),
    "5_bits": (with_group(num_bits=5), [WEIGHTS + "num_bits", "4 or 8", "found 5"]),
    "int_quantized_4_bits": (
        with_group("int-quantized", num_bits=4), [WEIGHTS + "num_bits", "expected 8", "found 4"],
    ),
    "block": (
        with_group(strategy="block"), [WEIGHTS + "strategy", "channel or group or tensor", "block"],
    ),
    "no_strategy": (with_group(strategy=...), [WEIGHTS + "strategy", "found None"]),
    "group_without_size": (
        with_group(strategy="group"), [WEIGHTS + "group_size", "found None"],
    ),
    "group_of_-1": (
        with_group(strategy="group", group_size=-1), [WEIGHTS + "group_size", "found -1"],
    ),
    "static_activations": (
        with_group("int-quantized", inputs={"num_bits": 8, "dynamic": False}),
        ["config_groups.group_0.input_activations.dynamic", "expected True", "found False"],
    ),
    "activations_by_default_static": (
        with_group("int-quantized", inputs={"num_bits": 8}),
        ["config_groups.group_0.input_activations.dynamic", "found None"],
    ),
    "locally_dynamic_activations": (
        with_group("int-quantized", inputs={"num_bits": 8, "dynamic": "local"}),
        ["config_groups.group_0.input_activations.dynamic", "'local'"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SETTINGS)
def test_settings(tmp_path, name):
    config, parts = SETTINGS[name]
    with pytest.raises(ExportError) as caught:
        source(tmp_path, config, {"a": torch.ones(2)})
    for part in [str(tmp_path / "config.json"), *parts]:
        assert part in str(caught.value), caught.value


@pytest.mark.parametrize(
    "config",
    [
        with_group("int-quantized", inputs={"num_bits": 8, "dynamic": True}),
        {**PACKED, "sparsity_config": {"format": "dense", "global_sparsity": 0.1}},
        {**PACKED, "sparsity_config": {}, "transform_config": {}, "kv_cache_scheme": None},
        {**PACKED, "kv_cache_scheme": {"num_bits": 8, "type": "float", "strategy": "tensor"}},
        {**AWQ, "version": "GEMM", "zero_point": True, "modules_to_not_convert": None},
        without(AWQ, "version"),
    ],
)
def test_settings_that_are_taken(tmp_path, config):
    assert list(source(tmp_path, config, {"a": torch.ones(2)}).names()) == ["a"]


def refused(model, output, *parts, last_stage="read", **options):
    """An export that fails before a later stage and leaves nothing."""
    stages = []
    with pytest.raises(ExportError) as caught:
        export(
            ExportConfig(model=model, output=output, **options),
            lambda stage, *_: stages.append(stage),
        )
    assert stages[-1] == last_stage, stages
    for part in parts:
        assert part in str(caught.value), caught.value
    assert not output.exists()


@pytest.mark.parametrize(
    ("config", "part"),
    [
        ("gptq", "expected an object"),
        ([], "expected an object"),
        ({**GPTQ, "bits": 2}, "quantization_config.bits"),
        ({}, "quantization_config.quant_method"),
    ],
)
def test_exports_of_bad_settings(original, tmp_path, config, part):
    model = made.write_model(original, tmp_path / "model", config, {})
    refused(model, tmp_path / "bundle", str(model / "config.json"), part, quantize="int4")


def test_text_of_a_quantised_checkpoint_needs_no_weights(original, tmp_path):
    model = made.write_model(original, tmp_path / "model", {"quant_method": "novel"}, {})
    (model / "model.safetensors").unlink()
    assert read_checkpoint(model, text_only=True).tokenizer is not None


# ---- what is refused: tensors ----


def change(**changes):
    """Of a layer's tensors: ... takes one away, a function makes another of it."""

    def damaged(tensors):
        tensors = dict(tensors)
        for suffix, value in changes.items():
            if value is ...:
                del tensors[suffix]
            else:
                tensors[suffix] = value(tensors.get(suffix)) if callable(value) else value
        return {suffix: tensor.contiguous() for suffix, tensor in tensors.items()}

    return damaged


def filled(value):
    def fill(tensor):
        tensor = tensor.clone()
        tensor.view(-1)[-1] = value
        return tensor

    return fill


GROUPED = compressed("int-quantized", 8, "group", 32)
ROWS = compressed("int-quantized", 8, "channel")
PACKED8 = compressed("pack-quantized", 8, "group", 32)
# A good layer of 16 outputs and 64 inputs in groups of 32.
LAYER = {
    "gptq": (GPTQ, lambda: made.gptq(made.random_weight(16, 64, 32))),
    "gptq_row": (
        made.quantization_config("gptq", group_size=-1),
        lambda: made.gptq(made.random_weight(16, 64, -1)),
    ),
    "awq": (AWQ, lambda: made.awq(made.random_weight(16, 64, 32))),
    "integers": (
        GROUPED, lambda: made.compressed_integers(made.random_weight(16, 64, 32, **BYTES)),
    ),
    "integers_row": (
        ROWS, lambda: made.compressed_integers(made.random_weight(16, 64, -1, **BYTES)),
    ),
    "words4": (PACKED, lambda: words4_with_zeros(made.random_weight(16, 64, 32))),
    "words8": (
        PACKED8, lambda: made.compressed_words(made.random_weight(16, 64, 32, **BYTES), 8, True),
    ),
}  # fmt: skip
TENSORS = {
    # what is missing
    "gptq_no_scales": ("gptq", change(scales=...), ["scales"]),
    "gptq_no_qzeros": ("gptq", change(qzeros=...), ["qzeros", "missing"]),
    "awq_no_scales": ("awq", change(scales=...), ["scales"]),
    "awq_no_qzeros": ("awq", change(qzeros=...), ["qzeros", "missing"]),
    "integers_no_scale": ("integers_row", change(weight_scale=...), ["weight"]),
    "integers_no_scale_but_zeros": (
        "integers", change(weight_scale=..., weight_zero_point=torch.zeros(16, 2)),
        ["weight_scale", "missing"],
    ),
    "words4_no_scale": ("words4", change(weight_scale=...), ["weight_scale", "missing"]),
    "words8_no_scale": ("words8", change(weight_scale=...), ["weight_scale", "missing"]),
    # other shapes
    "gptq_scales_of_one_group": (
        "gptq", change(scales=lambda t: t[:1]), ["scales", "[2, 16]", "[1, 16]"],
    ),
    "gptq_scales_of_fewer_outputs": (
        "gptq", change(scales=lambda t: t[:, :8]), ["scales", "[2, 16]", "[2, 8]"],
    ),
    "gptq_scales_turned": ("gptq", change(scales=lambda t: t.T), ["scales", "[2, 16]", "[16, 2]"]),
    "gptq_flat_scales": ("gptq", change(scales=lambda t: t.flatten()), ["scales", "[32]"]),
    "gptq_qzeros_of_one_group": (
        "gptq", change(qzeros=lambda t: t[:1]), ["qzeros", "[2, 16]", "[1, 16]"],
    ),
    "gptq_qzeros_of_fewer_outputs": (
        "gptq", change(qzeros=lambda t: t[:, :1]), ["qzeros", "[2, 16]", "[2, 8]"],
    ),
    "gptq_flat_qzeros": ("gptq", change(qzeros=lambda t: t.flatten()), ["qzeros", "[4]"]),
    "gptq_flat_qweight": ("gptq", change(qweight=lambda t: t.flatten()), ["qweight", "[128]"]),
    "gptq_qweight_of_three": (
        "gptq", change(qweight=lambda t: t[None]), ["qweight", "[1, 8, 16]"],
    ),
    "awq_flat_qweight": ("awq", change(qweight=lambda t: t.flatten()), ["qweight", "[128]"]),
    "awq_qzeros_of_fewer_outputs": (
        "awq", change(qzeros=lambda t: t[:, :1]), ["qzeros", "[2, 16]", "[2, 8]"],
    ),
    "awq_scales_of_more_groups": (
        "awq", change(scales=lambda t: t.repeat(2, 1)), ["scales", "[2, 16]", "[4, 16]"],
    ),
    "integers_flat_scale": (
        "integers_row", change(weight_scale=lambda t: t.flatten()),
        ["weight_scale", "two dimensions", "[16]"],
    ),
    "integers_more_groups": (
        "integers_row", change(weight_scale=lambda t: t.repeat(1, 2)),
        ["weight_scale", "[16, 1]", "[16, 2]"],
    ),
    "integers_one_scale_for_groups": (
        "integers", change(weight_scale=lambda t: t[:1, :1]), ["weight_scale", "[16, 2]", "[1, 1]"],
    ),
    "integers_of_three": ("integers", change(weight=lambda t: t[None]), ["weight", "[1, 16, 64]"]),
    "words4_one_scale_for_groups": (
        "words4", change(weight_scale=lambda t: t[:1, :1]), ["weight_scale", "[16, 2]", "[1, 1]"],
    ),
    "words4_fewer_groups": (
        "words4", change(weight_scale=lambda t: t[:, :1]), ["weight_scale", "[16, 2]", "[16, 1]"],
    ),
    "words4_zeros_of_fewer_outputs": (
        "words4", change(weight_zero_point=lambda t: t[:1]),
        ["weight_zero_point", "[16, 2]", "[8, 2]"],
    ),
    "words4_zeros_of_fewer_groups": (
        "words4", change(weight_zero_point=lambda t: t[:, :1]),
        ["weight_zero_point", "[16, 2]", "[16, 1]"],
    ),
    "words4_flat": ("words4", change(weight_packed=lambda t: t.flatten()), ["weight_packed"]),
    # other dtypes
    "gptq_long_qweight": (
        "gptq", change(qweight=lambda t: t.long()), ["qweight", "int32", "int64"],
    ),
    "gptq_long_qzeros": ("gptq", change(qzeros=lambda t: t.long()), ["qzeros", "int32", "int64"]),
    "gptq_float_qweight": (
        "gptq", change(qweight=lambda t: t.half()), ["qweight", "int32", "float16"],
    ),
    "gptq_integer_scales": ("gptq", change(scales=lambda t: t.int() + 1), ["scales", "int32"]),
    "awq_short_qweight": (
        "awq", change(qweight=lambda t: t.short()), ["qweight", "int32", "int16"],
    ),
    "awq_long_qzeros": ("awq", change(qzeros=lambda t: t.long()), ["qzeros", "int32", "int64"]),
    "integers_that_are_floats": (
        "integers", change(weight=lambda t: t.half()), ["weight", "int8", "float16"],
    ),
    "integers_that_are_bytes": (
        "integers", change(weight=lambda t: t.view(torch.uint8)), ["weight", "int8", "uint8"],
    ),
    "integers_integer_scale": (
        "integers", change(weight_scale=lambda t: t.int() + 1), ["weight_scale", "int32"],
    ),
    "words4_long": (
        "words4", change(weight_packed=lambda t: t.long()), ["weight_packed", "int32", "int64"],
    ),
    "words4_zeros_in_bytes": (
        "words4", change(weight_zero_point=torch.zeros(16, 2, dtype=torch.int8)),
        ["weight_zero_point", "int32", "int8"],
    ),
    # values
    "gptq_g_idx_too_short": ("gptq", change(g_idx=lambda t: t[:-1]), ["g_idx", "32"]),
    "gptq_g_idx_too_long": ("gptq", change(g_idx=lambda t: t.repeat(2)), ["g_idx", "32"]),
    "gptq_g_idx_beyond": ("gptq", change(g_idx=filled(2)), ["g_idx", "32"]),
    "gptq_g_idx_below": ("gptq", change(g_idx=filled(-1)), ["g_idx", "32"]),
    "gptq_g_idx_uneven": ("gptq", change(g_idx=filled(0)), ["g_idx", "32"]),
    "gptq_g_idx_of_rows": ("gptq_row", change(g_idx=filled(1)), ["g_idx"]),
    "gptq_scale_inf": ("gptq", change(scales=filled(torch.inf)), []),
    "gptq_scale_nan": ("gptq", change(scales=filled(torch.nan)), []),
    "gptq_minimum_beyond_float16": (
        "gptq", change(scales=filled(65504.0), qzeros=lambda t: torch.full_like(t, 0x77777777)), [],
    ),
    "integers_scale_beyond_float16": (
        "integers", change(weight_scale=lambda t: filled(1e6)(t.float())), ["float16"],
    ),
    "integers_zero_point": (
        "integers", change(weight_zero_point=filled(1)(torch.zeros(16, 2, dtype=torch.int8))),
        ["weight_zero_point", "symmetric"],
    ),
    "words8_zero_point": (
        "words8", change(weight_zero_point=filled(0)), ["weight_zero_point", "symmetric"],
    ),
    "words4_g_idx": (
        "words4", change(weight_g_idx=torch.zeros(64, dtype=torch.int32)), ["weight_g_idx"],
    ),
    "words4_another_weight_shape": (
        "words4", change(weight_shape=torch.tensor([16, 72])), ["[16, 72]", "[16, 64]"],
    ),
}  # fmt: skip


def load(found, name):
    return found.load(name)


def load_as_it_is_kept(found, name):
    """As the exporter does it: floats only where there are no integers."""
    return found.load_quantized(name) or found.load(name)


# Refused where integers are kept; as floats they are what they say.
FLOATS_CAN_HOLD = {
    "gptq_scale_inf",
    "gptq_scale_nan",
    "gptq_minimum_beyond_float16",
    "integers_scale_beyond_float16",
}


@pytest.mark.parametrize("name", TENSORS)
@pytest.mark.filterwarnings("ignore:The use of `x.T`")
def test_tensors(tmp_path, name):
    kind, damage, parts = TENSORS[name]
    config, make = LAYER[kind]
    one_layer(tmp_path, config, make()).load("m.proj.weight")  # which is good before
    for read in (load_as_it_is_kept,) if name in FLOATS_CAN_HOLD else (load, load_as_it_is_kept):
        with pytest.raises(ExportError) as caught:
            read(one_layer(tmp_path, config, damage(make())), "m.proj.weight")
        for part in [str(tmp_path), "m.proj", *parts]:
            assert part in str(caught.value), caught.value


@pytest.mark.parametrize(
    ("kind", "suffix"), [("gptq", "qweight"), ("awq", "qweight"), ("words4", "weight_packed")]
)
def test_a_layer_without_numbers(original, tmp_path, kind, suffix):
    config, make = LAYER[kind]
    weights = weights_of(CASES["gptq_32"])
    pack = {"gptq": made.gptq, "awq": made.awq, "words4": words4_with_zeros}[kind]
    layers = {layer: pack(weight) for layer, weight in weights.items()}
    del layers[LAYERS[1] + "mlp.up_proj"][suffix]
    model = made.write_model(original, tmp_path / "model", config, layers)
    refused(model, tmp_path / "bundle", LAYERS[1] + "mlp.up_proj.weight", str(model),
            quantize="int4")  # fmt: skip


def with_biases(original, folder, value):
    """A GPTQ checkpoint with a bias of `value` in every quantised layer, which its config lacks."""
    config, _ = LAYER["gptq"]
    layers = {
        layer: {**made.gptq(weight), "bias": torch.full((len(weight.numbers),), value)}
        for layer, weight in weights_of(CASES["gptq_32"]).items()
    }
    return made.write_model(original, folder, config, layers)


def test_biases_of_zeros_add_nothing(original, tmp_path):
    """Quantisers write them for layers that have none."""
    _, _, plan = planned(with_biases(original, tmp_path / "zeros", 0.0), "int4")
    sources = [name for tensor in plan.tensors() for name, _ in tensor.sources]
    assert sources and not any(name.endswith(".bias") for name in sources)
    with pytest.raises(ExportError, match=r"not supported: model\.layers\.\d.*\.bias"):
        planned(with_biases(original, tmp_path / "others", 0.5), "int4")


def test_a_layer_of_another_shape(original, tmp_path):
    weights = weights_of(CASES["gptq_32"])
    name = LAYERS[1] + "mlp.up_proj"
    weights[name] = made.random_weight(88, 64, 32)
    layers = {layer: made.gptq(weight) for layer, weight in weights.items()}
    model = made.write_model(original, tmp_path / "model", GPTQ, layers)
    refused(model, tmp_path / "bundle", f"{name}.weight", "[96, 64]", "[88, 64]", quantize="int4")


# ---- GGUF ----

GGUF_PARTS = {
    "qkv_weight": ["attn_q", "attn_k", "attn_v"],
    "output_weight": ["attn_output"],
    "up_weight": ["ffn_gate", "ffn_up"],
    "down_weight": ["ffn_down"],
}
GGUF_NAMES = {
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}  # fmt: skip
KEPT = {Kind.Q8_0: "int8", Kind.Q4_0: "int4", Kind.Q4_1: "int4"}
kept_kinds = pytest.mark.parametrize("kind", KEPT, ids=lambda kind: kind.name)


def gguf_tensors(kind, **others):
    """(bytes, kind) of every linear weight, as the gguf package rounds them."""
    random = np.random.default_rng(3)
    found = {}
    for name, shape in made.gguf_layer_shapes().items():
        values = random.normal(scale=0.1, size=shape).astype(np.float32)
        this = others.get(name.split(".")[2], kind)
        found[name] = (q6_k_bytes(random, shape) if this == Kind.Q6_K else
                       gguf.quantize(values, this), this)  # fmt: skip
    return found


def q6_k_bytes(random, shape):
    """Any bytes but for the last two of a block, its scale: the package cannot write these."""
    blocks = random.integers(0, 256, (shape[0], shape[1] // 256, 210), np.uint8)
    blocks[..., -2:] = np.array([1e-4], np.float16).view(np.uint8)
    return blocks.reshape(shape[0], -1)


def ours(name):
    return f"model.layers.0.{GGUF_NAMES[name.split('.')[2]]}.weight"


def rows_in_order(name, rows):
    """Of q and k, as Hugging Face has them."""
    if name.split(".")[2] not in ("attn_q", "attn_k"):
        return rows
    return rows[[made.gguf_row(i, made.GGUF_SIZES["head"]) for i in range(len(rows))]]


@kept_kinds
def test_gguf_numbers_are_those_of_the_gguf_package(tmp_path, kind):
    tensors = gguf_tensors(kind)
    made.write_gguf(tmp_path / "m.gguf", tensors)
    checkpoint = read_checkpoint(tmp_path / "m.gguf")
    assert checkpoint.tensors.group_size() == 32 and checkpoint.dtype == "quantized"
    for name, (data, _) in tensors.items():
        expected = torch.from_numpy(rows_in_order(name, gguf.dequantize(data, kind)))
        stored = checkpoint.tensors.load_quantized(ours(name))
        assert torch.equal(stored.dequantize(), expected), name
        assert torch.equal(checkpoint.tensors.load(ours(name)), expected), name


@kept_kinds
def test_gguf_bundle_has_the_same_integers_and_scales(tmp_path, kind):
    tensors = gguf_tensors(kind)
    made.write_gguf(tmp_path / "m.gguf", tensors)
    bundle, rounded, format = written(tmp_path, tmp_path / "m.gguf", KEPT[kind])
    assert rounded == ()
    for constant, parts in GGUF_PARTS.items():
        names = [f"blk.0.{part}.weight" for part in parts]
        read = [
            [None if v is None else rows_in_order(name, v)
             for v in made.read_gguf_blocks(kind, tensors[name][0])]
            for name in names
        ]  # fmt: skip
        numbers, scales = (np.concatenate([part[i] for part in read]) for i in range(2))
        found = bundle[f"layers.0.{constant}"]
        if kind == Kind.Q8_0:
            expected = made.int8_bytes(numbers, scales)
        else:
            minima = np.concatenate([part[2] for part in read])
            expected = made.int4_bytes(numbers, scales, minima, 32)
        assert np.array_equal(flat(found), expected), constant
        floats = [rows_in_order(n, gguf.dequantize(tensors[n][0], kind)) for n in names]
        together = torch.from_numpy(np.concatenate(floats))
        assert torch.equal(format.unpack(found, *together.shape), together), constant


@kept_kinds
def test_gguf_unusual_numbers_and_scales(tmp_path, kind):
    """-128, negative scales, the smallest and the largest, and a zero below 0: as they are."""
    name = "blk.0.attn_q.weight"
    tensors = gguf_tensors(kind)
    random = np.random.default_rng(5)
    low, high = (-128, 127) if kind == Kind.Q8_0 else (0, 15)
    numbers = random.integers(low, high + 1, (64, 64))
    numbers[:, 0], numbers[:, 32] = low, high
    largest = 8188.0 if kind == Kind.Q4_0 else 65504.0
    scales = np.array(
        [2.0**-24, -(2.0**-24), 2.0**-15, -(2.0**-14), 0.0, -0.0, largest, -largest, 0.3, -0.3]
    ).astype(np.float16)
    scales = np.resize(scales, (64, 2))
    minima = np.resize(scales[::-1].flatten()[::3], (64, 2))
    weight = made.Weight(numbers, scales, minima, None)
    data = made.gguf_blocks(kind, weight)
    tensors[name] = (data, kind)
    made.write_gguf(tmp_path / "m.gguf", tensors)
    checkpoint, formats, plan = planned(tmp_path / "m.gguf", KEPT[kind])
    expected = torch.from_numpy(rows_in_order(name, gguf.dequantize(data, kind)))
    assert expected.isfinite().all() and (expected != 0).any()
    assert torch.equal(checkpoint.tensors.load_quantized(ours(name)).dequantize(), expected)
    packed = PackedTensors(checkpoint).tensor(plan.layers[0]["qkv_weight"])
    assert torch.equal(formats.linear.unpack(packed, 128, 64)[:64], expected)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize(
    ("kind", "place"),
    [(Kind.Q8_0, 0), (Kind.Q4_0, 0), (Kind.Q4_1, 0), (Kind.Q4_1, 1)],
    ids=["Q8_0", "Q4_0", "Q4_1", "Q4_1_minimum"],
)
@pytest.mark.parametrize("quantize", ["int8", "int4", None])
@pytest.mark.filterwarnings("ignore:invalid value encountered")
def test_gguf_values_that_are_not_finite(tmp_path, kind, place, value, quantize):
    """Kept, rounded again or in floats: refused by name."""
    name = "blk.0.ffn_up.weight"
    tensors = gguf_tensors(kind)
    data = tensors[name][0].copy()
    data[200, 2 * place : 2 * place + 2] = np.array([value], np.float16).view(np.uint8)
    tensors[name] = (data, kind)
    path = tmp_path / "m.gguf"
    made.write_gguf(path, tensors)
    checkpoint, _, plan = planned(path, quantize)
    with pytest.raises(ExportError) as caught:
        PackedTensors(checkpoint).tensor(plan.layers[0]["up_weight"])
    assert str(path) in str(caught.value) and ours(name) in str(caught.value), caught.value


def test_gguf_minimum_beyond_float16(tmp_path):
    """8 scales of Q4_0 are its minimum."""
    name = "blk.0.ffn_up.weight"
    tensors = gguf_tensors(Kind.Q4_0)
    data = tensors[name][0].copy()
    data[7, :2] = np.array([9000.0], np.float16).view(np.uint8)
    tensors[name] = (data, Kind.Q4_0)
    made.write_gguf(tmp_path / "m.gguf", tensors)
    checkpoint, _, plan = planned(tmp_path / "m.gguf", "int4")
    with pytest.raises(ExportError, match=rf"m\.gguf: tensor {ours(name)}: .*float16"):
        PackedTensors(checkpoint).tensor(plan.layers[0]["up_weight"])


@pytest.mark.parametrize(
    ("kind", "quantize", "options", "others", "rounded"),
    [
        (Kind.Q4_0, "int4", {}, {"ffn_down": Kind.Q6_K}, ["ffn_down"]),
        (Kind.Q8_0, "int8", {}, {"ffn_down": Kind.Q6_K}, ["ffn_down"]),
        (Kind.Q4_1, "int4", {}, {"attn_k": Kind.Q5_0, "ffn_down": Kind.Q6_K},
         ["attn_k", "ffn_down"]),
        (Kind.Q4_0, "int4", {}, {"attn_v": Kind.Q4_1}, []),
        (Kind.Q4_0, "int4", {}, {"attn_v": Kind.Q8_0}, ["attn_v"]),
        (Kind.Q8_0, "int8", {}, {"ffn_up": Kind.Q4_0}, ["ffn_up"]),
        (Kind.Q4_0, "int4", {"group_size": 64}, {}, list(GGUF_NAMES)),
        (Kind.Q4_0, "int8", {}, {}, list(GGUF_NAMES)),
        (Kind.Q8_0, "int4", {}, {}, list(GGUF_NAMES)),
    ],
)  # fmt: skip
def test_gguf_what_is_rounded_is_listed(tmp_path, kind, quantize, options, others, rounded):
    tensors = gguf_tensors(kind, **others)
    made.write_gguf(tmp_path / "m.gguf", tensors)
    bundle, found, format = written(tmp_path, tmp_path / "m.gguf", quantize, **options)
    assert found == tuple(ours(f"blk.0.{name}.weight") for name in rounded)
    for constant, parts in GGUF_PARTS.items():
        names = [f"blk.0.{part}.weight" for part in parts]
        floats = [rows_in_order(n, gguf.dequantize(*tensors[n])) for n in names]
        sizes = [len(part) for part in floats]
        unpacked = format.unpack(bundle[f"layers.0.{constant}"], sum(sizes), floats[0].shape[1])
        for part, values, stored in zip(parts, floats, unpacked.split(sizes), strict=True):
            expected = torch.from_numpy(values)
            if part in rounded:
                expected = format.unpack(format.pack(expected), *expected.shape)
            assert torch.equal(stored, expected), part


@pytest.mark.parametrize(
    ("kind", "kept"), [(Kind.Q8_0, True), (Kind.Q4_0, False), (Kind.F16, False)]
)
def test_gguf_embedding(tmp_path, kind, kept):
    """That of a tied model, in int8."""
    values = np.random.default_rng(1).normal(size=(7, 64)).astype(np.float32)
    data = gguf.quantize(values, kind)
    tensors = {**gguf_tensors(Kind.Q4_0), "token_embd.weight": (data, kind)}
    made.write_gguf(tmp_path / "m.gguf", tensors)
    bundle, rounded, _ = written(tmp_path, tmp_path / "m.gguf", "int4", quantize_embedding="int8")
    assert "model.embed_tokens.weight" not in rounded if kept else len(rounded) <= 1
    if kept:
        numbers, scales, _ = made.read_gguf_blocks(kind, data)
        assert np.array_equal(flat(bundle["embedding.weight"]), made.int8_bytes(numbers, scales))


# ---- QuantizedWeight ----


def quantized(in_features, group_size, has_minima=True, rows=5):
    groups = -(-in_features // group_size)
    numbers = torch.arange(rows * in_features).view(rows, in_features) % (16 if has_minima else 256)
    return QuantizedWeight(
        numbers.to(torch.uint8) if has_minima else (numbers - 128).to(torch.int8),
        torch.arange(1, rows * groups + 1).view(rows, groups).half(),
        -torch.arange(rows * groups).view(rows, groups).half() if has_minima else None,
        group_size,
    )


def by_hand(weight):
    """Number by number."""
    rows, columns = weight.numbers.shape
    found = torch.zeros(rows, columns)
    for i in range(rows):
        for j in range(columns):
            group = j // weight.group_size
            minimum = 0.0 if weight.minima is None else weight.minima[i, group].item()
            found[i, j] = weight.numbers[i, j].item() * weight.scales[i, group].item() + minimum
    return found


@pytest.mark.parametrize("has_minima", [True, False])
@pytest.mark.parametrize(("in_features", "group_size"), [(64, 32), (100, 32), (100, 48), (7, 128)])
def test_dequantize(in_features, group_size, has_minima):
    weight = quantized(in_features, group_size, has_minima)
    assert torch.equal(weight.dequantize(), by_hand(weight))


@pytest.mark.parametrize(
    ("in_features", "stored", "wanted"),
    [
        (256, 128, 32), (256, 128, 64), (256, 128, 128), (200, 128, 32), (200, 128, 128),
        (96, 64, 32), (192, 96, 32), (256, 64, 64),
        # a scale for each row, whatever its length
        (100, 100, 32), (100, 100, 128), (48, 48, 32), (33, 33, 32), (100, 128, 64),
        (100, 1000, 4096),
    ],
)  # fmt: skip
def test_in_format_repeats_scales(in_features, stored, wanted):
    weight = quantized(in_features, stored)
    found = weight.in_format(int4(wanted))
    groups = -(-in_features // wanted)
    assert found.group_size == wanted
    assert found.scales.shape == found.minima.shape == (5, groups)
    assert torch.equal(found.numbers, weight.numbers)
    assert torch.equal(found.dequantize(), by_hand(weight))
    packed = found.pack()
    assert tuple(packed.shape) == int4(wanted).packed_shape(5, in_features)
    assert torch.equal(int4(wanted).unpack(packed, 5, in_features), by_hand(weight))


@pytest.mark.parametrize(
    ("in_features", "stored"), [(256, 128), (100, 32), (100, 100), (48, 48), (70, 64)]
)
def test_in_format_of_int8(in_features, stored):
    weight = quantized(in_features, stored, has_minima=False)
    found = weight.in_format(INT8)
    assert found.minima is None and found.scales.shape == (5, -(-in_features // 32))
    assert torch.equal(INT8.unpack(found.pack(), 5, in_features), by_hand(weight))


@pytest.mark.parametrize(
    ("in_features", "stored", "wanted"),
    [
        (96, 48, 32), (96, 32, 64), (256, 64, 128), (256, 96, 64), (256, 16, 32), (100, 40, 32),
        (128, 33, 32), (96, 8, 32),
    ],
)  # fmt: skip
def test_in_format_of_groups_that_do_not_fit(in_features, stored, wanted):
    assert quantized(in_features, stored).in_format(int4(wanted)) is None


def test_in_format_of_other_numbers():
    assert quantized(96, 32).in_format(INT8) is None
    assert quantized(96, 32, has_minima=False).in_format(int4(32)) is None
    assert quantized(96, 48, has_minima=False).in_format(INT8) is None
    for name in ("float32", "bfloat16"):
        assert quantized(96, 32).in_format(WeightFormat(name)) is None
        assert quantized(96, 32, has_minima=False).in_format(WeightFormat(name)) is None


@pytest.mark.parametrize("has_minima", [True, False])
def test_cat(has_minima):
    parts = [quantized(100, 32, has_minima, rows) for rows in (5, 1, 16)]
    together = QuantizedWeight.cat(parts)
    assert (together.minima is None) == (not has_minima)
    assert torch.equal(together.dequantize(), torch.cat([by_hand(part) for part in parts]))
    assert torch.equal(QuantizedWeight.cat(parts[:1]).dequantize(), by_hand(parts[0]))


def test_pack_of_the_smallest_int8():
    """-128 keeps its sign."""
    weight = QuantizedWeight(
        torch.full((17, 40), -128, dtype=torch.int8), torch.full((17, 2), 0.5).half(), None, 32
    )
    assert torch.equal(INT8.unpack(weight.pack(), 17, 40), torch.full((17, 40), -64.0))
    expected = made.int8_bytes(np.full((17, 40), -128), np.full((17, 2), 0.5, np.float16))
    assert np.array_equal(flat(weight.pack()), expected)


# ---- a text to evaluate on ----


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (None, "cannot be read"),
        (..., "cannot be read"),  # a directory
        (b"\xff\xfe abc", "cannot be read"),
        (b"", "expected at least 2 tokens, found 0"),
        (b"a", "expected at least 2 tokens, found 1"),
    ],
    ids=["absent", "directory", "not_utf8", "empty", "one_token"],
)
def test_bad_text_is_refused_before_anything_is_compiled(original, tmp_path, text, part):
    path = tmp_path / "text.txt"
    if text is ...:
        path.mkdir()
    elif text is not None:
        path.write_bytes(text)
    refused(original, tmp_path / "bundle", f"--eval {path}", part, last_stage="text", evaluate=path)


def test_text_for_a_damaged_tokenizer(original, tmp_path):
    """Refused as it is without a text."""
    model = shutil.copytree(original, tmp_path / "model")
    tokenizer = json.loads((model / "tokenizer.json").read_text())
    tokenizer["model"]["type"] = "Novel"
    (model / "tokenizer.json").write_text(json.dumps(tokenizer))
    text = tmp_path / "text.txt"
    text.write_text("abc")
    with pytest.raises(ExportError, match="Novel"):
        export(ExportConfig(model=model, output=tmp_path / "a"), lambda *_: None)
    with pytest.raises(ExportError):
        export(ExportConfig(model=model, output=tmp_path / "b", evaluate=text), lambda *_: None)


@pytest.mark.parametrize(
    ("tokens", "longest", "sizes"),
    [
        (2, 256, [2]),
        (512, 2048, [512]),
        (513, 2048, [512]),  # nothing is left to predict in the last window
        (514, 2048, [512, 2]),
        (600, 256, [256, 256, 88]),
        (5, 2, [2, 2]),
    ],
)
def test_windows(original, tmp_path, tokens, longest, sizes):
    path = tmp_path / "text.txt"
    path.write_text(("abcdefg" * tokens)[:tokens])
    windows = read_windows("--eval", path, read_checkpoint(original), longest)
    assert windows.text == "text.txt" and [len(ids) for ids in windows.ids] == sizes
    assert all(ids.dtype == torch.int32 for ids in windows.ids)


def test_windows_without_a_tokenizer(original, tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("abc")
    checkpoint = dataclasses.replace(read_checkpoint(original), tokenizer=None)
    with pytest.raises(ExportError, match="--eval needs a tokenizer"):
        read_windows("--eval", path, checkpoint, 256)


# ---- a whole export ----


def export_case(original, folder, config, weights, **options):
    """(bundle, warnings)."""
    layers = {layer: made.gptq(weight) for layer, weight in weights.items()}
    folder.mkdir()
    model = made.write_model(original, folder / "model", config, layers)
    stages = []
    export(
        ExportConfig(
            model=model, output=folder / "bundle", quantize="int4", dtype="float32", **options
        ),
        lambda stage, *_: stages.append(stage),
    )  # fmt: skip
    return folder / "bundle", [stage for stage in stages if stage.startswith("warning")]


@pytest.fixture(scope="module")
def exported(original, tmp_path_factory):
    """(bundle, warnings, the weights): groups of 64."""
    folder = tmp_path_factory.mktemp("export")
    weights = weights_of(CASES["gptq_64"])
    bundle, warnings = export_case(original, folder / "kept", CASES["gptq_64"].config, weights)
    return bundle, warnings, weights


def test_exported_bundle_computes_the_checkpoints_weights(original, exported):
    bundle, _, weights = exported
    manifest = json.loads((bundle / "manifest.json").read_text())
    assert manifest["model"]["weight_format"] == {"name": "int4", "group_size": 64}
    check_kept(load_file(bundle / "weights.safetensors"), weights, 64)
    model = tiny_models.reference(original)
    state = {f"{layer}.weight": weight.values().float() for layer, weight in weights.items()}
    assert not model.load_state_dict(state, strict=False).unexpected_keys
    prompt = np.random.default_rng(2).integers(3, 259, 120).tolist()
    with torch.no_grad():
        logits = model(torch.tensor([prompt])).logits[0].double()
    logits[:, 259:] = -torch.inf
    expected = logits.log_softmax(1)[:-1].gather(1, torch.tensor(prompt[1:])[:, None]).flatten()
    with binding.Engine(bundle, threads=2, num_blocks=100) as engine:
        output = engine.generate(prompt, max_tokens=1, temperature=0.0, prompt_logprobs=1)
    found = torch.tensor([entry.logprob for entry in output.prompt_logprobs]).double()
    # What is left is the rounding of rows, and of the embedding, to int8.
    assert torch.corrcoef(torch.stack([expected, found]))[0, 1] > 0.995
    assert expected.std() > 1


def test_no_warning_where_all_integers_are_kept(exported):
    """The embedding is one of floats: it is rounded once, not again."""
    _, warnings, _ = exported
    assert not [warning for warning in warnings if "rounded again" in warning], warnings


def test_warning_where_integers_are_not_kept(original, tmp_path):
    weights = weights_of(CASES["gptq_32"], order=shuffled)
    config = made.quantization_config("gptq", desc_act=True)
    _, warnings = export_case(original, tmp_path / "m", config, weights, group_size=64)
    first = LAYERS[0] + "self_attn.q_proj.weight"
    (warning,) = warnings
    assert warning.startswith(
        f"warning: rounded again, as it is stored in another way: {first} and "
    )
