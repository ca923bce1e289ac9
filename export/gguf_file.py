"""Reads a GGUF file into a Checkpoint: the model of a known architecture, the text of any.

Names and settings become those of a Hugging Face directory, so that everything behind this file
sees one spelling. Tensors are read one at a time, quantised ones in floats or as they are.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader, ReaderTensor

from pinfer.export.checkpoint import Checkpoint, NoTensors
from pinfer.export.errors import ExportError
from pinfer.export.gguf_architectures import find_architecture, model_config
from pinfer.export.gguf_metadata import POOLING_TYPES, read_values
from pinfer.export.gguf_tensors import GgufSource
from pinfer.export.model_dir import find_licences
from pinfer.export.tokenizer_gguf import tokenizer_from_gguf

# Ends of a text, of a turn and of a message; a request ends at any of them.
END_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")
SPECIAL_TOKEN_KEYS = {
    "bos": "bos_token",
    "eos": "eos_token",
    "unknown": "unk_token",
    "padding": "pad_token",
    "seperator": "sep_token",  # as GGUF spells it
    "cls": "cls_token",
    "mask": "mask_token",
}
TEMPLATE_KEY = "tokenizer.chat_template"
# Sampling defaults that a file may carry, by generation_config.json's names.
SAMPLING_KEYS = {
    "temp": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "penalty_repeat": "repetition_penalty",
}
SHARD = re.compile(r"(.*)-(\d{5})-of-(\d{5})")  # the stem of a file of several


class PlainReader(GGUFReader):
    """The file as a plain array: the package's own kind costs a microsecond more at each of the
    millions of slices that a large vocabulary takes."""

    @property
    def data(self) -> np.ndarray:
        return self._data

    @data.setter
    def data(self, mapped: np.memmap) -> None:
        self._data = np.asarray(mapped)


def read_gguf(path: Path, text_only: bool = False) -> Checkpoint:
    """The checkpoint in a GGUF file, or in all of a model's where `path` is the first of them.
    ExportError for other architectures or missing metadata; the text alone can be had of any."""
    reader = _open(path)
    metadata = read_values(str(path), reader)
    shard = SHARD.fullmatch(path.stem)
    if text_only:
        config, tensors = _text_config(metadata), None
    else:
        config, tensors = _model(path, reader, metadata)
    return Checkpoint(
        name=path.stem if shard is None else shard[1],
        source=str(path),
        config=config,
        tensors=tensors or NoTensors(),
        dtype="" if tensors is None else tensors.dtype(),
        tokenizer=tokenizer_from_gguf(metadata),
        tokenizer_config=_tokenizer_config(metadata),
        generation_config=_generation_config(metadata),
        chat_template=_chat_template(metadata),
        licence_files=find_licences(path.parent),
        pooling_mode=_pooling_mode(metadata),
    )


def _open(path: Path) -> GGUFReader:
    if not path.is_file():
        raise ExportError(f"{path}: file not found")
    try:
        return PlainReader(path)
    except Exception as error:  # the package raises many kinds for a damaged file
        raise ExportError(f"{path}: not a readable GGUF file: {error}") from error


def _model(
    path: Path, reader: GGUFReader, metadata: dict[str, Any]
) -> tuple[dict[str, Any], GgufSource]:
    architecture = find_architecture(str(path), metadata)
    tensors = _tensors(path, reader, metadata)
    config = model_config(str(path), metadata, architecture, tensors)
    config |= _text_config(metadata)
    return config, GgufSource(str(path), tensors.values(), architecture, config)


def _tensors(path: Path, reader: GGUFReader, metadata: dict[str, Any]) -> dict[str, ReaderTensor]:
    """By name, those of the other files of the model included."""
    readers = [reader, *(_open(other) for other in _other_files(path, metadata))]
    found: dict[str, ReaderTensor] = {}
    for each in readers:
        for tensor in each.tensors:
            if tensor.name in found:
                raise ExportError(f"{path}: tensor {tensor.name!r} stands there twice")
            found[tensor.name] = tensor
    expected = metadata.get("split.tensors.count", len(found))
    if expected != len(found):
        raise ExportError(f"{path}: expected {expected} tensors in all files, found {len(found)}")
    return found


def _other_files(path: Path, metadata: dict[str, Any]) -> list[Path]:
    count, number = metadata.get("split.count", 1), metadata.get("split.no", 0)
    if count in (0, 1):
        return []
    match = SHARD.fullmatch(path.stem)
    if number != 0 or match is None or int(match[2]) != 1 or int(match[3]) != count:
        raise ExportError(
            f"{path}: file {number + 1} of a model in {count}; expected the first,"
            f" NAME-00001-of-{count:05}.gguf"
        )
    return [path.with_stem(f"{match[1]}-{i + 1:05}-of-{count:05}") for i in range(1, count)]


def _text_config(metadata: dict[str, Any]) -> dict[str, Any]:
    """What the text part reads of config.json."""
    return {
        "bos_token_id": metadata.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": metadata.get("tokenizer.ggml.eos_token_id"),
    }


def _pooling_mode(metadata: dict[str, Any]) -> str | None:
    architecture = metadata.get("general.architecture")
    return POOLING_TYPES.get(metadata.get(f"{architecture}.pooling_type", 0))


def _chat_template(metadata: dict[str, Any]) -> str | list[dict[str, str]] | None:
    """One template, or all of them with their names."""
    main = metadata.get(TEMPLATE_KEY)
    named = {
        key.removeprefix(f"{TEMPLATE_KEY}."): template
        for key, template in metadata.items()
        if key.startswith(f"{TEMPLATE_KEY}.")
    }
    for name, template in {"": main or "", **named}.items():
        if not isinstance(template, str):
            key = f"{TEMPLATE_KEY}.{name}".rstrip(".")
            raise ExportError(f"GGUF: {key}: expected text, found {template!r}")
    if not named:
        return main
    listed = [{"name": name, "template": template} for name, template in sorted(named.items())]
    return listed if main is None else [{"name": "default", "template": main}, *listed]


def _generation_config(metadata: dict[str, Any]) -> dict[str, Any]:
    sampling = {
        ours: metadata[f"general.sampling.{theirs}"]
        for theirs, ours in SAMPLING_KEYS.items()
        if f"general.sampling.{theirs}" in metadata
    }
    return {"eos_token_id": _end_ids(metadata), **sampling}


def _end_ids(metadata: dict[str, Any]) -> list[Any]:
    found = [metadata.get(f"tokenizer.ggml.{key}") for key in END_KEYS]
    return [value for value in found if value is not None]


def _tokenizer_config(metadata: dict[str, Any]) -> dict[str, Any]:
    tokens = metadata.get("tokenizer.ggml.tokens") or []
    config: dict[str, Any] = {}
    for kind, name in SPECIAL_TOKEN_KEYS.items():
        index = metadata.get(f"tokenizer.ggml.{kind}_token_id")
        if index is not None and 0 <= index < len(tokens):
            config[name] = tokens[index]
    return config
