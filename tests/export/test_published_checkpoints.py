"""Checkpoints as they are published: the config.json of known repositories, with small sizes, over
random weights in the files, names and with the extra tensors that those repositories have. Every
one gives transformers' logits."""

import json

import family_models
import pytest
import tiny_models
import torch
import transformers
from safetensors.torch import load_file, save_file

from pinfer.export.errors import ExportError
from pinfer.export.evaluation import EagerModel
from pinfer.export.exporter import read_checkpoint
from pinfer.export.models.registry import read_spec
from pinfer.export.models.spec import ConfigReader
from pinfer.export.weights import WeightFormats, plan_weights
from pinfer.runtime.weight_format import FLOAT32

IDS = torch.randint(3, 259, (200,), generator=torch.Generator().manual_seed(1))
TOLERANCE = 2e-5  # of the logits' scale
FORMATS = WeightFormats(FLOAT32, FLOAT32)
SIZES = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4,
         "num_hidden_layers": 2, "num_key_value_heads": 2, "vocab_size": 300}  # fmt: skip
COMMON = {**SIZES, "attention_dropout": 0.0, "hidden_act": "silu", "initializer_range": 0.02,
          "max_position_embeddings": 256, "rms_norm_eps": 1e-06, "torch_dtype": "bfloat16",
          "transformers_version": "4.42.3", "use_cache": True, "bos_token_id": 1,
          "eos_token_id": 2}  # fmt: skip
LLAMA3 = {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
          "original_max_position_embeddings": 64, "rope_type": "llama3"}  # fmt: skip
LONGROPE = {"long_factor": [1.0 + i / 3 for i in range(8)],
            "short_factor": [1.0 + i / 50 for i in range(8)]}  # fmt: skip
QWEN_WINDOW = {"max_window_layers": 1, "sliding_window": 32, "use_sliding_window": False}
QWEN_EXPERTS = {"decoder_sparse_step": 1, "mlp_only_layers": [], "moe_intermediate_size": 40,
                "norm_topk_prob": True, "num_experts": 6, "num_experts_per_tok": 2,
                "output_router_logits": False, "router_aux_loss_coef": 0.001}  # fmt: skip
GEMMA = {"attention_bias": False, "head_dim": 32, "pad_token_id": 0}
# As gpt2-medium has them; SIZES are absent.
GPT2 = {"activation_function": "gelu_new", "attn_pdrop": 0.1, "bos_token_id": 1, "embd_pdrop": 0.1,
        "eos_token_id": 2, "initializer_range": 0.02, "layer_norm_epsilon": 1e-05, "n_ctx": 256,
        "n_embd": 64, "n_head": 4, "n_layer": 2, "n_positions": 256, "n_special": 0,
        "predict_special_tokens": True, "resid_pdrop": 0.1, "summary_activation": None,
        "summary_first_dropout": 0.1, "summary_proj_to_labels": True, "summary_type": "cls_index",
        "summary_use_proj": True, "task_specific_params": {"text-generation": {
            "do_sample": True, "max_length": 50}}, "vocab_size": 300}  # fmt: skip
