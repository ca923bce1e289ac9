"""Checkpoints that are quantised already, packed number by number as each format says.

Nothing of the exporter is used here: a Weight is what a checkpoint means, functions write it as
GPTQ, AWQ, compressed-tensors and GGUF store it, and `bundle_bytes` packs it as
csrc/kernels/quantized_weight.h has it.
"""

import json
import struct
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
import torch
from safetensors.torch import load_file, save_file

WORD_BITS = 32
AWQ_NIBBLES = (0, 2, 4, 6, 1, 3, 5, 7)  # the output that each nibble of a word is for
PANEL, ROW_BYTES, INT8_GROUP, INT8_BLOCK = 16, 64, 32, 64


@dataclass
class Weight:
    """(number - zero) * scale, each number with the scale and the zero of its group."""

    numbers: np.ndarray  # int64 [out, in]: 0 ... 15, of 8 bits -128 ... 127
    scales: np.ndarray  # float [out, groups]
    zeros: np.ndarray | None  # int64 [out, groups]
    group_of: np.ndarray  # int64 [in]

    def values(self) -> torch.Tensor:
        """float64 [out, in]."""
        numbers = self.numbers.astype(np.float64)
        if self.zeros is not None:
            numbers = numbers - self.zeros[:, self.group_of]
        return torch.from_numpy(numbers * self.scales.astype(np.float64)[:, self.group_of])

    def minima(self) -> np.ndarray:
        """What the number 0 stands for, rounded to float16 once."""
        return (-self.zeros * self.scales.astype(np.float64)).astype(np.float16)


def random_weight(
    out_features, in_features, group_size, bits=4, seed=0, zeros=True, dtype=np.float16
):
    """Every number, the smallest and the largest too. `zeros`: True, False, or one for all."""
    random = np.random.default_rng([seed, out_features, in_features])
    group_size = in_features if group_size == -1 else group_size
    groups = -(-in_features // group_size)
    low, high = (0, 15) if bits == 4 else (-128, 127)
    numbers = random.integers(low, high + 1, (out_features, in_features))
    numbers[0, 0], numbers[-1, -1] = low, high
    scales = random.uniform(0.01, 0.03, (out_features, groups)) / (1 if bits == 4 else 16)
    zero = None
    if zeros is True:
        zero = random.integers(0, 16, (out_features, groups))
        zero[0, 0], zero[-1, -1] = 0, 15
    elif zeros is not False:
        zero = np.full((out_features, groups), zeros)
    group_of = np.arange(in_features) // group_size
    return Weight(numbers, scales.astype(dtype), zero, group_of)


# ---- how the formats store it ----


def word(numbers, bits):
    """An int32 with the first number in its lowest bits."""
    total = 0
    for i, number in enumerate(numbers):
        assert 0 <= number < 1 << bits
        total |= int(number) << (i * bits)
    return total - (1 << WORD_BITS) if total >> (WORD_BITS - 1) else total


def rows_of_words(rows, bits=4, order=None):
    """int32: each row cut into words, the last one filled up with zero bits."""
    per_word = WORD_BITS // bits
    order = range(per_word) if order is None else order
    found = []
    for row in rows:
        row = [*row, *[0] * (-len(row) % per_word)]
        found.append(
            [word([row[i + place] for place in order], bits) for i in range(0, len(row), per_word)]
        )
    return torch.tensor(found, dtype=torch.int32)


def stored_scales(weight):
    """As a tensor [out, groups]."""
    return torch.from_numpy(np.ascontiguousarray(weight.scales))


def gptq(weight, version=1, with_groups=True):
    """qweight [in / 8, out]: along the inputs; qzeros [groups, out / 8]: along the outputs. The
    first version takes 1 off a zero, in 4 bits."""
    zeros = (weight.zeros.T - (1 if version == 1 else 0)) % 16
    tensors = {
        "qweight": rows_of_words(weight.numbers).T.contiguous(),
        "qzeros": rows_of_words(zeros),
        "scales": stored_scales(weight).T.contiguous(),
    }
    if with_groups:
        tensors["g_idx"] = torch.from_numpy(weight.group_of).int()
    return tensors


def awq(weight):
    """Everything along the outputs, in AWQ's order."""
    return {
        "qweight": rows_of_words(weight.numbers.T, order=AWQ_NIBBLES),
        "qzeros": rows_of_words(weight.zeros.T, order=AWQ_NIBBLES),
        "scales": stored_scales(weight).T.contiguous(),
    }


def compressed_integers(weight):
    return {
        "weight": torch.from_numpy(weight.numbers.astype(np.int8)),
        "weight_scale": stored_scales(weight),
    }


def compressed_words(weight, bits, with_zeros):
    """Numbers of -8 ... 7 or -128 ... 127 plus half the range; zeros packed along the outputs."""
    half = 1 << (bits - 1)
    numbers = weight.numbers if bits == 4 else weight.numbers + half
    tensors = {
        "weight_packed": rows_of_words(numbers, bits),
        "weight_scale": stored_scales(weight),
        "weight_shape": torch.tensor(weight.numbers.shape),
    }
    if with_zeros:
        zeros = weight.zeros if bits == 4 else np.full(weight.scales.shape, half)
        tensors["weight_zero_point"] = rows_of_words(zeros.T, bits).T.contiguous()
    return tensors


def quantization_config(method, **changes):
    settings = {
        "gptq": {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": False},
        "awq": {"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm"},
    }[method]
    return {**settings, **changes}


def compressed_config(stored_as, bits, strategy, group_size=None, **changes):
    weights = {
        "type": "int", "num_bits": bits, "strategy": strategy, "group_size": group_size,
        "symmetric": True, "dynamic": False,
    }  # fmt: skip
    group = {"targets": ["Linear"], "weights": weights, "input_activations": None}
    return {
        "quant_method": "compressed-tensors",
        "format": stored_as,
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
        "kv_cache_scheme": None,
        "quantization_status": "compressed",
        **changes,
    }


def write_model(original: Path, folder: Path, config, layers) -> Path:
    """A copy of a checkpoint of float weights, some of them replaced. `layers`: tensors by suffix,
    by the layer's name."""
    folder.mkdir()
    for path in original.iterdir():
        if path.suffix != ".safetensors":
            (folder / path.name).write_bytes(path.read_bytes())
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**settings, "quantization_config": config}))
    tensors = load_file(original / "model.safetensors")
    for layer, stored in layers.items():
        del tensors[f"{layer}.weight"]
        tensors |= {f"{layer}.{suffix}": value for suffix, value in stored.items()}
    save_file(tensors, folder / "model.safetensors")
    return folder


