"""What a checkpoint's files mean: head size, tied embeddings, end ids, sampling defaults."""

import gguf
import pytest
import tiny_models
import torch
from moved_weights import TensorsInMemory
from safetensors.torch import load_file, save_file

from pinfer.export.checkpoint import Checkpoint
from pinfer.export.config import ExportConfig
from pinfer.export.errors import ExportError
from pinfer.export.exporter import export
from pinfer.export.gguf_file import read_gguf
from pinfer.export.models.registry import read_spec
from pinfer.export.text import eos_token_ids, generation_defaults, special_tokens
from pinfer.export.weights import WeightFormats, plan_weights
from pinfer.runtime.weight_format import FLOAT32

EMBEDDING, LM_HEAD = "model.embed_tokens.weight", "lm_head.weight"
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "vocab_size": 20,
}
TOKENIZER = {
    "added_tokens": [{"id": 7, "content": "<eos>"}, {"id": 9, "content": "<turn>"}],
    "model": {"vocab": {"<eos>": 3, "<other>": 4}},
}


def checkpoint(config=None, tensors=None, **more):
    changed = {k: v for k, v in {**CONFIG, **(config or {})}.items() if v is not ...}
    return Checkpoint(
        name="m", source="m", config=changed, tensors=TensorsInMemory(tensors or {}),
        dtype="float32", **{"tokenizer": TOKENIZER, **more},
    )  # fmt: skip


# ---- head_dim ----


@pytest.mark.parametrize("value", [None, ..., 16])
def test_head_dim_is_hidden_size_by_heads_where_none_is_given(value):
    spec = read_spec(checkpoint({"head_dim": value}))
    assert spec.layers[0].head_dim == 16 and spec.rotaries[0].inv_freq.shape == (8,)
    assert spec.layers[0] == read_spec(checkpoint({"head_dim": 16})).layers[0]


def test_head_dim_of_its_own():
    spec = read_spec(checkpoint({"head_dim": 32}))
    assert spec.layers[0].head_dim == 32 and spec.layers[0].qkv_features == 6 * 32
    assert spec.rotaries[0].inv_freq.shape == (16,)


# ---- tied embeddings ----


