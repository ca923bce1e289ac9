"""One export from beginning to end: checkpoint -> checks -> artifacts -> weights -> bundle."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from pinfer.export import parts
from pinfer.export.artifact import BuiltArtifact
from pinfer.export.artifact_cache import ArtifactCache, default_cache_folder
from pinfer.export.bundle_writer import BundleWriter
from pinfer.export.calibration import CalibratedTensors
from pinfer.export.checkpoint import Checkpoint
from pinfer.export.choices import (
    choose_dtype,
    choose_formats,
    choose_kv_dtype,
    choose_max_model_len,
    choose_task,
)
from pinfer.export.config import ExportConfig
from pinfer.export.errors import ExportError
from pinfer.export.evaluation import Windows, evaluate, read_windows
from pinfer.export.gguf_file import read_gguf
from pinfer.export.kv_scales import read_kv_scales, scale_entries, scale_warning
from pinfer.export.model_dir import read_model_dir
from pinfer.export.models.registry import read_spec
from pinfer.export.models.spec import ModelSpec
from pinfer.export.packed_tensors import PackedTensors, stored_shape
from pinfer.export.part import Part
from pinfer.export.result_cache import ResultCache
from pinfer.export.sentence_transformers import read_pooling
from pinfer.export.targets import Target, choose_target
from pinfer.export.text import TextPart, add_text, build_text, text_entry, text_manifest
from pinfer.export.text_proof import prove_text
from pinfer.export.weights import (
    WeightFormats,
    WeightsPlan,
    plan_weights,
    write_weights,
)
from pinfer.runtime.bundle.manifest import FORMAT_VERSION

BLOCK_SIZE = 16
# fp8 are its bytes: Triton refuses tensors of that dtype for some architectures.
TORCH_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "int8": torch.int8,
                "float16": torch.float16, "fp8": torch.uint8}  # fmt: skip
ARTIFACT_BYTES = 16 << 20  # more than all artifacts of a bundle take, for the disk check

# Called at the start of every stage with its name, and as it advances with (name, done, total).
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class CompiledPart:
    part: Part
    built: BuiltArtifact


def export(config: ExportConfig, progress: Progress) -> dict[str, Any]:
    """Exports config.model to config.output; returns the manifest. ExportError if it cannot."""
    progress("read", 0, 1)
    checkpoint = read_checkpoint(config.model, text_only=config.only == "text")
    if config.only == "text":
        return _export_text(config, checkpoint, progress)
    target = choose_target(config)
    task = choose_task(config, checkpoint)
    embeds = task == "embed"
    spec = read_spec(checkpoint, embeds)
    pooling = (
        read_pooling(config.model, spec.hidden_size, checkpoint.pooling_mode) if embeds else None
    )
    dtype_name = choose_dtype(config, checkpoint)
    formats = choose_formats(config, dtype_name, checkpoint)
    kv_dtype = choose_kv_dtype(config, dtype_name)
    max_model_len = choose_max_model_len(config, spec, checkpoint, pooling)
    weights = plan_weights(spec, checkpoint, formats, embeds)
    rotaries = [rotary.for_length(max_model_len) for rotary in spec.rotaries]
    kv_scales = read_kv_scales(spec, checkpoint)
    of_scales = scale_warning(kv_dtype, kv_scales)
    for warning in (*checkpoint.warnings, *weights.warnings, *filter(None, [of_scales])):
        progress(f"warning: {warning}", 0, 0)
    with BundleWriter(config.output, config.force) as writer:
        _check_disk(writer.folder, weights)
        progress("text", 0, 1)
        text = build_text(checkpoint, ResultCache(_cache_folder(config, "tokenizer-tables")))
        text_proof = _prove_text(config, text)
        windows = _read_windows("--eval", config.evaluate, checkpoint, max_model_len)
        calibration = _read_windows("--calibrate", config.calibrate, checkpoint, max_model_len)
        progress("compile", 0, 1)
        model_parts: list[tuple[Part, object]] = [
            (
                target.decoder_layer(
                    name, layer, num_freqs, formats.linear, TORCH_DTYPES[kv_dtype], BLOCK_SIZE
                ),
                layer,
            )
            for name, (layer, num_freqs) in spec.layer_kinds().items()
        ]
        last = parts.final_norm(spec.head) if embeds else target.head(spec.head, formats.embedding)
        model_parts.append((last, spec.head))
        with tempfile.TemporaryDirectory(prefix="pinfer-export-") as scratch:
            compiled = compile_parts(
                model_parts, target, max_model_len, config, Path(scratch), progress
            )
            for entry in compiled:
                writer.add_file(f"artifacts/{entry.part.name}.so", entry.built.path)
        providers = target.providers(config.provider, [entry.built for entry in compiled])
        progress("weights", 0, 1)
        packed = PackedTensors(checkpoint)
        if calibration is not None:
            packed = CalibratedTensors(
                calibration,
                spec,
                checkpoint,
                formats,
                TORCH_DTYPES[kv_dtype],
                max_model_len,
                embeds,
            )
        written = write_weights(
            writer.path("weights.safetensors"),
            weights,
            packed,
            {_inv_freq(i): rotary.inv_freq for i, rotary in enumerate(rotaries)},
            lambda done, total: progress("weights", done, total),
        )
        writer.add_written("weights.safetensors", written.size, written.sha256)
        if packed.rounded:
            progress(_rounded_again(list(packed.rounded)), 0, 0)
        add_text(writer, text)
        for path in checkpoint.licence_files:
            writer.add_file(f"licences/{path.name}", path)
        evaluation = _evaluate(
            windows,
            checkpoint,
            spec,
            formats,
            kv_dtype,
            max_model_len,
            writer.folder / "weights.safetensors",
            progress,
        )
        progress("write", 0, 1)
        manifest = {
            **evaluation,
            **_calibration_entry(calibration),
            "format_version": FORMAT_VERSION,
            "exporter_version": version("pinfer"),
            "torch_version": torch.__version__.split("+")[0],
            "parts": ["model", "text"],
            "task": task,
            **({} if pooling is None else {"pooling": pooling.entry()}),
            "model": {
                **_model_entry(checkpoint, spec, dtype_name, max_model_len),
                "weight_format": asdict(formats.linear),
            },
            "target": target.entry(),
            "providers": providers,
            "kv_cache": {
                "dtype": "float8_e4m3fn" if kv_dtype == "fp8" else kv_dtype,
                "block_size": BLOCK_SIZE,
            },
            "artifacts": {entry.part.name: _artifact_entry(entry) for entry in compiled},
            "embedding": {
                "weight": weights.embedding.name,
                "format": asdict(formats.embedding),
                "scale": spec.embedding_scale,
                "position_weight": None if weights.positions is None else weights.positions.name,
                **target.positions_entry(weights.positions),
            },
            "rotaries": [
                {"inv_freq": _inv_freq(i), "attention_scaling": rotary.attention_scaling}
                for i, rotary in enumerate(rotaries)
            ],
            "layers": [
                {
                    "artifact": spec.kind_of_layer(i),
                    "rotary": spec.rotary_of_layer[i],
                    "sliding_window": spec.layers[i].sliding_window,
                    **scale_entries(kv_dtype, kv_scales, i),
                    "weights": {constant: plan.name for constant, plan in layer.items()},
                }
                for i, layer in enumerate(weights.layers)
            ],
            last.name: {
                "artifact": last.name,
                "weights": {constant: plan.name for constant, plan in weights.head.items()},
            },
            "text": text_entry(text, text_proof),
            "generation_defaults": text.generation_defaults,
        }
        writer.commit(manifest)
        return manifest


def _cache_folder(config: ExportConfig, kind: str) -> Path | None:
    """Where results of this kind are kept; None if they must not be reused."""
    if not config.use_cache:
        return None
    return (config.cache_dir or default_cache_folder(config.output)) / kind


def _prove_text(config: ExportConfig, text: TextPart) -> dict[str, Any]:
    if not config.verify:
        return {"skipped": "--no-verify"}
    return prove_text(text, ResultCache(_cache_folder(config, "text-proofs")))


def _evaluate(
    windows: Windows | None,
    checkpoint: Checkpoint,
    spec: ModelSpec,
    formats: WeightFormats,
    kv_dtype: str,
    max_model_len: int,
    weights: Path,
    progress: Progress,
) -> dict[str, Any]:
    """The manifest's entry about what --eval has measured of the weights' file; none without it."""
    if windows is None:
        return {}
    progress("evaluate", 0, 1)
    with safe_open(weights, framework="pt") as stored:
        evaluation = evaluate(
            windows,
            checkpoint,
            spec,
            formats,
            TORCH_DTYPES[kv_dtype],
            max_model_len,
            lambda done, total: progress("evaluate", done, total),
            lambda plan: stored.get_tensor(plan.name),
        )
    return {"evaluation": asdict(evaluation)}


def _read_windows(
    option: str, text: Path | None, checkpoint: Checkpoint, max_model_len: int
) -> Windows | None:
    return None if text is None else read_windows(option, text, checkpoint, max_model_len)


def _calibration_entry(windows: Windows | None) -> dict[str, Any]:
    if windows is None:
        return {}
    return {"calibration": {"text": windows.text, "tokens": sum(map(len, windows.ids))}}


def _rounded_again(names: list[str]) -> str:
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"warning: rounded again, as it is stored in another way: {names[0]}{more}"


def _export_text(
    config: ExportConfig, checkpoint: Checkpoint, progress: Progress
) -> dict[str, Any]:
    with BundleWriter(config.output, config.force) as writer:
        progress("text", 0, 1)
        text = build_text(checkpoint, ResultCache(_cache_folder(config, "tokenizer-tables")))
        manifest = text_manifest(text, _prove_text(config, text))
        progress("write", 0, 1)
        add_text(writer, text)
        writer.commit(manifest)
        return manifest


def read_checkpoint(path: Path, text_only: bool = False) -> Checkpoint:
    if path.is_dir():
        return read_model_dir(path, text_only)
    if path.is_file():
        return read_gguf(path, text_only)
    raise ExportError(f"{path}: no such model directory or GGUF file")


def compile_parts(
    model_parts: list[tuple[Part, object]],
    target: Target,
    max_model_len: int,
    config: ExportConfig,
    scratch: Path,
    progress: Progress,
) -> list[CompiledPart]:
    """Each part from the cache, or traced, lowered, compiled and checked against eager. The
    compiler runs beside."""
    folder = _cache_folder(config, "artifacts")
    cache = None if folder is None else ArtifactCache(folder)
    pending: list[tuple[Part, str, BuiltArtifact | Future[BuiltArtifact]]] = []
    with ThreadPoolExecutor(max_workers=2) as compilers:
        for part, spec in model_parts:
            key = target.key(part, spec)
            found = None if cache is None else cache.get(key, part.name)
            if found is None:
                arguments = (part.name, target.generate(part), scratch / part.name)
                pending.append((part, key, compilers.submit(target.build, *arguments)))
            else:
                pending.append((part, key, found))
        compiled = []
        for part, key, result in pending:
            if isinstance(result, Future):
                result = result.result()
                if config.verify:
                    target.check(
                        part, result, max_model_len, lambda line: progress(f"warning: {line}", 0, 0)
                    )
                if cache is not None and config.verify:  # what is kept has been checked
                    cache.put(key, result)
            compiled.append(CompiledPart(part, result))
            progress("compile", len(compiled), len(pending))
    return compiled


def _check_disk(folder: Path, weights: WeightsPlan) -> None:
    needed = ARTIFACT_BYTES
    for plan in weights.tensors():
        shape, stored = stored_shape(plan)
        needed += torch.Size(shape).numel() * stored.itemsize
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ExportError(
            f"{folder.parent}: the bundle needs {needed >> 20} MiB, {free >> 20} MiB are free"
        )


def _model_entry(
    checkpoint: Checkpoint, spec: ModelSpec, dtype: str, max_model_len: int
) -> dict[str, Any]:
    return {
        "model_name": checkpoint.name,
        "architecture": spec.architecture,
        "dtype": dtype,
        "max_model_len": max_model_len,
        "vocab_size": spec.vocab_size,
        "num_layers": len(spec.layers),
        "hidden_size": spec.hidden_size,
        "num_heads": spec.layers[0].num_heads,
        "num_kv_heads": spec.num_kv_heads,
        "head_dim": spec.head_dim,
        "layer_kinds": {name: asdict(layer) for name, (layer, _) in spec.layer_kinds().items()},
        "head": asdict(spec.head),
    }


def _inv_freq(index: int) -> str:
    return f"rotary.{index}.inv_freq"


def _artifact_entry(entry: CompiledPart) -> dict[str, Any]:
    def described(name: str, dtype: torch.dtype, shape: tuple[int | str, ...]) -> dict[str, Any]:
        return {"name": name, "dtype": str(dtype).removeprefix("torch."), "shape": list(shape)}

    part = entry.part
    return {
        "file": f"artifacts/{part.name}.so",
        "symbols": list(entry.built.symbols),
        "inputs": [described(e.name, e.dtype, e.shape) for e in part.inputs],
        "outputs": [described(part.output.name, part.output.dtype, part.output.shape)],
        "constants": [
            described(name, value.dtype, tuple(value.shape))
            for name, value in part.constants().items()
        ],
    }
