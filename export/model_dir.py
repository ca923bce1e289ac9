"""Reads a Hugging Face model directory into a Checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pinfer.export.checkpoint import Checkpoint, NoTensors
from pinfer.export.errors import ExportError
from pinfer.export.json_file import read_json_object
from pinfer.export.multimodal import is_multimodal, text_config, text_tensors
from pinfer.export.quantized_checkpoint import QuantizedSource, quantizes_cache_alone
from pinfer.export.safetensors_file import SafetensorsSource
from pinfer.export.template_tree import named_templates
from pinfer.export.tokenizer_added_tokens import tokens_to_add, with_added_tokens
from pinfer.export.tokenizer_special_tokens import named_special_values
from pinfer.export.torch_file import TorchSource
from pinfer.export.weight_files import open_directory

LICENCE_PATTERNS = ("LICENSE*", "LICENCE*", "NOTICE*", "USE_POLICY*")


def read_model_dir(directory: Path, text_only: bool = False) -> Checkpoint:
    """The checkpoint in `directory`. ExportError names the file that is missing or damaged.
    The text alone needs neither config.json nor weights."""
    config = read_json_object(directory / "config.json", required=not text_only)
    tensors, warnings = None, ()
    if not text_only:
        tensors = _read_tensors(directory, config)
    if is_multimodal(config):
        config = text_config(str(directory), config)
        if tensors is not None:
            tensors, warnings = text_tensors(tensors, tensors.dtype())
    tokenizer_path = directory / "tokenizer.json"
    if not tokenizer_path.is_file():
        raise ExportError(f"{tokenizer_path}: file not found (a fast tokenizer is needed)")
    tokenizer_config = read_json_object(directory / "tokenizer_config.json", required=False)
    special_tokens_map = read_json_object(directory / "special_tokens_map.json", required=False)
    tokenizer = read_json_object(tokenizer_path)
    named = named_special_values(tokenizer_config, special_tokens_map, config, tokenizer)
    added = read_json_object(directory / "added_tokens.json", required=False)
    files = (tokenizer_config, special_tokens_map, added, tokenizer)
    return Checkpoint(
        name=directory.resolve().name,
        source=str(directory),
        config=config,
        tensors=tensors or NoTensors(),
        dtype="" if tensors is None else tensors.dtype(),
        tokenizer=with_added_tokens(tokenizer, tokens_to_add(*files, named, str(directory))),
        tokenizer_config=tokenizer_config,
        special_tokens_map=special_tokens_map,
        generation_config=read_json_object(directory / "generation_config.json", required=False),
        chat_template=read_chat_template(directory, tokenizer_config),
        licence_files=find_licences(directory),
        warnings=warnings,
    )


def _read_tensors(
    directory: Path, config: dict[str, Any]
) -> SafetensorsSource | TorchSource | QuantizedSource:
    """Takes what it has understood out of the config."""
    source = open_directory(directory)
    quantization = config.pop("quantization_config", None)
    if quantization is None:
        return source
    where = str(directory / "config.json")
    if not isinstance(quantization, dict):
        raise ExportError(f"{where}: quantization_config: expected an object")
    if quantizes_cache_alone(where, quantization):
        return source
    return QuantizedSource(source, where, quantization)


def read_chat_template(
    directory: Path, tokenizer_config: dict[str, Any]
) -> str | list[dict[str, str]] | None:
    """Files of templates win over the tokenizer_config's field."""
    files = {"default": directory / "chat_template.jinja"}
    for path in sorted((directory / "additional_chat_templates").glob("*.jinja")):
        files[path.stem] = path
    found = {name: _read_text(path) for name, path in files.items() if path.is_file()}
    if not found:
        written = tokenizer_config.get("chat_template")
        if written is None:
            return None
        found = dict(
            named_templates(written, f"{directory / 'tokenizer_config.json'}: chat_template")
        )
    if list(found) == ["default"]:
        return found["default"]
    return [{"name": name, "template": template} for name, template in found.items()]


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ExportError(f"{path}: not valid UTF-8: {error}") from error


def find_licences(directory: Path) -> tuple[Path, ...]:
    found = {path for pattern in LICENCE_PATTERNS for path in directory.glob(pattern)}
    return tuple(sorted(path for path in found if path.is_file()))