def weights(head=None):
    """Every tensor of a model with these sizes."""
    layer = read_spec(checkpoint()).layers[0]
    hidden, inner = layer.hidden_size, layer.intermediate_size
    q, kv = layer.num_heads * layer.head_dim, layer.num_kv_heads * layer.head_dim
    shapes = {
        "input_layernorm": (hidden,), "post_attention_layernorm": (hidden,),
        "self_attn.q_proj": (q, hidden), "self_attn.k_proj": (kv, hidden),
        "self_attn.v_proj": (kv, hidden), "self_attn.o_proj": (hidden, q),
        "mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }  # fmt: skip
    tensors = {f"model.layers.0.{name}.weight": torch.zeros(s) for name, s in shapes.items()}
    tensors |= {EMBEDDING: torch.arange(20.0 * hidden).view(20, hidden)}
    tensors |= {"model.norm.weight": torch.ones(hidden)}
    return tensors if head is None else {**tensors, LM_HEAD: head}


def planned(tie, head):
    made = checkpoint({"tie_word_embeddings": tie}, weights(head))
    return plan_weights(read_spec(made), made, WeightFormats(FLOAT32, FLOAT32))


COPY = torch.arange(20.0 * 64).view(20, 64)


@pytest.mark.parametrize("head", [None, COPY])
def test_tied_is_stored_once(head):
    plan = planned(True, head)
    assert plan.head["linear_weight"] is plan.embedding and plan.warnings == ()
    assert [entry.name for entry in plan.tensors()].count("embedding.weight") == 1
    assert not any(LM_HEAD in dict(entry.sources) for entry in plan.tensors())


def test_tied_by_name_but_with_another_head():
    different = COPY.clone()
    different[19, 63] += 1
    plan = planned(True, different)
    assert plan.head["linear_weight"].sources == ((LM_HEAD, (20, 64)),)
    assert len(plan.warnings) == 1
    assert "tie_word_embeddings is true" in plan.warnings[0] and LM_HEAD in plan.warnings[0]


@pytest.mark.parametrize("tie", [False, ..., None])
def test_untied_and_the_key_absent(tie):
    """The family's default is untied: a missing head is refused, never made up."""
    for head in (COPY, COPY + 1):
        plan = planned(tie, head)
        assert plan.head["linear_weight"].sources == ((LM_HEAD, (20, 64)),) and plan.warnings == ()
        assert plan.head["linear_weight"] in plan.tensors() and plan.embedding in plan.tensors()
    with pytest.raises(ExportError, match=rf"{LM_HEAD}.* is missing.*tie_word_embeddings"):
        planned(tie, None)


def test_a_warning_reaches_the_user(tmp_path):
    """From the files to the bundle: the head of the checkpoint is in it, and a warning is said."""
    model = tiny_models.make_checkpoint("tied", tmp_path)
    tensors = load_file(model / "model.safetensors")
    assert LM_HEAD not in tensors
    save_file({**tensors, LM_HEAD: tensors[EMBEDDING] + 1}, model / "model.safetensors")
    stages = []
    manifest = export(
        ExportConfig(model=model, output=tmp_path / "bundle", dtype="float32"),
        lambda stage, done, total: stages.append((stage, total)),
    )
    warned = [stage for stage, total in stages if total == 0 and stage.startswith("warning: ")]
    assert len(warned) == 1 and LM_HEAD in warned[0]
    assert manifest["head"]["weights"]["linear_weight"] == "head.weight"


# ---- end ids ----


@pytest.mark.parametrize(
    ("generation", "config", "tokenizer", "expected"),
    [
        ([1, 12], 1, "<eos>", (1, 12, 7)),
        (12, [1, 2], None, (12, 1, 2)),
        (None, 5, None, (5,)),
        (..., 5, "<eos>", (5, 7)),
        ([1, None, 1], None, "<other>", (1, 4)),
        (..., ..., {"content": "<turn>"}, (9,)),
        ([], ..., None, ()),
        (0, ..., "<nowhere>", (0,)),
    ],
)
def test_end_ids_are_a_union(generation, config, tokenizer, expected):
    made = checkpoint(
        {"eos_token_id": config},
        generation_config={} if generation is ... else {"eos_token_id": generation},
        tokenizer_config={} if tokenizer is None else {"eos_token": tokenizer},
    )
    assert eos_token_ids(made, special_tokens(made)) == expected


@pytest.mark.parametrize("bad", ["</s>", -1, True, 1.5, [1, "2"], {"id": 1}])
@pytest.mark.parametrize("where", ["generation_config", "config"])
def test_bad_end_ids_are_refused(where, bad):
    if where == "config":
        made = checkpoint({"eos_token_id": bad})
    else:
        made = checkpoint(generation_config={"eos_token_id": bad})
    with pytest.raises(ExportError, match=f"m: {where}: eos_token_id: expected an id, found"):
        eos_token_ids(made, {})


def write_gguf(path, ids):
    writer = gguf.GGUFWriter(path, "llama")
    tokens = ["<unk>", "<s>", "</s>", "<eot>", "<eom>", "▁", "a"]
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_embedding_length(64)
    writer.add_feed_forward_length(96)
    writer.add_head_count(4)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_token_types([2, 3, 3, 3, 3, 1, 1])
    writer.add_bos_token_id(1)
    for key, value in ids.items():
        writer.add_uint32(f"tokenizer.ggml.{key}_token_id", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ({"eos": 2}, (2,)),
        ({"eos": 2, "eot": 3}, (2, 3)),
        ({"eos": 2, "eot": 3, "eom": 4}, (2, 3, 4)),
        ({"eos": 3, "eot": 3}, (3,)),
        ({"eot": 3}, (3,)),
        ({}, ()),
    ],
)
def test_ends_of_turn_and_message_in_a_gguf(tmp_path, ids, expected):
    write_gguf(tmp_path / "m.gguf", ids)
    made = read_gguf(tmp_path / "m.gguf")
    assert eos_token_ids(made, special_tokens(made)) == expected


# ---- sampling defaults ----


@pytest.mark.parametrize(
    ("generation", "expected"),
    [
        ({}, {}),
        ({"temperature": 0.6, "top_p": 0.9}, {"temperature": 0.6, "top_p": 0.9}),
        ({"top_k": 50, "min_p": 0.1, "repetition_penalty": 1.1},
         {"top_k": 50, "min_p": 0.1, "repetition_penalty": 1.1}),
        ({"temperature": None, "top_p": 1}, {"top_p": 1}),
        ({"do_sample": True, "temperature": 0.7}, {"temperature": 0.7}),
        ({"do_sample": False, "temperature": 0.7, "top_p": 0.9}, {"temperature": 0.0}),
        ({"do_sample": False, "repetition_penalty": 1.2},
         {"temperature": 0.0, "repetition_penalty": 1.2}),
        ({"max_new_tokens": 5, "eos_token_id": 2, "transformers_version": "5"}, {}),
    ],
)  # fmt: skip
def test_sampling_defaults(generation, expected):
    assert generation_defaults(checkpoint(generation_config=generation)) == expected


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("temperature", -0.1), ("temperature", "0.7"), ("temperature", True),
        ("temperature", float("nan")), ("temperature", float("inf")),
        ("top_p", 0), ("top_p", 1.5), ("top_k", -2), ("top_k", 2.5), ("min_p", 1.1),
        ("repetition_penalty", 0),
    ],
)  # fmt: skip
def test_bad_sampling_defaults_are_refused(key, value):
    for more in ({}, {"do_sample": False}):
        with pytest.raises(ExportError, match=f"m: generation_config: {key}: expected a number"):
            generation_defaults(checkpoint(generation_config={key: value, **more}))
