"""What the families have in common: a decoder of alike layers, read from the usual keys, and the
plan of its tensors. A family's file says where it differs (docs/models.md, "Add a family")."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pinfer.export.errors import ExportError
from pinfer.export.models.rotary import read_rotary
from pinfer.export.models.settings import (
    activation,
    boolean,
    head_sizes,
    positive_int,
    positive_number,
)
from pinfer.export.models.spec import ConfigReader, ModelSpec, RotarySpec, TensorNames, TensorPlan
from pinfer.runtime import ops
from pinfer.runtime.layers.layer_spec import HeadSpec, LayerSpec
from pinfer.runtime.weight_format import FLOAT32, WeightFormat


def read_layer(
    reader: ConfigReader,
    *,
    norm_eps: float = 1e-6,
    hidden_act: str = "silu",
    act_key: str = "hidden_act",
    num_kv_heads: int | None = None,
    head_dim: int | None = None,
    **changes: Any,
) -> LayerSpec:
    """A layer of RMS norms, rotated heads and a gated MLP by the usual keys; the arguments are the
    family's own defaults, and `changes` what its layers have otherwise."""
    hidden_size = positive_int(reader, "hidden_size")
    num_heads, num_kv_heads, size = head_sizes(reader, hidden_size, num_kv_heads, head_dim)
    settings = dict(
        hidden_size=hidden_size,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=size,
        attention_scale=size**-0.5,
        rotary_dim=size,
        activation=activation(reader, act_key, hidden_act),
    )
    if "intermediate_size" not in changes:
        settings["intermediate_size"] = positive_int(reader, "intermediate_size")
    if "norm_eps" not in changes:
        settings["norm_eps"] = positive_number(reader, "rms_norm_eps", norm_eps)
    return LayerSpec(**{**settings, **changes})


def read_model(
    reader: ConfigReader,
    architecture: str,
    layers: LayerSpec | Sequence[LayerSpec],
    *,
    rotaries: Sequence[RotarySpec] | None = None,
    rotary_of_layer: Sequence[int] | None = None,
    names: TensorNames | None = None,
    max_position_embeddings: int = 2048,
    tied: bool = False,
    logit_scale: float = 1.0,
    logit_softcap: float = 0.0,
    embedding_scale: float = 1.0,
) -> ModelSpec:
    """The model around its layers: one LayerSpec for all, or one for each."""
    if isinstance(layers, LayerSpec):
        layers = [layers] * positive_int(reader, "num_hidden_layers")
    first = layers[0]
    for layer in layers:
        if layer.num_experts and layer.activation not in ops.ACTIVATION_CODES:
            raise ExportError(
                f"{reader.source}: config key 'hidden_act': experts have"
                f" {', '.join(ops.ACTIVATION_CODES)}, found {layer.activation}"
            )
    rotaries = tuple(rotaries or [read_rotary(reader, first.head_dim)])
    of_layer = tuple(rotary_of_layer or [0] * len(layers))
    sized = (
        replace(
            layer, rotary_dim=2 * len(rotaries[of_layer[i]].inv_freq) if layer.rotary_dim else 0
        )
        for i, layer in enumerate(layers)
    )
    return ModelSpec(
        architecture=architecture,
        max_position_embeddings=positive_int(
            reader, "max_position_embeddings", max_position_embeddings
        ),
        tie_word_embeddings=boolean(reader, "tie_word_embeddings", tied),
        layers=tuple(sized),
        head=HeadSpec(
            hidden_size=first.hidden_size,
            vocab_size=positive_int(reader, "vocab_size"),
            norm_eps=first.norm_eps,
            norm=first.norm,
            logit_scale=logit_scale,
            logit_softcap=logit_softcap,
        ),
        rotaries=rotaries,
        rotary_of_layer=of_layer,
        names=names or TensorNames(),
        embedding_scale=embedding_scale,
    )


def of_type(
    layer: LayerSpec, types: Sequence[str], sliding_window: int, reader: ConfigReader
) -> list[LayerSpec]:
    """A layer of each type; those of "sliding_attention" see sliding_window positions."""
    if "sliding_attention" in types and sliding_window == 0:
        raise ExportError(
            f"{reader.source}: config key 'layer_types' has sliding attention, but sliding_window"
            " is not set"
        )
    windows = {"full_attention": 0, "sliding_attention": sliding_window}
    return [replace(layer, sliding_window=windows[kind]) for kind in types]


