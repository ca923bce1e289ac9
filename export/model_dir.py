"""Reads a Hugging Face model directory into a Checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pinfer.export.checkpoint import Checkpoint, NoTensors
from pinfer.export.errors import ExportError
from pinfer.export.json_file import read_json_object
from pinfer.export.safetensors_file import open_directory

LICENCE_PATTERNS = ("LICENSE*", "LICENCE*", "NOTICE*", "USE_POLICY*")


def read_model_dir(directory: Path, text_only: bool = False) -> Checkpoint:
    """The checkpoint in `directory`. ExportError names the file that is missing or damaged.
    The text alone needs neither config.json nor weights."""
    config = read_json_object(directory / "config.json", required=not text_only)
    tensors = None if text_only else open_directory(directory)
    tokenizer_path = directory / "tokenizer.json"
    if not tokenizer_path.is_file():
        raise ExportError(f"{tokenizer_path}: file not found (a fast tokenizer is needed)")
    tokenizer_config = read_json_object(directory / "tokenizer_config.json", required=False)
    return Checkpoint(
        name=directory.resolve().name,
        source=str(directory),
        config=config,
        tensors=tensors or NoTensors(),
        dtype="" if tensors is None else tensors.dtype(),
        tokenizer=read_json_object(tokenizer_path),
        tokenizer_config=tokenizer_config,
        special_tokens_map=read_json_object(directory / "special_tokens_map.json", required=False),
        generation_config=read_json_object(directory / "generation_config.json", required=False),
        chat_template=read_chat_template(directory, tokenizer_config),
        licence_files=find_licences(directory),
    )


def read_chat_template(
    directory: Path, tokenizer_config: dict[str, Any]
) -> str | list[dict[str, str]] | None:
    """chat_template.jinja wins over the tokenizer_config's field."""
    path = directory / "chat_template.jinja"
    if path.is_file():
        try:
            main = path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ExportError(f"{path}: not valid UTF-8: {error}") from error
        named = sorted((directory / "additional_chat_templates").glob("*.jinja"))
        if not named:
            return main
        others = [{"name": p.stem, "template": p.read_text(encoding="utf-8")} for p in named]
        return [{"name": "default", "template": main}, *others]
    return tokenizer_config.get("chat_template")


def find_licences(directory: Path) -> tuple[Path, ...]:
    found = {path for pattern in LICENCE_PATTERNS for path in directory.glob(pattern)}
    return tuple(sorted(path for path in found if path.is_file()))
