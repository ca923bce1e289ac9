"""Quantised weights of Hugging Face directories: GPTQ, AWQ and compressed-tensors.

A linear layer's `weight` is stored as several tensors there. QuantizedSource shows them as the one
that they stand for, in floats or as the numbers that they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from pinfer.export.checkpoint import ALL_ROWS
from pinfer.export.errors import ExportError
from pinfer.export.safetensors_file import SafetensorsSource
from pinfer.export.torch_file import TorchSource
from pinfer.runtime.weight_format import QuantizedWeight, half_scales

WORD_BITS = 32
AWQ_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)  # where in a word AWQ has the numbers of eight outputs

# Loads a tensor of a layer by its suffix; None if there is none.
Get = Callable[[str], torch.Tensor | None]


@dataclass(frozen=True)
class Stored:
    """A weight as its checkpoint has it: (number - zero) * scale."""

    numbers: torch.Tensor  # [out_features, in_features]; int8, with zeros uint8 below 16
    scales: torch.Tensor  # [out_features, groups], floats
    zeros: torch.Tensor | None  # uint8 [out_features, groups]
    group_size: int
    columns: torch.Tensor | None = None  # which input each number is for; None: in order

    def values(self) -> torch.Tensor:
        """float32 [out_features, in_features]."""
        of_number = torch.arange(self.numbers.shape[1]) // self.group_size
        numbers = self.numbers.float()
        if self.zeros is not None:
            numbers = numbers - self.zeros.float()[:, of_number]
        values = numbers * self.scales.float()[:, of_number]
        return values if self.columns is None else values[:, self.columns.argsort()]

    def quantized(self) -> QuantizedWeight | None:
        """None for columns out of order. A minimum is rounded to float16, unless its zero is a
        power of 2."""
        if self.columns is not None:
            return None
        minima = None
        if self.zeros is not None:
            minima = half_scales(-self.zeros.float() * self.scales.float())
        return QuantizedWeight(self.numbers, half_scales(self.scales), minima, self.group_size)


class Layout(Protocol):
    """How a method spells the weight of one linear layer."""

    numbers: str  # suffix of the tensor that holds the numbers
    needed: tuple[str, ...]  # suffixes of those that go with it
    optional: tuple[str, ...]
    group_size: int | None  # None: a row, or all of them

    def shape(self, stored: tuple[int, ...], get: Get) -> tuple[int, int]:
        """[out_features, in_features] of a matrix of numbers. ValueError if others contradict."""
        ...

    def read(self, get: Get) -> Stored:
        """ValueError if the tensors do not fit each other."""
        ...


class QuantizedSource:
    """Tensors of a checkpoint with quantised weights (a TensorSource)."""

    def __init__(
        self, source: SafetensorsSource | TorchSource, where: str, config: dict[str, Any]
    ) -> None:
        """`config`: the quantization_config that `where` holds. ExportError if not supported."""
        self._source = source
        self._where = where
        self._layout = layout = _read_layout(where, config)
        self._stored = stored = set(source.names())
        companions = (*layout.needed, *layout.optional)
        layers = {name.removesuffix(f".{layout.numbers}") for name in stored} - stored
        # compressed-tensors calls the numbers `weight`, as other layers call their floats.
        self._layers = {
            f"{layer}.weight": layer
            for layer in layers
            if layout.numbers != "weight"
            or source.stored_dtype(f"{layer}.weight") == "I8"
            or any(f"{layer}.{suffix}" in stored for suffix in companions)
        }
        for layer in sorted(self._layers.values()):
            for suffix in layout.needed:
                if f"{layer}.{suffix}" not in stored:
                    raise ExportError(
                        f"{where}: tensor {layer}.{suffix} is missing, expected beside"
                        f" {layer}.{layout.numbers}"
                    )
        hidden = {
            f"{layer}.{suffix}"
            for layer in self._layers.values()
            for suffix in (layout.numbers, *companions)
        }
        self._names = sorted((stored - hidden) | self._layers.keys())

    def names(self) -> Iterable[str]:
        return self._names

    def shape(self, name: str) -> tuple[int, ...]:
        if name not in self._layers:
            return self._source.shape(name)
        layer = self._layers[name]
        numbers = f"{layer}.{self._layout.numbers}"
        stored = self._source.shape(numbers)
        if len(stored) != 2:
            raise ExportError(
                f"{self._where}: tensor {numbers}: expected two dimensions, found {list(stored)}"
            )
        return self._checked(layer, lambda get: self._layout.shape(stored, get))

    def load(self, name: str, rows: slice = ALL_ROWS) -> torch.Tensor:
        if name not in self._layers:
            return self._source.load(name, rows)
        return self._read(name).values()[rows]

    def load_quantized(self, name: str, rows: slice = ALL_ROWS) -> QuantizedWeight | None:
        if name not in self._layers:
            return None
        stored = self._read(name)
        whole = self._checked(self._layers[name], lambda get: stored.quantized())
        return whole if whole is None or rows == ALL_ROWS else whole.rows(rows)

    def reads_rows(self, name: str) -> bool:
        return name not in self._layers and self._source.reads_rows(name)

    def is_quantized(self, name: str) -> bool:
        return name in self._layers

    def group_size(self) -> int | None:
        return self._layout.group_size

    def dtype(self) -> str:
        return "quantized" if self._layers else self._source.dtype()

    def _read(self, name: str) -> Stored:
        expected, layer = self.shape(name), self._layers[name]
        found = self._checked(layer, self._layout.read)
        if tuple(found.numbers.shape) != expected:
            raise ExportError(
                f"{self._where}: tensors {layer}.*: expected a weight of {list(expected)}, found"
                f" {list(found.numbers.shape)}"
            )
        return found

    def _checked(self, layer: str, function: Callable[[Get], Any]) -> Any:
        def get(suffix: str) -> torch.Tensor | None:
            full = f"{layer}.{suffix}"
            return self._source.load(full) if full in self._stored else None

        try:
            return function(get)
        except ValueError as error:
            raise ExportError(f"{self._where}: tensors {layer}.*: {error}") from error


class _Gptq:
    """qweight [in / 8, out], qzeros [groups, out / 8], scales [groups, out], g_idx [in]."""

    numbers = "qweight"
    needed: tuple[str, ...] = ("qzeros", "scales")
    optional: tuple[str, ...] = ("g_idx",)

    def __init__(self, group_size: int | None, zero_offset: int) -> None:
        self.group_size = group_size
        self._zero_offset = zero_offset  # what was taken off when they were stored

    def shape(self, stored: tuple[int, ...], get: Get) -> tuple[int, int]:
        return (stored[1], stored[0] * 8)

    def read(self, get: Get) -> Stored:
        numbers = _unpacked(_matrix(get, "qweight", torch.int32).T)  # [out, in]
        zeros = _unpacked(_matrix(get, "qzeros", torch.int32)) + self._zero_offset & 15
        group_size = self.group_size or numbers.shape[1]
        columns = None
        groups = get("g_idx")
        if groups is not None:
            in_order = torch.arange(numbers.shape[1]) // group_size
            if groups.dim() != 1 or not torch.equal(groups.long().sort()[0], in_order):
                raise ValueError(
                    f"g_idx: expected {len(in_order)} inputs in groups of {group_size}"
                )
            if not torch.equal(groups.long(), in_order):  # desc_act
                columns = groups.argsort(stable=True)
                numbers = numbers[:, columns]
        return _by_groups(numbers, zeros, _matrix(get, "scales"), group_size, columns)


class _Awq:
    """qweight [in, out / 8], qzeros [groups, out / 8], scales [groups, out]."""

    numbers = "qweight"
    needed: tuple[str, ...] = ("qzeros", "scales")
    optional: tuple[str, ...] = ()

    def __init__(self, group_size: int | None) -> None:
        self.group_size = group_size

    def shape(self, stored: tuple[int, ...], get: Get) -> tuple[int, int]:
        return (stored[1] * 8, stored[0])

    def read(self, get: Get) -> Stored:
        def ordered(suffix: str) -> torch.Tensor:
            unpacked = _unpacked(_matrix(get, suffix, torch.int32))
            return unpacked.unflatten(1, (-1, 8))[..., list(AWQ_ORDER)].flatten(1)

        numbers = ordered("qweight").T
        group_size = self.group_size or numbers.shape[1]
        return _by_groups(numbers, ordered("qzeros"), _matrix(get, "scales"), group_size)


class _CompressedIntegers:
    """weight int8 [out, in], weight_scale [out, groups], one column or one number."""

    numbers = "weight"
    needed: tuple[str, ...] = ("weight_scale",)
    optional: tuple[str, ...] = ("weight_zero_point",)

    def __init__(self, group_size: int | None) -> None:
        self.group_size = group_size

    def shape(self, stored: tuple[int, ...], get: Get) -> tuple[int, int]:
        return (stored[0], stored[1])

    def read(self, get: Get) -> Stored:
        numbers = _matrix(get, "weight", torch.int8)
        zeros = get("weight_zero_point")
        if zeros is not None and bool(zeros.any()):
            raise ValueError("weight_zero_point: only symmetric int8 weights are supported")
        return _with_row_scales(numbers, None, get, self.group_size)


class _CompressedWords:
    """weight_packed [out, in / numbers of a word], each number plus half the range."""

    numbers = "weight_packed"
    needed: tuple[str, ...] = ("weight_scale",)
    optional: tuple[str, ...] = ("weight_zero_point", "weight_shape", "weight_g_idx")

    def __init__(self, bits: int, group_size: int | None) -> None:
        self._bits = bits
        self.group_size = group_size

    def shape(self, stored: tuple[int, ...], get: Get) -> tuple[int, int]:
        """weight_shape tells how much of the last word of a row is used."""
        most = (stored[0], stored[1] * (WORD_BITS // self._bits))
        written = get("weight_shape")
        if written is None:
            return most
        shape = tuple(written.flatten().tolist())
        fits = len(shape) == 2 and shape[0] == most[0]
        if not fits or not 0 <= most[1] - shape[1] < WORD_BITS // self._bits:
            raise ValueError(f"weight_shape: expected what {list(most)} holds, found {list(shape)}")
        return (shape[0], shape[1])

    def read(self, get: Get) -> Stored:
        words = _matrix(get, "weight_packed", torch.int32)
        if get("weight_g_idx") is not None:
            raise ValueError("weight_g_idx: activation order is not supported")
        out_features, in_features = self.shape(tuple(words.shape), get)
        numbers = _unpacked(words, self._bits)[:, :in_features]
        zeros = None
        if get("weight_zero_point") is not None:
            packed = _matrix(get, "weight_zero_point", torch.int32)
            zeros = _unpacked(packed.T, self._bits).T[:out_features]
        if self._bits == 8:
            if zeros is not None and bool((zeros != 128).any()):
                raise ValueError("weight_zero_point: only symmetric int8 weights are supported")
            signed = (numbers ^ 128).contiguous().view(torch.int8)
            return _with_row_scales(signed, None, get, self.group_size)
        if zeros is None:
            zeros = torch.full(_matrix(get, "weight_scale").shape, 8, dtype=torch.uint8)
        return _with_row_scales(numbers, zeros, get, self.group_size)


def _matrix(get: Get, suffix: str, dtype: torch.dtype | None = None) -> torch.Tensor:
    """A tensor of two dimensions; without a dtype one of floats."""
    found = get(suffix)
    if found is None:
        raise ValueError(f"{suffix} is missing")
    if found.dim() != 2:
        raise ValueError(f"{suffix}: expected two dimensions, found {list(found.shape)}")
    if dtype is None:
        return _of_floats(suffix, found)
    if found.dtype != dtype:
        raise ValueError(f"{suffix}: expected {str(dtype)[6:]}, found {str(found.dtype)[6:]}")
    return found


def _of_floats(suffix: str, found: torch.Tensor) -> torch.Tensor:
    if not found.is_floating_point():
        raise ValueError(f"{suffix}: expected floats, found {str(found.dtype)[6:]}")
    return found


def _unpacked(words: torch.Tensor, bits: int = 4) -> torch.Tensor:
    """uint8 [rows, numbers] of int32 [rows, words], the lowest bits first."""
    shifts = torch.arange(0, WORD_BITS, bits, dtype=torch.int32)
    numbers = words[:, :, None] >> shifts & (1 << bits) - 1
    return numbers.to(torch.uint8).flatten(1)


def _with_row_scales(
    numbers: torch.Tensor, zeros: torch.Tensor | None, get: Get, group_size: int | None
) -> Stored:
    """Scales for groups of a row; without a group size for a row, or one for all."""
    out_features, in_features = numbers.shape
    one = get("weight_scale")
    if group_size is None and one is not None and one.numel() == 1:
        scales = _of_floats("weight_scale", one).reshape(1, 1).expand(out_features, 1)
        if zeros is not None and zeros.numel() == 1:
            zeros = zeros.reshape(1, 1).expand(out_features, 1)
    else:
        scales = _matrix(get, "weight_scale")
    group_size = group_size or in_features
    expected = (out_features, -(-in_features // group_size))
    _check_groups(expected, weight_scale=scales, weight_zero_point=zeros)
    return Stored(numbers.contiguous(), scales, zeros, group_size)


def _by_groups(
    numbers: torch.Tensor,
    zeros: torch.Tensor,
    scales: torch.Tensor,
    group_size: int,
    columns: torch.Tensor | None = None,
) -> Stored:
    """numbers [out, in], zeros and scales [groups, out], as GPTQ and AWQ have them."""
    out_features, in_features = numbers.shape
    _check_groups((-(-in_features // group_size), out_features), scales=scales, qzeros=zeros)
    return Stored(numbers.contiguous(), scales.T, zeros.T, group_size, columns)


def _check_groups(expected: tuple[int, int], **tensors: torch.Tensor | None) -> None:
    for name, found in tensors.items():
        if found is not None and tuple(found.shape) != expected:
            raise ValueError(f"{name}: expected {list(expected)}, found {list(found.shape)}")


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
    _check_kv_cache_scheme(reader, config)
    for key in ("sparsity_config", "transform_config"):
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


def quantizes_cache_alone(where: str, config: dict[str, Any]) -> bool:
    """Whether a quantization_config of compressed-tensors is about the KV cache and no weight.
    ExportError if its kv_cache_scheme is not supported."""
    if str(config.get("quant_method", "")).lower() != "compressed-tensors":
        return False
    if config.get("config_groups") or not config.get("kv_cache_scheme"):
        return False
    _check_kv_cache_scheme(_Settings(where, config), config)
    return True


def _check_kv_cache_scheme(reader: _Settings, config: dict[str, Any]) -> None:
    """What it says is in k_scale and v_scale of the layers (kv_scales.py)."""
    scheme = config.get("kv_cache_scheme")
    if not scheme:
        return
    if not isinstance(scheme, dict):
        reader.refuse("kv_cache_scheme", "an object", scheme)
    inner = _Settings(reader.where, scheme, "kv_cache_scheme.")
    inner.expect("type", "float")
    inner.expect("num_bits", 8)
    inner.expect("strategy", "tensor", default="tensor")
    inner.expect("dynamic", False, default=False)
    inner.expect("symmetric", True, default=True)


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
    return bits, inner.group_size("group_size", rows=False) if strategy == "group" else None


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

    def group_size(self, key: str, rows: bool = True) -> int | None:
        """None for -1, which stands for a whole row where `rows` are allowed."""
        value = self._config.get(key)
        if rows and value == -1 and not isinstance(value, bool):
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            self.refuse(key, "a positive integer or -1" if rows else "a positive integer", value)
        return int(value)