# ---- GGUF ----

GGUF_BLOCK = 32
GGUF_SIZES = {"embedding": 64, "inner": 256, "heads": 4, "kv_heads": 2, "head": 16}
GGUF_TOKENS = ["<unk>", "<s>", "</s>", "▁", "a", "b", "c"]


def gguf_blocks(kind, weight):
    """uint8 [rows, bytes]. `weight` has the minima of Q4_1 as its zeros."""
    code = {"Q8_0": "<e32b", "Q4_0": "<e16B", "Q4_1": "<ee16B"}[kind.name]
    rows = []
    minima_of_rows = weight.zeros if kind.name == "Q4_1" else weight.scales
    for numbers, scales, minima in zip(weight.numbers, weight.scales, minima_of_rows, strict=True):
        row = b""
        for i, (scale, minimum) in enumerate(zip(scales, minima, strict=True)):
            block = [int(n) for n in numbers[i * GGUF_BLOCK : (i + 1) * GGUF_BLOCK]]
            if kind.name != "Q8_0":
                block = [low | high << 4 for low, high in zip(block[:16], block[16:], strict=True)]
            header = [scale, minimum] if kind.name == "Q4_1" else [scale]
            row += struct.pack(code, *header, *block)
        rows.append(np.frombuffer(row, np.uint8))
    return np.stack(rows)


def read_gguf_blocks(kind, data):
    """(numbers, scales, minima) of uint8 [rows, bytes]; no minima of Q8_0."""
    code = {"Q8_0": "<e32b", "Q4_0": "<e16B", "Q4_1": "<ee16B"}[kind.name]
    numbers, scales, minima = [], [], []
    for row in data:
        fields = list(struct.iter_unpack(code, row.tobytes()))
        body = 2 if kind.name == "Q4_1" else 1
        if kind.name == "Q8_0":
            numbers.append([n for block in fields for n in block[body:]])
        else:
            halves = [[b & 15 for b in f[body:]] + [b >> 4 for b in f[body:]] for f in fields]
            numbers.append([n for block in halves for n in block])
        scales.append([f[0] for f in fields])
        minima.append([f[1] if kind.name == "Q4_1" else -8 * f[0] for f in fields])
    scales, minima = np.array(scales, np.float16), np.array(minima).astype(np.float16)
    return np.array(numbers), scales, None if kind.name == "Q8_0" else minima


