"""Every key of every family's config class, and every key of its rotary settings: used, shown to be
of no effect on the numbers, or refused."""

import copy
import json

import family_models
import pytest
import torch
import transformers
from transformers.modeling_rope_utils import RopeParameters

from pinfer.export.errors import ExportError
from pinfer.export.exporter import read_checkpoint
from pinfer.export.models.registry import FAMILIES, read_spec
from pinfer.export.models.rotary import ROTARY_KEYS
from pinfer.export.models.spec import ConfigReader

every_family = pytest.mark.parametrize("family", family_models.FAMILIES)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("families")


def config_of(family, variant, folder):
    path = family_models.make_checkpoint(family, variant, folder)
    return json.loads((path / "config.json").read_text())


def read(config):
    """(spec, reader) of a config.json."""
    name = config["architectures"][0]
    reader = ConfigReader("config.json", config)
    return FAMILIES[name].read_spec(reader, name), reader


@every_family
def test_every_key_of_the_config_class_is_read(family, folder):
    """Used, ignored by name because it does not matter, or refused; also where it is false."""
    entry = family_models.FAMILIES[family]
    variant = next(iter(entry.variants))
    config = config_of(family, variant, folder)
    reader = read(config)[1]
    keys = set(getattr(transformers, entry.config)().to_dict()) | set(config)
    unread = {
        key
        for key in keys - reader.COMMON_KEYS
        if not reader.was_read(key) and not key.startswith("_") and not key.endswith("_version")
    }
    assert not unread


def changed(value):
    """Other values than this one."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value * 2, value + 1]
    if isinstance(value, float):
        return [value * 1.5]
    if isinstance(value, str):
        return ["other"]
    if isinstance(value, list) and value and isinstance(value[0], str):
        return [["full_attention", "sliding_attention"] * len(value)]
    if isinstance(value, list):  # of layers, or of a switch for each
        return [[1 - value[0], *value[1:]] if value else [0]]
    return [24] if value is None else []


def described(spec):
    rotaries = [
        (r.inv_freq.tolist(), None if r.long_inv_freq is None else r.long_inv_freq.tolist(),
         r.long_from, r.attention_scaling)
        for r in spec.rotaries
    ]  # fmt: skip
    return (spec, rotaries)


# Of no effect on the model by themselves, with the reason.
WITHOUT_EFFECT = {
    ("mistral", "head_dim"): "what is written is what follows from hidden_size",
    (
        "phi3",
        "original_max_position_embeddings",
    ): "of rotary scaling, which the plain variant lacks",
    ("qwen2", "max_window_layers"): "of the window, which is switched off",
    ("qwen2_moe", "use_sliding_window"): "layer_types wins, and lists no window",
    ("qwen3_moe", "use_sliding_window"): "of a window, and there is none",
    ("qwen2", "use_sliding_window"): "of layers from max_window_layers on, and there are none",
    ("qwen3", "use_sliding_window"): "of layers from max_window_layers on, and there are none",
    ("qwen2", "sliding_window"): "of the window, which is switched off",
    ("qwen2_moe", "max_window_layers"): "of the window, which is switched off",
    ("qwen2_moe", "sliding_window"): "of the window, which is switched off",
    ("qwen3", "max_window_layers"): "of the window, which is switched off",
    ("qwen3", "sliding_window"): "of the window, which is switched off",
    ("qwen3_moe", "sliding_window"): "of the window, which is switched off",
    ("qwen3_moe", "intermediate_size"): "of layers without experts, and there are none",
    ("qwen2_moe", "intermediate_size"): "of layers without experts, and there are none",
    ("smollm3", "sliding_window"): "of the window, which is switched off",
    ("smollm3", "use_sliding_window"): "layer_types wins, and lists no window",
    ("smollm3", "layer_types"): "of the window, which is switched off",
    ("smollm3", "no_rope_layer_interval"): "no_rope_layers wins",
    ("gemma3", "_sliding_window_pattern"): "layer_types wins",
}


@every_family
def test_every_key_that_is_read_matters(family, folder):
    """A setting that is read and dropped would be worse than one that is refused."""
    variant = next(iter(family_models.FAMILIES[family].variants))
    config = config_of(family, variant, folder)
    spec, reader = read(config)
    for key, value in config.items():
        used = reader.was_read(key) and not reader.is_ignored(key)
        if not used or (family, key) in WITHOUT_EFFECT:
            continue
        for other in changed(value):
            config_with = copy.deepcopy(config) | {key: other}
            try:
                assert described(read(config_with)[0]) != described(spec), (key, value, other)
            except ExportError as error:
                assert key in str(error) or str(other)[:20] in str(error), (key, error)


@every_family
def test_unknown_keys_are_refused(family, folder):
    variant = next(iter(family_models.FAMILIES[family].variants))
    path = family_models.make_checkpoint(family, variant, folder)
    checkpoint = read_checkpoint(path)
    checkpoint.config["frobnication_factor"] = 2
    with pytest.raises(ExportError, match="frobnication_factor=2"):
        read_spec(checkpoint)


# ---- keys that do not matter ----

# Of the file, or of the form in which transformers answers.
NOT_OF_THE_MODEL = {
    "architectures", "model_type", "dtype", "torch_dtype", "transformers_version", "_name_or_path",
    "return_dict",
}  # fmt: skip


@every_family
@torch.no_grad()
def test_keys_that_are_ignored_change_nothing(family, folder):
    """What is let through unread gives transformers' model the same logits, whatever it is."""
    entry = family_models.FAMILIES[family]
    path = family_models.make_checkpoint(family, next(iter(entry.variants)), folder)
    config = getattr(transformers, entry.config)().to_dict() | json.loads(
        (path / "config.json").read_text()
    )
    reader = read(config)[1]
    reference = family_models.reference(path)
    ids = torch.arange(3, 103)[None]
    expected = reference(ids).logits
    ignored = {key for key in config if key in reader.COMMON_KEYS or reader.is_ignored(key)}
    others = {key: changed(config[key])[:1] for key in ignored - NOT_OF_THE_MODEL}
    others = {key: values[0] for key, values in others.items() if values}
    others |= {"summary_activation": "tanh"} if "summary_activation" in others else {}
    assert len(others) > 8, others
    theirs = getattr(transformers, entry.config)(**config | others)
    model = (
        type(reference)
        ._from_config(theirs, attn_implementation="eager", experts_implementation="eager")
        .eval()
    )
    model.load_state_dict(reference.state_dict())
    difference = (model(ids).logits - expected).abs().max() / expected.abs().max()
    assert difference < 1e-5, others


