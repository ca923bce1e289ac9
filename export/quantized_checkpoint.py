"""Quantised weights of Hugging Face directories: GPTQ, AWQ and compressed-tensors.

A linear layer's `weight` is stored as several tensors there. QuantizedSource shows them as the one
that they stand for, in floats or as the numbers that they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

import torch

from pinfer.export.errors import ExportError
from pinfer.export.safetensors_file import SafetensorsSource
from pinfer.runtime.weight_format import QuantizedWeight, half_scales

WORD_BITS = 32
AWQ_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)  # where in a word AWQ has the numbers of eight outputs


class Stored(NamedTuple):
    weight: QuantizedWeight
    columns: torch.Tensor | None  # which input each number is for; None: in order


class Layout(Protocol):
    """How a method spells the weight of one linear layer."""

    numbers: str  # suffix of the tensor that holds the numbers
    others: tuple[str, ...]  # suffixes of those that go with it

    def shape(self, stored: tuple[int, ...]) -> tuple[int, int]:
        """[out_features, in_features] of a tensor of numbers."""
        ...

    def read(self, get: Callable[[str], torch.Tensor | None]) -> Stored:
        """`get` loads a tensor of the layer, None if there is none. ValueError if they do not fit
        each other."""
        ...


class QuantizedSource:
    """Tensors of a checkpoint with quantised weights (a TensorSource)."""

    def __init__(self, source: SafetensorsSource, where: str, config: dict[str, Any]) -> None:
        """`config`: the quantization_config that `where` holds. ExportError if not supported."""
        self._source = source
        self._where = where
        layout = _read_layout(where, config)
        self._layout = layout
        stored = set(source.names())
        self._layers = {
            layer + ".weight": layer
            for name in stored
            for layer in [name.removesuffix("." + layout.numbers)]
            # compressed-tensors calls the numbers `weight`: the scale tells these from others
            if layer != name and any(f"{layer}.{s}" in stored for s in layout.others)
        }
        hidden = {
            f"{layer}.{suffix}"
            for layer in self._layers.values()
            for suffix in (layout.numbers, *layout.others)
        }
        self._names = sorted((stored - hidden) | self._layers.keys())

    def names(self) -> Iterable[str]:
        return self._names

    def shape(self, name: str) -> tuple[int, ...]:
        if name not in self._layers:
            return self._source.shape(name)
        numbers = f"{self._layers[name]}.{self._layout.numbers}"
        stored = self._source.shape(numbers)
        if len(stored) != 2:
            raise ExportError(
                f"{self._where}: tensor {numbers!r}: expected two dimensions, found {list(stored)}"
            )
        return self._layout.shape(stored)

    def load(self, name: str) -> torch.Tensor:
        if name not in self._layers:
            return self._source.load(name)
        weight, columns = self._read(name)
        values = weight.dequantize()
        return values if columns is None else values[:, columns.argsort()]

    def load_quantized(self, name: str) -> QuantizedWeight | None:
        if name not in self._layers:
            return None
        weight, columns = self._read(name)
        return weight if columns is None else None

    def group_size(self) -> int | None:
        sizes = {weight.group_size for weight, _ in map(self._read, list(self._layers)[:1])}
        return next(iter(sizes), None)

    def dtype(self) -> str:
        return "quantized" if self._layers else self._source.dtype()

    def _read(self, name: str) -> Stored:
        layer = self._layers[name]
        stored = set(self._source.names())

        def get(suffix: str) -> torch.Tensor | None:
            full = f"{layer}.{suffix}"
            return self._source.load(full) if full in stored else None

        try:
            found = self._layout.read(get)
        except ValueError as error:
            raise ExportError(f"{self._where}: tensors {layer}.*: {error}") from error
        expected = self.shape(name)
        if tuple(found.weight.numbers.shape) != expected:
            raise ExportError(
                f"{self._where}: tensors {layer}.*: expected a weight of {list(expected)}, found"
                f" {list(found.weight.numbers.shape)}"
            )
        return found


class _WordLayout:
    """GPTQ and AWQ: four bits, words of eight, a scale and a zero point for each group."""

    numbers = "qweight"
    others: tuple[str, ...] = ("qzeros", "scales", "g_idx")

    def __init__(self, group_size: int) -> None:
        self._group_size = group_size  # -1: a whole row

    def _stored(
        self,
        numbers: torch.Tensor,
        zeros: torch.Tensor,
        scales: torch.Tensor | None,
        columns: torch.Tensor | None,
    ) -> Stored:
        """numbers [in, out], zeros and scales [groups, out]."""
        in_features, out_features = numbers.shape
        group_size = in_features if self._group_size == -1 else self._group_size
        groups = (-(-in_features // group_size), out_features)
        for name, found in (("qzeros", zeros), ("scales", scales)):
            if found is None or tuple(found.shape) != groups:
                raise ValueError(
                    f"{name}: expected {list(groups)} numbers,"
                    f" found {None if found is None else list(found.shape)}"
                )
        return Stored(_with_zeros(numbers.T, zeros.T, scales.T, group_size), columns)


class _Gptq(_WordLayout):
    """qweight [in / 8, out], qzeros [groups, out / 8], scales [groups, out], g_idx [in]."""

    def __init__(self, group_size: int, zero_offset: int) -> None:
        super().__init__(group_size)
        self._zero_offset = zero_offset  # what was taken off when they were stored

    def shape(self, stored: tuple[int, ...]) -> tuple[int, int]:
        return (stored[1], stored[0] * 8)

    def read(self, get: Callable[[str], torch.Tensor | None]) -> Stored:
        numbers = _unpacked(get("qweight").T).T
        zeros = (_unpacked(_required(get, "qzeros")) + self._zero_offset) & 15
        columns = None
        groups = get("g_idx")
        if groups is not None and self._group_size != -1:
            in_order = torch.arange(len(numbers)) // self._group_size
            if len(groups) != len(numbers) or not torch.equal(groups.long().sort()[0], in_order):
                raise ValueError(f"g_idx: expected groups of {self._group_size} inputs")
            if not torch.equal(groups.long(), in_order):  # desc_act
                columns = groups.argsort(stable=True)
                numbers = numbers[columns]
        return self._stored(numbers, zeros, get("scales"), columns)


class _Awq(_WordLayout):
    """qweight [in, out / 8], qzeros [groups, out / 8], scales [groups, out]."""

    others = ("qzeros", "scales")

    def shape(self, stored: tuple[int, ...]) -> tuple[int, int]:
        return (stored[1] * 8, stored[0])

    def read(self, get: Callable[[str], torch.Tensor | None]) -> Stored:
        def ordered(words: torch.Tensor) -> torch.Tensor:
            unpacked = _unpacked(words)
            return unpacked.view(len(words), -1, 8)[..., list(AWQ_ORDER)].reshape(unpacked.shape)

        zeros = ordered(_required(get, "qzeros"))
        return self._stored(ordered(get("qweight")), zeros, get("scales"), None)


class _CompressedIntegers:
    """weight int8 [out, in], weight_scale [out, groups], one column or one number."""

    numbers = "weight"
    others: tuple[str, ...] = ("weight_scale", "weight_zero_point")

    def __init__(self, group_size: int | None) -> None:
        self._group_size = group_size  # None: a row, or all of them

    def shape(self, stored: tuple[int, ...]) -> tuple[int, int]:
        return (stored[0], stored[1])

    def read(self, get: Callable[[str], torch.Tensor | None]) -> Stored:
        numbers = get("weight")
        if numbers.dtype != torch.int8:
            raise ValueError(f"weight: expected int8, found {numbers.dtype}")
        zeros = get("weight_zero_point")
        if zeros is not None and bool(zeros.any()):
            raise ValueError("weight_zero_point: only symmetric int8 weights are supported")
        return Stored(
            _with_row_scales(numbers, None, _required(get, "weight_scale"), self._group_size), None
        )


class _CompressedWords:
    """weight_packed [out, in / numbers of a word], each number plus half the range."""

    numbers = "weight_packed"
    others: tuple[str, ...] = (
        "weight_scale",
        "weight_zero_point",
        "weight_shape",
        "weight_g_idx",
    )

    def __init__(self, bits: int, group_size: int | None) -> None:
        self._bits = bits
        self._group_size = group_size

    def shape(self, stored: tuple[int, ...]) -> tuple[int, int]:
        return (stored[0], stored[1] * (WORD_BITS // self._bits))

    def read(self, get: Callable[[str], torch.Tensor | None]) -> Stored:
        words = get("weight_packed")
        if get("weight_g_idx") is not None:
            raise ValueError("weight_g_idx: activation order is not supported")
        numbers = _unpacked(words, self._bits)
        scales = _required(get, "weight_scale")
        zeros = get("weight_zero_point")
        if self._bits == 8:
            if zeros is not None and bool((_unpacked(zeros.T, 8) != 128).any()):
                raise ValueError("weight_zero_point: only symmetric int8 weights are supported")
            return Stored(
                _with_row_scales((numbers ^ 128).view(torch.int8), None, scales, self._group_size),
                None,
            )
        if zeros is None:
            zeros = torch.full(scales.shape, 8, dtype=torch.uint8)
        else:
            zeros = _unpacked(zeros.T).T[: len(scales)]
        return Stored(_with_row_scales(numbers, zeros, scales, self._group_size), None)


def _required(get: Callable[[str], torch.Tensor | None], suffix: str) -> torch.Tensor:
    found = get(suffix)
    if found is None:
        raise ValueError(f"{suffix} is missing")
    return found


def _unpacked(words: torch.Tensor, bits: int = 4) -> torch.Tensor:
    """uint8 [rows, numbers] of int32 [rows, words], the lowest bits first."""
    if words.dtype != torch.int32 or words.dim() != 2:
        raise ValueError(f"expected int32 words in rows, found {words.dtype} {list(words.shape)}")
    shifts = torch.arange(0, WORD_BITS, bits, dtype=torch.int32)
    numbers = words[:, :, None] >> shifts & (1 << bits) - 1
    return numbers.to(torch.uint8).reshape(len(words), -1)


def _with_row_scales(
    numbers: torch.Tensor,
    zeros: torch.Tensor | None,
    scales: torch.Tensor,
    group_size: int | None,
) -> QuantizedWeight:
    """Scales for groups of a row; without a group size for a row, or one for all."""
    out_features, in_features = numbers.shape
    group_size = in_features if group_size is None else group_size
    expected = (out_features, -(-in_features // group_size))
    if scales.numel() == 1:
        scales = scales.reshape(1, 1).expand(expected)
        zeros = None if zeros is None else zeros.reshape(1, 1).expand(expected)
    for name, found in (("weight_scale", scales), ("weight_zero_point", zeros)):
        if found is not None and tuple(found.shape) != expected:
            raise ValueError(f"{name}: expected {list(expected)}, found {list(found.shape)}")
    if zeros is None:
        return QuantizedWeight(numbers, half_scales(scales), None, group_size)
    return _with_zeros(numbers, zeros, scales, group_size)


def _with_zeros(
    numbers: torch.Tensor, zeros: torch.Tensor, scales: torch.Tensor, group_size: int
) -> QuantizedWeight:
    """(number - zero) * scale. The minimum is rounded to float16, unless zero is a power of 2."""
    minima = half_scales(-zeros.float() * scales.float())
    return QuantizedWeight(numbers.contiguous(), half_scales(scales), minima, group_size)


# ---- quantization_config ----


def _read_layout(where: str, config: dict[str, Any]) -> Layout:
    reader = _Settings(where, config)
    method = str(config.get("quant_method", "")).lower()
    if method == "gptq":
        reader.expect("bits", 4)
        stored_as = reader.expect("checkpoint_format", "gptq", "gptq_v2", default="gptq")
        return _Gptq(reader.group_size("group_size"), 1 if stored_as == "gptq" else 0)
    if method == "awq":
        reader.expect("version", "gemm", default="gemm")
        reader.expect("w_bit" if "w_bit" in config else "bits", 4)
        key = "q_group_size" if "q_group_size" in config else "group_size"
        return _Awq(reader.group_size(key))
    if method == "compressed-tensors":
        return _compressed_layout(reader, config)
    raise ExportError(
        f"{where}: quantization_config.quant_method: expected gptq, awq or compressed-tensors,"
        f" found {config.get('quant_method')!r}"
    )


def _compressed_layout(reader: _Settings, config: dict[str, Any]) -> Layout:
    stored_as = reader.expect("format", "int-quantized", "pack-quantized")
    for key in ("kv_cache_scheme", "sparsity_config", "transform_config"):
        value = config.get(key)
        if value and not (isinstance(value, dict) and value.get("format") == "dense"):
            reader.refuse(key, "nothing", value)
    groups = config.get("config_groups")
    if not isinstance(groups, dict) or not groups:
        reader.refuse("config_groups", "an object", groups)
    found = {_weight_arguments(reader.where, stored_as, *item) for item in groups.items()}
    if len(found) > 1:
        reader.refuse("config_groups", "one num_bits and group_size", sorted(map(str, found)))
    bits, group_size = found.pop()
    if stored_as == "int-quantized":
        return _CompressedIntegers(group_size)
    return _CompressedWords(bits, group_size)


def _weight_arguments(where: str, stored_as: str, name: str, group: Any) -> tuple[int, int | None]:
    """(bits, group size) of the weights of one of the config_groups."""
    group = group if isinstance(group, dict) else {}
    weights = group.get("weights")
    inner = _Settings(
        where, weights if isinstance(weights, dict) else {}, f"config_groups.{name}.weights."
    )
    inner.expect("type", "int")
    bits = inner.expect("num_bits", *((8,) if stored_as == "int-quantized" else (4, 8)))
    inputs = group.get("input_activations")
    if isinstance(inputs, dict):
        _Settings(where, inputs, f"config_groups.{name}.input_activations.").expect("dynamic", True)
    strategy = inner.expect("strategy", "channel", "group", "tensor")
    return bits, inner.group_size("group_size") if strategy == "group" else None


class _Settings:
    """The values of a quantization_config, refused by name where they are not supported."""

    def __init__(self, where: str, config: dict[str, Any], prefix: str = "") -> None:
        self.where = where
        self._config = config
        self._prefix = f"quantization_config.{prefix}"

    def refuse(self, key: str, expected: str, found: Any) -> None:
        raise ExportError(
            f"{self.where}: {self._prefix}{key}: expected {expected}, found {found!r}"
        )

    def expect(self, key: str, *supported: Any, default: Any = None) -> Any:
        value = self._config.get(key, default)
        if isinstance(value, str):
            value = value.lower()
        if value not in supported:
            self.refuse(key, " or ".join(map(str, supported)), self._config.get(key))
        return value

    def group_size(self, key: str) -> int:
        value = self._config.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or (value < 1 and value != -1):
            self.refuse(key, "a positive integer or -1", value)
        return int(value)