def gguf_row(row, head_size):
    """Where GGUF has a row of q or k: the two halves of a head take turns."""
    head, place = divmod(row, head_size)
    half, pair = divmod(place, head_size // 2)
    return head * head_size + 2 * pair + half


def gguf_layer_shapes(layer=0):
    """[out, in] of the linear weights, under GGUF's names."""
    sizes = GGUF_SIZES
    hidden, inner = sizes["embedding"], sizes["inner"]
    kv, q = sizes["kv_heads"] * sizes["head"], sizes["heads"] * sizes["head"]
    shapes = {
        "attn_q": (q, hidden), "attn_k": (kv, hidden), "attn_v": (kv, hidden),
        "attn_output": (hidden, q), "ffn_gate": (inner, hidden), "ffn_up": (inner, hidden),
        "ffn_down": (hidden, inner),
    }  # fmt: skip
    return {f"blk.{layer}.{name}.weight": shape for name, shape in shapes.items()}


def write_gguf(path, tensors):
    """One layer. `tensors`: (bytes, kind) by GGUF's names; norms and the table are written too."""
    writer = gguf.GGUFWriter(path, "llama")
    sizes = GGUF_SIZES
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_embedding_length(sizes["embedding"])
    writer.add_feed_forward_length(sizes["inner"])
    writer.add_head_count(sizes["heads"])
    writer.add_head_count_kv(sizes["kv_heads"])
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(GGUF_TOKENS)
    writer.add_token_scores([0.0] * len(GGUF_TOKENS))
    writer.add_token_types([2, 3, 3, 1, 1, 1, 1])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    ones = np.ones(sizes["embedding"], np.float32)
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        writer.add_tensor(f"{name}.weight", ones)
    if "token_embd.weight" not in tensors:
        table = np.random.default_rng(0).normal(size=(len(GGUF_TOKENS), sizes["embedding"]))
        writer.add_tensor("token_embd.weight", table.astype(np.float32))
    for name, (data, kind) in tensors.items():
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


# ---- how a bundle stores it ----


def in_groups(values, weight, group_size):
    """Of each group of a bundle, the value of the group that its first number is in."""
    return values[:, weight.group_of[::group_size]]


def cat(weights):
    """One after another along the outputs."""
    zeros = [w.zeros for w in weights]
    return Weight(
        np.concatenate([w.numbers for w in weights]),
        np.concatenate([w.scales for w in weights]),
        None if zeros[0] is None else np.concatenate(zeros),
        weights[0].group_of,
    )


def bundle_bytes(weight, group_size):
    """The packed tensor's bytes, flat uint8; int4 where the weight has zeros."""
    scales = in_groups(weight.scales.astype(np.float16), weight, group_size)
    if weight.zeros is None:
        return int8_bytes(weight.numbers, scales)
    return int4_bytes(weight.numbers, scales, in_groups(weight.minima(), weight, group_size),
                      group_size)  # fmt: skip


def int4_bytes(numbers, scales, minima, group_size):
    out_features, in_features = numbers.shape
    blocks = -(-in_features // group_size)
    block_bytes = ROW_BYTES + group_size // 8 * ROW_BYTES
    data = np.zeros(-(-out_features // PANEL) * blocks * block_bytes, np.uint8)
    row, column = np.indices(numbers.shape)
    block = (row // PANEL * blocks + column // group_size) * block_bytes
    place = column % group_size
    at = block + ROW_BYTES + place // 8 * ROW_BYTES + row % PANEL * 4 + place % 4
    np.add.at(data, at, (numbers << np.where(place % 8 < 4, 0, 4)).astype(np.uint8))
    row, group = np.indices(scales.shape)
    block = (row // PANEL * blocks + group) * block_bytes
    put_halves(data, block + row % PANEL * 2, scales)
    put_halves(data, block + 2 * PANEL + row % PANEL * 2, minima)
    return data


def int8_bytes(numbers, scales):
    out_features, in_features = numbers.shape
    blocks = -(-in_features // INT8_BLOCK)
    block_bytes = ROW_BYTES + INT8_BLOCK // 4 * ROW_BYTES
    data = np.zeros(-(-out_features // PANEL) * blocks * block_bytes, np.uint8)
    row, column = np.indices(numbers.shape)
    block = (row // PANEL * blocks + column // INT8_BLOCK) * block_bytes
    place = column % INT8_BLOCK
    at = block + ROW_BYTES + place // 4 * ROW_BYTES + row % PANEL * 4 + place % 4
    data[at] = numbers.astype(np.int8).view(np.uint8)
    row, group = np.indices(scales.shape)
    block = (row // PANEL * blocks + group // 2) * block_bytes
    put_halves(data, block + group % 2 * 2 * PANEL + row % PANEL * 2, scales)
    return data


def without_negative_zeros(data, group_size):
    """Bytes of an int4 weight: a minimum of -0 becomes 0."""
    blocks = data.reshape(-1, ROW_BYTES + group_size // 8 * ROW_BYTES).copy()
    minima = blocks[:, 2 * PANEL : ROW_BYTES].copy().view("<u2")
    minima[minima == 0x8000] = 0
    blocks[:, 2 * PANEL : ROW_BYTES] = minima.view(np.uint8)
    return blocks.flatten()


def put_halves(data, at, values):
    both = np.ascontiguousarray(values.astype("<f2")).view(np.uint8).reshape(*values.shape, 2)
    data[at], data[at + 1] = both[..., 0], both[..., 1]