def plan_norm(
    plans: dict[str, TensorPlan], layer: LayerSpec | HeadSpec, added: float, target: str,
    source: str, size: int,
) -> None:  # fmt: skip
    """Adds weight and, where the norm has one, bias: tensor `target`_weight of `source`.weight."""
    constant = target.rsplit(".", 1)[-1]
    weight = ((f"{source}.weight", (size,)),)
    plans[f"{constant}_weight"] = TensorPlan(f"{target}_weight", weight, None, added=added)
    if layer.norm == "layer":
        plans[f"{constant}_bias"] = TensorPlan(
            f"{target}_bias", ((f"{source}.bias", (size,)),), None
        )


@dataclass(frozen=True)
class _Linear:
    """A linear constant: the checkpoint's modules that it is made of, with their outputs."""

    constant: str
    modules: tuple[tuple[str, int], ...]
    in_features: int
    bias: bool = False
    num_experts: int = 0
    by_head: int = 0
    is_router: bool = False  # stays in float32: it is small, and decides


def plan_layer(
    spec: ModelSpec, index: int, base: str, weights: WeightFormat
) -> dict[str, TensorPlan]:
    """For each constant of layer `index`, the checkpoint's tensors that it is made of. `weights` is
    the format of the linear ones; `base` stands before the checkpoint's names."""
    layer, names = spec.layers[index], spec.names
    source, target = base + names.layer.format(index), f"layers.{index}."
    hidden, head_dim = layer.hidden_size, layer.head_dim
    plans: dict[str, TensorPlan] = {}
    for norm in layer.norms:
        plan_norm(plans, layer, names.norm_added, target + norm, source + names.norms[norm], hidden)
    if layer.qk_norm != "none":
        heads = (layer.num_heads, layer.num_kv_heads) if layer.qk_norm == "all" else (1, 1)
        for norm, module, count in zip(
            ("q_norm", "k_norm"), (names.q_norm, names.k_norm), heads, strict=True
        ):
            size = count * head_dim
            plan_norm(plans, layer, names.norm_added, target + norm, source + module, size)
    for linear in _attention(spec, layer) + (_experts if layer.num_experts else _mlp)(spec, layer):
        sources = [(source + module, n) for module, n in linear.modules]
        format = FLOAT32 if linear.is_router else weights
        name = f"{linear.constant}_weight"
        plans[name] = TensorPlan(
            target + name,
            tuple(
                (f"{module}.weight", (linear.in_features, n) if names.transposed
                 else (n, linear.in_features))
                for module, n in sources
            ),
            format,
            num_experts=linear.num_experts,
            transposed=names.transposed,
            by_head=linear.by_head,
        )  # fmt: skip
        if linear.bias:
            name = f"{linear.constant}_bias"
            biases = tuple((f"{module}.bias", (n,)) for module, n in sources)
            plans[name] = TensorPlan(target + name, biases, None, by_head=linear.by_head)
    return plans


def _attention(spec: ModelSpec, layer: LayerSpec) -> list[_Linear]:
    names, hidden = spec.names, layer.hidden_size
    q_features, kv_features = (n * layer.head_dim for n in (layer.num_heads, layer.num_kv_heads))
    if len(names.qkv) == 1:
        qkv = ((names.qkv[0], layer.qkv_features),)
    else:
        qkv = tuple(zip(names.qkv, (q_features, kv_features, kv_features), strict=True))
    by_head = layer.num_heads if names.qkv_by_head else 0
    return [
        _Linear("qkv", qkv, hidden, layer.attention_bias, by_head=by_head),
        _Linear("output", ((names.output, hidden),), q_features, layer.output_bias),
    ]


def _mlp(spec: ModelSpec, layer: LayerSpec) -> list[_Linear]:
    names, hidden = spec.names, layer.hidden_size
    each = layer.up_features // len(names.up)
    return [
        _Linear("up", tuple((name, each) for name in names.up), hidden, layer.mlp_bias),
        _Linear("down", ((names.down, hidden),), layer.intermediate_size, layer.mlp_bias),
    ]


def _experts(spec: ModelSpec, layer: LayerSpec) -> list[_Linear]:
    names, hidden, inner = spec.names, layer.hidden_size, layer.intermediate_size
    count = layer.num_experts
    up = tuple((name.format(i), inner) for i in range(count) for name in names.experts_up)
    down = tuple((names.experts_down.format(i), hidden) for i in range(count))
    linears = [
        _Linear("router", ((names.router, count),), hidden, is_router=True),
        _Linear("experts_up", up, hidden, num_experts=count),
        _Linear("experts_down", down, inner, num_experts=count),
    ]
    if shared := layer.shared_intermediate_size:
        linears += [
            _Linear("shared_gate", ((names.shared_gate, 1),), hidden, is_router=True),
            _Linear("shared_up", tuple((name, shared) for name in names.shared_up), hidden),
            _Linear("shared_down", ((names.shared_down, hidden),), shared),
        ]
    return linears
