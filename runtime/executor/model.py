"""A bundle's model in eager PyTorch: the modules that its artifacts were compiled from."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from pinfer.runtime.bundle.manifest import BundleError, read_manifest
from pinfer.runtime.layers.layer_spec import LayerSpec
from pinfer.runtime.layers.modules import DecoderLayer, Head
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
        self.layer_spec = _read_layer_spec(model["layer"])
        path = bundle / "weights.safetensors"
        with safe_open(path, framework="pt") as file:  # type: ignore[no-untyped-call]

            def load(name: str) -> torch.Tensor:
                return file.get_tensor(name)

            self.embedding = load(self.manifest["embedding"]["weight"])
            embedding_format = WeightFormat(**self.manifest["embedding"]["format"])
            self.inv_freq = load(self.manifest["rotary"]["inv_freq"])
            self.layers = []
            for entry in self.manifest["layers"]:
                layer = DecoderLayer(self.layer_spec, WeightFormat(**model["weight_format"]))
                _set_weights(layer, {k: load(v) for k, v in entry["weights"].items()}, path)
                self.layers.append(layer.eval())
            self.head = Head(self.layer_spec, model["vocab_size"], embedding_format)
            weights = self.manifest["head"]["weights"]
            _set_weights(self.head, {k: load(v) for k, v in weights.items()}, path)

    @property
    def vocab_size(self) -> int:
        return self.manifest["model"]["vocab_size"]

    @property
    def block_size(self) -> int:
        return self.manifest["kv_cache"]["block_size"]

    @property
    def layer_windows(self) -> list[int]:
        """By layer: the tokens that a token attends to, itself included; 0 = all."""
        return [0] * len(self.layers)

    @property
    def attention_scaling(self) -> float:
        return self.manifest["rotary"]["attention_scaling"]


def _read_layer_spec(entry: dict[str, Any]) -> LayerSpec:
    known = {field.name for field in fields(LayerSpec)}
    unknown = sorted(set(entry) - known)
    if unknown:
        raise BundleError(f"manifest.json: model.layer: unknown fields {', '.join(unknown)}")
    return LayerSpec(**entry)


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
