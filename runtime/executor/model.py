"""A bundle's model in eager PyTorch: the modules that its artifacts were compiled from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from pinfer.runtime.bundle.manifest import BundleError, read_manifest
from pinfer.runtime.layers.layer_spec import HeadSpec, LayerSpec, Spec, spec_from_json
from pinfer.runtime.layers.modules import DecoderLayer, FinalNorm, Head
from pinfer.runtime.weight_format import WeightFormat

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "int8": torch.int8}


class Model:
    """Every layer, the embedding and the head, with the bundle's packed weights. BundleError naming
    the tensor if the weights do not fit the manifest."""

    def __init__(self, bundle: Path) -> None:
        self.manifest = read_manifest(bundle)
        if "model" not in self.manifest["parts"]:
            raise BundleError(f"{bundle}: the bundle holds no model (only text)")
        model = self.manifest["model"]
        self.cache_dtype = DTYPES[self.manifest["kv_cache"]["dtype"]]
        self.layer_kinds = {
            name: _read_spec(LayerSpec, entry, f"model.layer_kinds.{name}")
            for name, entry in model["layer_kinds"].items()
        }
        self.head_spec = _read_spec(HeadSpec, model["head"], "model.head")
        path = bundle / "weights.safetensors"
        with safe_open(path, framework="pt") as file:  # type: ignore[no-untyped-call]

            def load(name: str) -> torch.Tensor:
                return file.get_tensor(name)

            embedding = self.manifest["embedding"]
            self.embedding = load(embedding["weight"])
            positions = embedding["position_weight"]
            self.position_embedding = None if positions is None else load(positions)
            self.embedding_scale = float(embedding["scale"])
            self.rotaries = [
                (load(entry["inv_freq"]), float(entry["attention_scaling"]))
                for entry in self.manifest["rotaries"]
            ]
            self.layers = []
            self.rotary_of_layer = [entry["rotary"] for entry in self.manifest["layers"]]
            for entry in self.manifest["layers"]:
                spec = self.layer_kinds[entry["artifact"]]
                layer = DecoderLayer(spec, WeightFormat(**model["weight_format"]))
                _set_weights(layer, {k: load(v) for k, v in entry["weights"].items()}, path)
                self.layers.append(layer.eval())
            self.embeds = self.manifest.get("task") == "embed"
            if self.embeds:
                self.head: FinalNorm | Head = FinalNorm(self.head_spec)
            else:
                self.head = Head(self.head_spec, WeightFormat(**embedding["format"]))
            weights = self.manifest["final_norm" if self.embeds else "head"]["weights"]
            _set_weights(self.head, {k: load(v) for k, v in weights.items()}, path)

    @property
    def hidden_size(self) -> int:
        return self.head_spec.hidden_size

    @property
    def vocab_size(self) -> int:
        return self.manifest["model"]["vocab_size"]

    @property
    def block_size(self) -> int:
        return self.manifest["kv_cache"]["block_size"]

    @property
    def layer_windows(self) -> list[int]:
        """By layer: the tokens that a token attends to, itself included; 0 = all."""
        return [entry["sliding_window"] for entry in self.manifest["layers"]]


def _read_spec(kind: type[Spec], entry: dict[str, Any], path: str) -> Spec:
    try:
        return spec_from_json(kind, entry)
    except ValueError as error:
        raise BundleError(f"manifest.json: {path}: {error}") from error


def _set_weights(module: torch.nn.Module, weights: dict[str, torch.Tensor], path: Path) -> None:
    for name, parameter in module.named_parameters():
        tensor = weights.get(name)
        if tensor is None or tensor.shape != parameter.shape or tensor.dtype != parameter.dtype:
            found = None if tensor is None else (tuple(tensor.shape), tensor.dtype)
            raise BundleError(
                f"{path}: {name}: expected {tuple(parameter.shape)} {parameter.dtype},"
                f" found {found}"
            )
        parameter.data = tensor
