"""The Llama family: Llama 1 to 3, SmolLM2 and everything else that says LlamaForCausalLM."""

from __future__ import annotations

from pinfer.export.models.settings import (
    boolean,
    head_sizes,
    positive_int,
    positive_number,
    require,
    rotary,
)
from pinfer.export.models.spec import ConfigReader, ModelSpec, TensorPlan
from pinfer.runtime.layers.layer_spec import LayerSpec
from pinfer.runtime.weight_format import WeightFormat

ARCHITECTURES = ("LlamaForCausalLM",)


def read_spec(reader: ConfigReader) -> ModelSpec:
    """The model's sizes. ExportError naming the key for every setting that is not supported."""
    require(reader, "hidden_act", "silu", "silu")
    require(reader, "pretraining_tp", 1, 1)
    require(reader, "rope_interleaved", False, False)
    reader.get("is_llama_config")
    hidden_size = positive_int(reader, "hidden_size")
    num_heads, num_kv_heads, head_dim = head_sizes(reader, hidden_size)
    attention_bias = boolean(reader, "attention_bias", False)
    layer = LayerSpec(
        hidden_size=hidden_size,
        intermediate_size=positive_int(reader, "intermediate_size"),
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        rms_norm_eps=positive_number(reader, "rms_norm_eps", 1e-6),
        attention_bias=attention_bias,
        output_bias=attention_bias,
        mlp_bias=boolean(reader, "mlp_bias", False),
    )
    return ModelSpec(
        architecture=ARCHITECTURES[0],
        num_layers=positive_int(reader, "num_hidden_layers"),
        vocab_size=positive_int(reader, "vocab_size"),
        max_position_embeddings=positive_int(reader, "max_position_embeddings", 2048),
        tie_word_embeddings=boolean(reader, "tie_word_embeddings", False),
        layer=layer,
        rotary=rotary(reader, head_dim),
    )


def plan_layer(spec: ModelSpec, index: int, weights: WeightFormat) -> dict[str, TensorPlan]:
    """For each constant of layer `index`, the checkpoint's tensors that it is made of. `weights` is
    the format of the linear ones."""
    layer = spec.layer
    hidden, inner = layer.hidden_size, layer.intermediate_size
    q_features, kv_features = (
        heads * layer.head_dim for heads in (layer.num_heads, layer.num_kv_heads)
    )
    source, target = f"model.layers.{index}", f"layers.{index}"
    qkv = (("q_proj", q_features), ("k_proj", kv_features), ("v_proj", kv_features))
    linears = {
        "qkv": ("self_attn", qkv, hidden, layer.attention_bias),
        "output": ("self_attn", (("o_proj", hidden),), q_features, layer.output_bias),
        "gate_up": ("mlp", (("gate_proj", inner), ("up_proj", inner)), hidden, layer.mlp_bias),
        "down": ("mlp", (("down_proj", hidden),), inner, layer.mlp_bias),
    }
    plans: dict[str, TensorPlan] = {}

    def add(
        constant: str, sources: list[tuple[str, tuple[int, ...]]], packed: bool = False
    ) -> None:
        format = weights if packed else None
        plans[constant] = TensorPlan(f"{target}.{constant}", tuple(sources), format)

    add("input_norm_weight", [(f"{source}.input_layernorm.weight", (hidden,))])
    add(
        "post_attention_norm_weight",
        [(f"{source}.post_attention_layernorm.weight", (hidden,))],
    )
    for name, (group, rows, in_features, has_bias) in linears.items():
        prefix = f"{source}.{group}"
        add(
            f"{name}_weight",
            [(f"{prefix}.{p}.weight", (n, in_features)) for p, n in rows],
            packed=True,
        )
        if has_bias:
            add(f"{name}_bias", [(f"{prefix}.{p}.bias", (n,)) for p, n in rows])
    return plans
