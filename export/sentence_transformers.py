"""How a model directory says that it embeds: the files that sentence-transformers writes beside a
checkpoint. Only what the engine computes is let through; the rest is refused by name."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pinfer.export.errors import ExportError
from pinfer.export.json_file import read_json_object

MODULES = "modules.json"
PROMPTS = "config_sentence_transformers.json"
TRANSFORMER_SETTINGS = "sentence_bert_config.json"
# The pooling modes that are computed, and what the manifest calls them.
MODES = {"lasttoken": "last", "mean": "mean"}
# Older files have a switch for each mode; where one is absent, this is its default.
MODE_SWITCHES = {
    "pooling_mode_cls_token": ("cls", False),
    "pooling_mode_mean_tokens": ("mean", True),
    "pooling_mode_max_tokens": ("max", False),
    "pooling_mode_mean_sqrt_len_tokens": ("mean_sqrt_len_tokens", False),
    "pooling_mode_weightedmean_tokens": ("weightedmean", False),
    "pooling_mode_lasttoken": ("lasttoken", False),
}
# What else a file may say, if it says this.
POOLING_SETTINGS: dict[str, Any] = {"include_prompt": True}
MODULE_SETTINGS: dict[str, Any] = {
    "do_lower_case": False,
    "transformer_task": "feature-extraction",
    "module_output_name": "token_embeddings",
    "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
}


@dataclass(frozen=True)
class Pooling:
    """The manifest's entry: how hidden states become one vector, and the texts before inputs."""

    mode: str = "last"  # or "mean"
    normalize: bool = True  # to length 1
    prompts: dict[str, str] = field(default_factory=dict)  # by name
    default_prompt_name: str | None = None

    def entry(self) -> dict[str, Any]:
        return asdict(self)


def is_embedding_model(directory: Path) -> bool:
    return (directory / MODULES).is_file()


def read_pooling(directory: Path, hidden_size: int, stored_mode: str | None = None) -> Pooling:
    """What the directory's files say; where there are none, the mode that the checkpoint itself
    names, or the last token, normalised."""
    if not is_embedding_model(directory):
        return Pooling(stored_mode or "last")
    mode, normalize = None, False
    for kind, folder in _modules(directory):
        if kind == "Transformer" and mode is None and folder == directory:
            continue
        if kind == "Pooling" and mode is None:
            mode = _pooling_mode(folder / "config.json", hidden_size)
        elif kind == "Normalize" and mode is not None:
            normalize = True
        else:
            raise ExportError(
                f"{directory / MODULES}: module {kind} of folder {folder.name!r} is not supported:"
                " expected Transformer in the directory itself, Pooling, Normalize"
            )
    if mode is None:
        raise ExportError(f"{directory / MODULES}: there is no Pooling module")
    prompts, default = _prompts(directory / PROMPTS)
    return Pooling(mode, normalize, prompts, default)


def longest_input(directory: Path, tokenizer_config: dict[str, Any]) -> int | None:
    """Tokens after which sentence-transformers cuts an input, beside what the model can hold."""
    path = directory / TRANSFORMER_SETTINGS
    settings = read_json_object(path, required=False)
    _refuse_others(path, settings, {"max_seq_length"}, MODULE_SETTINGS)
    limit = settings.get("max_seq_length")
    if limit is None:
        limit = tokenizer_config.get("model_max_length")
        return limit if isinstance(limit, int) and limit > 0 else None
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise ExportError(f"{path}: max_seq_length: expected an integer >= 1, found {limit!r}")
    return limit


def _modules(directory: Path) -> list[tuple[str, Path]]:
    """Kind ("Pooling") and folder of each."""
    path = directory / MODULES
    try:
        listed = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ExportError(f"{path}: not valid JSON: {error}") from error
    modules = []
    for entry in listed if isinstance(listed, list) else [None]:
        kind, folder = (entry.get(k) if isinstance(entry, dict) else None for k in ("type", "path"))
        if not isinstance(kind, str) or not isinstance(folder, str):
            raise ExportError(f"{path}: expected a list of modules with type and path")
        if Path(folder).is_absolute() or ".." in Path(folder).parts:
            raise ExportError(f"{path}: path {folder!r}: expected a folder of the directory")
        modules.append((kind.rsplit(".", 1)[-1], directory / folder))
    return modules


def _pooling_mode(path: Path, hidden_size: int) -> str:
    settings = read_json_object(path)
    sizes = ("word_embedding_dimension", "embedding_dimension")
    _refuse_others(path, settings, {"pooling_mode", *sizes, *MODE_SWITCHES}, POOLING_SETTINGS)
    for key in sizes:
        if settings.get(key, hidden_size) != hidden_size:
            raise ExportError(
                f"{path}: {key} is {settings[key]!r}, the model's hidden_size {hidden_size}"
            )
    named = settings.get("pooling_mode")
    if named is None:
        modes = [
            mode for key, (mode, default) in MODE_SWITCHES.items() if settings.get(key, default)
        ]
    else:
        modes = named if isinstance(named, list) else [named]
    if len(modes) != 1 or modes[0] not in MODES:
        raise ExportError(
            f"{path}: pooling mode {' + '.join(map(str, modes)) or 'none'} is not supported"
            f" (supported: {', '.join(MODES)})"
        )
    return MODES[modes[0]]


def _prompts(path: Path) -> tuple[dict[str, str], str | None]:
    settings = read_json_object(path, required=False)
    prompts = settings.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(isinstance(v, str) for v in prompts.values()):
        raise ExportError(f"{path}: prompts: expected an object of texts")
    default = settings.get("default_prompt_name")
    if default is not None and default not in prompts:
        raise ExportError(f"{path}: default_prompt_name {default!r} is the name of no prompt")
    return prompts, default


def _refuse_others(
    path: Path, settings: dict[str, Any], read: set[str], expected: dict[str, Any]
) -> None:
    """A setting that nobody reads could change the numbers; empty ones are let through."""
    for key, value in settings.items():
        if key in read or value is None:
            continue
        if key in expected and value != expected[key]:
            raise ExportError(f"{path}: {key} is {value!r}; only {expected[key]!r} is supported")
        if key not in expected and value not in (False, {}, []):
            raise ExportError(f"{path}: setting that is not supported: {key}={value!r:.80}")