# architecture, model_type, what config.json has (None: the key is absent), how files are changed
CHECKPOINTS = {
    "llama_1": ("LLaMAForCausalLM", "llama", {
        **COMMON, "num_key_value_heads": None, "max_sequence_length": 2048, "pad_token_id": -1,
        "tie_word_embeddings": False}, "inv_freq"),
    "vicuna": ("LlamaForCausalLM", "llama", {
        **COMMON, "_name_or_path": "x", "max_length": 4096, "pretraining_tp": 1, "do_sample": True,
        "temperature": 0.9, "top_p": 0.6, "rope_scaling": {"factor": 4.0, "type": "linear"},
        "tie_word_embeddings": False}, "torch"),
    "yarn_llama_2": ("LlamaForCausalLM", "llama", {
        **COMMON, "auto_map": {"AutoModelForCausalLM": "m.LlamaForCausalLM"}, "pretraining_tp": 1,
        "rope_scaling": {"factor": 4.0, "finetuned": True, "type": "yarn",
                         "original_max_position_embeddings": 64}}, ""),
    "llama_3_2_unsloth": ("LlamaForCausalLM", "llama", {
        **COMMON, "attention_bias": False, "eos_token_id": [2, 3, 4], "head_dim": 16,
        "mlp_bias": False, "pad_token_id": 5, "pretraining_tp": 1, "rope_scaling": LLAMA3,
        "rope_theta": 500000.0, "tie_word_embeddings": True, "unsloth_fixed": True}, ""),
    "falcon_3": ("LlamaForCausalLM", "llama", {
        **COMMON, "attention_bias": False, "eos_token_id": 11, "head_dim": 32, "mlp_bias": False,
        "pretraining_tp": 1, "rope_scaling": None, "rope_theta": 1000042,
        "tie_word_embeddings": False}, ""),
    "smollm2": ("LlamaForCausalLM", "llama", {
        **COMMON, "is_llama_config": True, "mlp_bias": False, "pad_token_id": 2,
        "pretraining_tp": 1, "rope_interleaved": False, "rope_scaling": None, "rope_theta": 1e5,
        "tie_word_embeddings": True, "transformers.js_config": {"dtype": "q4"}}, "head"),
    "mistral_v0_1": ("MistralForCausalLM", "mistral", {
        **COMMON, "rope_theta": 10000.0, "sliding_window": 32, "tie_word_embeddings": False},
        "consolidated"),
    "mistral_nemo": ("MistralForCausalLM", "mistral", {
        **COMMON, "head_dim": 24, "rope_theta": 1e6, "sliding_window": None,
        "tie_word_embeddings": False}, "consolidated"),
    "mixtral": ("MixtralForCausalLM", "mixtral", {
        **COMMON, "num_experts_per_tok": 2, "num_local_experts": 4, "output_router_logits": False,
        "rope_theta": 1e6, "router_aux_loss_coef": 0.02, "router_jitter_noise": 0.0,
        "sliding_window": None, "tie_word_embeddings": False}, ""),
    "qwen2_5": ("Qwen2ForCausalLM", "qwen2", {
        **COMMON, **QWEN_WINDOW, "rope_theta": 1e6, "tie_word_embeddings": True,
        "use_mrope": False}, ""),
    "qwen2_5_yarn": ("Qwen2ForCausalLM", "qwen2", {
        **COMMON, **QWEN_WINDOW, "rope_theta": 1e6, "tie_word_embeddings": False,
        "rope_scaling": {"factor": 4.0, "original_max_position_embeddings": 64, "type": "yarn"}},
        ""),
    "qwen1_5_moe": ("Qwen2MoeForCausalLM", "qwen2_moe", {
        **COMMON, **QWEN_EXPERTS, **QWEN_WINDOW, "norm_topk_prob": False, "mlp_only_layers": None,
        "shared_expert_intermediate_size": 80, "tie_word_embeddings": False}, ""),
    "qwen3": ("Qwen3ForCausalLM", "qwen3", {
        **COMMON, **QWEN_WINDOW, "attention_bias": False, "head_dim": 32, "rope_scaling": None,
        "rope_theta": 1000000, "sliding_window": None, "tie_word_embeddings": True}, "head"),
    "qwen3_coder_moe": ("Qwen3MoeForCausalLM", "qwen3_moe", {
        **COMMON, **QWEN_EXPERTS, **QWEN_WINDOW, "head_dim": 32, "qkv_bias": False,
        "rope_scaling": None, "rope_theta": 10000000, "shared_expert_intermediate_size": 0,
        "sliding_window": None, "tie_word_embeddings": False, "use_qk_norm": True}, ""),
    "qwen3_moe_dense_layers": ("Qwen3MoeForCausalLM", "qwen3_moe", {
        **COMMON, **QWEN_EXPERTS, "attention_bias": False, "decoder_sparse_step": 2,
        "head_dim": 32, "mlp_only_layers": [3], "num_hidden_layers": 4, "num_key_value_heads": 4,
        "tie_word_embeddings": False}, ""),
    "gemma_1": ("GemmaForCausalLM", "gemma", {
        **COMMON, **GEMMA, "hidden_act": "gelu", "hidden_activation": None, "rope_scaling": None,
        "rope_theta": 10000.0}, ""),
    "gemma_2": ("Gemma2ForCausalLM", "gemma2", {
        **COMMON, **GEMMA, "attn_logit_softcapping": 50.0, "cache_implementation": "hybrid",
        "final_logit_softcapping": 30.0, "hidden_act": "gelu_pytorch_tanh",
        "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 144,
        "rope_theta": 10000.0, "sliding_window": 32, "sliding_window_size": 32}, ""),
    "gemma_3": ("Gemma3ForCausalLM", "gemma3_text", {
        **COMMON, **GEMMA, "hidden_act": None, "attn_logit_softcapping": None,
        "cache_implementation": "hybrid", "eos_token_id": [1, 106],
        "final_logit_softcapping": None, "hidden_activation": "gelu_pytorch_tanh",
        "num_hidden_layers": 7, "query_pre_attn_scalar": 256, "rope_local_base_freq": 10000,
        "rope_scaling": None, "rope_theta": 1000000, "sliding_window": 32,
        "sliding_window_pattern": 6}, "head"),
    "gemma_3_270m": ("Gemma3ForCausalLM", "gemma3_text", {
        **COMMON, **GEMMA, "hidden_act": None, "_sliding_window_pattern": 6,
        "attn_logit_softcapping": None, "final_logit_softcapping": None,
        "hidden_activation": "gelu_pytorch_tanh", "num_hidden_layers": 7,
        "layer_types": ["sliding_attention"] * 5 + ["full_attention", "sliding_attention"],
        "query_pre_attn_scalar": 256, "rope_local_base_freq": 10000.0,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "rope_theta": 1000000.0,
        "sliding_window": 32, "use_bidirectional_attention": False, "unsloth_fixed": True,
        "unsloth_version": "2025.8.9"}, ""),
    "phi_3_mini_4k": ("Phi3ForCausalLM", "phi3", {
        **COMMON, "attention_bias": False, "auto_map": {"AutoConfig": "c.Phi3Config"},
        "embd_pdrop": 0.0, "original_max_position_embeddings": 256, "pad_token_id": 6,
        "resid_pdrop": 0.0, "rope_scaling": None, "sliding_window": 32,
        "tie_word_embeddings": False}, ""),
    "phi_3_5_mini": ("Phi3ForCausalLM", "phi3", {
        **COMMON, "embd_pdrop": 0.0, "original_max_position_embeddings": 64, "pad_token_id": 6,
        "resid_pdrop": 0.0, "rope_scaling": {**LONGROPE, "type": "longrope"},
        "sliding_window": 262144, "tie_word_embeddings": False}, ""),
    "phi_4_mini": ("Phi3ForCausalLM", "phi3", {
        **COMMON, "attention_bias": False, "embd_pdrop": 0.0, "full_attn_mod": 1,
        "hidden_size": 96, "interpolate_factor": 1, "lm_head_bias": False, "mlp_bias": False,
        "original_max_position_embeddings": 64, "pad_token_id": 6, "partial_rotary_factor": 0.75,
        "resid_pdrop": 0.0, "rope_scaling": {
            **{key: [*values, 3.0][:9] for key, values in LONGROPE.items()}, "type": "longrope"},
        "rope_theta": 10000.0, "sliding_window": 262144, "tie_word_embeddings": True}, ""),
    "smollm3": ("SmolLM3ForCausalLM", "smollm3", {
        **COMMON, "attention_bias": False, "bos_token_id": None, "layer_types": [
            "full_attention"] * 4, "max_window_layers": 28, "mlp_bias": False,
        "no_rope_layer_interval": 4, "no_rope_layers": [1, 1, 1, 0], "num_hidden_layers": 4,
        "pad_token_id": 6, "pretraining_tp": 2, "rope_scaling": None, "rope_theta": 5000000.0,
        "sliding_window": None, "use_sliding_window": False}, ""),
    "olmo_2": ("Olmo2ForCausalLM", "olmo2", {
        **COMMON, "attention_bias": False, "num_key_value_heads": 4, "pad_token_id": 6,
        "rope_scaling": None, "rope_theta": 500000, "tie_word_embeddings": False}, ""),
    "granite_3": ("GraniteForCausalLM", "granite", {
        **COMMON, "attention_bias": False, "attention_dropout": 0.1,
        "attention_multiplier": 0.015625, "embedding_multiplier": 12.0, "logits_scaling": 8.0,
        "mlp_bias": False, "pad_token_id": 0, "residual_multiplier": 0.22, "rope_scaling": None,
        "rope_theta": 10000.0, "tie_word_embeddings": True}, ""),
    "starcoder2": ("Starcoder2ForCausalLM", "starcoder2", {
        **COMMON, "activation_function": "gelu", "attention_softmax_in_fp32": True,
        "embedding_dropout": 0.1, "hidden_act": "gelu_pytorch_tanh", "layer_norm_epsilon": 1e-05,
        "mlp_type": "default", "norm_epsilon": 1e-05, "norm_type": "layer_norm",
        "residual_dropout": 0.1, "rms_norm_eps": None, "rope_theta": 999999.4420358813,
        "scale_attention_softmax_in_fp32": True, "scale_attn_weights": True,
        "sliding_window": 32, "use_bias": True}, ""),
    "gpt2_medium": ("GPT2LMHeadModel", "gpt2", GPT2, "gpt2"),
    "distilgpt2": ("GPT2LMHeadModel", "gpt2", {**GPT2, "_num_labels": 1, "id2label": {
        "0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}, "masks"),
    "pythia": ("GPTNeoXForCausalLM", "gpt_neox", {
        **COMMON, "hidden_act": "gelu", "layer_norm_eps": 1e-05, "num_key_value_heads": None,
        "rms_norm_eps": None, "rotary_emb_base": 10000, "rotary_pct": 0.25,
        "tie_word_embeddings": False, "use_parallel_residual": True}, "masks"),
    "gpt_neox_20b": ("GPTNeoXForCausalLM", "gpt_neox", {
        **COMMON, "attention_probs_dropout_prob": 0, "custom_pipelines": {"t": {"impl": "x"}},
        "hidden_act": "gelu_fast", "hidden_dropout_prob": 0, "layer_norm_eps": 1e-05,
        "num_key_value_heads": None, "rms_norm_eps": None, "rotary_emb_base": 10000,
        "rotary_pct": 0.25, "tie_word_embeddings": False}, "torch"),
}  # fmt: skip


def publish(name, folder):
    """The checkpoint of that name in the folder."""
    architecture, model_type, settings, change = CHECKPOINTS[name]
    config = {k: v for k, v in settings.items() if v is not None or k not in COMMON}
    config |= {"architectures": [architecture], "model_type": model_type}
    written = json.dumps(config, indent=2)
    folder.mkdir()
    (folder / "config.json").write_text(written)
    torch.manual_seed(1)
    read = transformers.AutoConfig.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_config(read)
    tiny_models.save_random(model, folder)
    (folder / "config.json").write_text(written)
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    write_shards(folder, changed(tensors, change, model), change == "torch")
    if change == "consolidated":  # the same in another project's names; nobody reads it
        save_file({"tok_embeddings.weight": torch.ones(2)}, folder / "consolidated.safetensors")
    return folder


def changed(tensors, change, model):
    """With the names and the tensors that published files have beside those of the model."""
    if change == "head":  # stored though it is tied
        return tensors | {"lm_head.weight": model.get_input_embeddings().weight.detach().clone()}
    if change == "inv_freq":
        return tensors | {
            f"model.layers.{i}.self_attn.rotary_emb.inv_freq": torch.ones(8) for i in range(2)
        }
    if change in ("gpt2", "masks"):
        neox = any(name.startswith("gpt_neox.") for name in tensors)
        attention = "gpt_neox.layers.{}.attention." if neox else "transformer.h.{}.attn."
        for i in range(2):
            base = attention.format(i)
            tensors[f"{base}bias"] = torch.ones(1, 1, 256, 256).tril().bool()
            tensors[f"{base}masked_bias"] = torch.tensor(-1e9)
            if neox:
                tensors[f"{base}rotary_emb.inv_freq"] = torch.ones(2)
    if change == "gpt2":  # the base model's names
        return {name.removeprefix("transformer."): value for name, value in tensors.items()}
    return tensors


def write_shards(folder, tensors, as_torch):
    """Three files and their index."""
    single = "pytorch_model.bin" if as_torch else "model.safetensors"
    stem, suffix = single.rsplit(".", 1)
    weight_map = {}
    for i in range(3):
        part = {name: tensors[name].clone() for name in sorted(tensors)[i::3]}
        file = f"{stem}-0000{i + 1}-of-00003.{suffix}"
        if as_torch:
            torch.save(part, folder / file)
        else:
            save_file(part, folder / file, {"format": "pt"})
        weight_map |= dict.fromkeys(part, file)
    index = {"metadata": {"total_size": 1}, "weight_map": weight_map}
    (folder / f"{single}.index.json").write_text(json.dumps(index))


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_logits_equal_transformers(name, tmp_path):
    path = publish(name, tmp_path / name)
    checkpoint = read_checkpoint(path)
    spec = read_spec(checkpoint)
    assert plan_weights(spec, checkpoint, FORMATS).warnings == ()
    model = EagerModel(spec, checkpoint, FORMATS, torch.float32, spec.max_position_embeddings)
    with torch.no_grad():
        expected = family_models.reference(path)(IDS[None]).logits[0]
    found = model.logits(model.hidden_states(IDS.int()))
    assert (found - expected).abs().max() < TOLERANCE * expected.abs().max()


def test_su_is_longrope(tmp_path):
    """The older name of the same, which transformers itself no longer reads."""
    path = publish("phi_3_5_mini", tmp_path / "m")
    specs = [read_spec(read_checkpoint(path))]
    config = json.loads((path / "config.json").read_text())
    config["rope_scaling"]["type"] = "su"
    (path / "config.json").write_text(json.dumps(config))
    specs.append(read_spec(read_checkpoint(path)))
    assert specs[0] == specs[1]
    for name in ("inv_freq", "long_inv_freq"):
        tables = [getattr(spec.rotaries[0], name) for spec in specs]
        assert torch.equal(*tables)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("phi_4_mini", {"full_attn_mod": 2}),
        ("phi_4_mini", {"interpolate_factor": 2}),
        ("phi_4_mini", {"lm_head_bias": True}),
        ("starcoder2", {"norm_type": "rms_norm"}),
        ("starcoder2", {"mlp_type": "gated"}),
        ("starcoder2", {"scale_attn_weights": False}),
        ("qwen3_coder_moe", {"use_qk_norm": False}),
        ("qwen3_coder_moe", {"shared_expert_intermediate_size": 8}),
        ("qwen2_5", {"use_mrope": True}),
        ("qwen2_5", {"dual_chunk_attention_config": {"chunk_size": 262144}}),
        ("llama_3_2_unsloth", {"per_layer_config": {"0": {"hidden_act": "gelu"}}}),
    ],
)
def test_what_would_change_the_model_is_refused(name, changes, tmp_path):
    path = publish(name, tmp_path / name)
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | changes))
    with pytest.raises(ExportError, match=next(iter(changes))):
        read_spec(read_checkpoint(path))


def test_settings_of_generation_are_those_that_transformers_drops():
    theirs = set(transformers.GenerationConfig._get_default_generation_params())
    assert theirs <= ConfigReader.GENERATION_KEYS | ConfigReader.COMMON_KEYS