# ---- rotary settings ----

SETTINGS = {
    "rope_theta": 5e5, "partial_rotary_factor": 0.5, "factor": 3.0, "attention_factor": 1.7,
    "original_max_position_embeddings": 128, "beta_fast": 16, "beta_slow": 3, "mscale": 0.7,
    "mscale_all_dim": 0.6, "truncate": False, "low_freq_factor": 2.0, "high_freq_factor": 3.0,
    "short_factor": [2.0] * 12, "long_factor": [3.0] * 12, "mrope_section": [2, 3, 7],
}  # fmt: skip
# With heads of 24, of which all is rotated.
BASES = {
    "default": {},
    "linear": {"factor": 2.0},
    "llama3": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 64},
    "yarn": {"factor": 2.0, "original_max_position_embeddings": 4096},
    "longrope": {"short_factor": [1.1] * 12, "long_factor": [1.2] * 12,
                 "original_max_position_embeddings": 64},
    "dynamic": {"factor": 2.0},
    "proportional": {},
    "axial": {},
}  # fmt: skip
# transformers needs both to do something with one.
PAIRS = {"mscale": {"mscale_all_dim": 1.0}, "mscale_all_dim": {"mscale": 1.0}}
ROTATED = [family for family in family_models.FAMILIES if family != "gpt2"]


def with_rotary(family, config, settings, spelling, layer_type):
    """The config with rotary settings in that spelling, for one type of layer in families that
    have settings for each."""
    dropped = ("rope_parameters", "rope_scaling", "rope_theta", "partial_rotary_factor")
    config = {key: value for key, value in config.items() if key not in dropped}
    if spelling == "rope_scaling":
        theta = {k: settings[k] for k in settings if k == "rope_theta"}
        return config | theta | {spelling: {k: v for k, v in settings.items() if k not in theta}}
    return config | {spelling: {layer_type: settings} if family == "gemma3" else settings}


@pytest.mark.parametrize("kind", BASES)
@pytest.mark.parametrize("family", ROTATED)
def test_every_rotary_setting_matters_or_is_refused(family, kind, folder):
    assert set(SETTINGS) | {"rope_type"} == set(RopeParameters.__annotations__)
    variant = next(iter(family_models.FAMILIES[family].variants))
    config = config_of(family, variant, folder) | {"head_dim": 24}
    places = [("rope_parameters", "full_attention"), ("rope_scaling", "full_attention")]
    if family == "gemma3":  # its old spelling has no settings for these
        places.append(("rope_parameters", "sliding_attention"))
    rotates_a_part = {"partial_rotary_factor": 1.0} if family == "gpt_neox" else {}
    for spelling, layer_type in places:
        base = {"rope_type": kind, **BASES[kind], **rotates_a_part}
        for key, value in SETTINGS.items():
            plain = base | (PAIRS.get(key, {}) if kind == "yarn" else {})
            without, found = (
                outcome(with_rotary(family, config, settings, spelling, layer_type))
                for settings in (plain, plain | {key: value})
            )
            if isinstance(without, str):  # refused whatever else is set; phi3's yarn is longrope
                assert kind not in ROTARY_KEYS or (family, kind) == ("phi3", "yarn"), without
                assert kind in without or "longrope" in without
            elif isinstance(found, str):
                assert key in found or (key == "partial_rotary_factor" and "_factor" in found)
            elif (family, key) != ("phi3", "original_max_position_embeddings"):  # a key of its own
                assert without != found, (spelling, key)


def outcome(config):
    """What is read, or why it is refused."""
    try:
        return described(read(config)[0])
    except ExportError as error:
        return str(error)


def test_types_of_rotary_scaling_are_transformers():
    theirs = {"default", *transformers.modeling_rope_utils.ROPE_INIT_FUNCTIONS, "axial"}
    assert theirs == set(BASES)
    assert set(ROTARY_KEYS) <= theirs
