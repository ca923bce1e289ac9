"""What the options of an export come to for one checkpoint."""

from __future__ import annotations

from pinfer.export.checkpoint import Checkpoint
from pinfer.export.config import GROUP_SIZES, ExportConfig
from pinfer.export.errors import ExportError
from pinfer.export.models.spec import ModelSpec
from pinfer.export.sentence_transformers import Pooling, is_embedding_model, longest_input
from pinfer.export.weights import WeightFormats
from pinfer.runtime.weight_format import WeightFormat

DEFAULT_DTYPES = {"float32": "float32", "bfloat16": "bfloat16", "float16": "bfloat16",
                  "quantized": "bfloat16"}  # fmt: skip


def choose_dtype(config: ExportConfig, checkpoint: Checkpoint) -> str:
    if config.dtype is not None:
        return config.dtype
    if checkpoint.dtype not in DEFAULT_DTYPES:
        raise ExportError(
            f"{checkpoint.source}: weights are {checkpoint.dtype};"
            " choose --dtype float32 or bfloat16"
        )
    return DEFAULT_DTYPES[checkpoint.dtype]


def choose_formats(config: ExportConfig, dtype: str, checkpoint: Checkpoint) -> WeightFormats:
    """What the options ask for: linear weights of the layers, embedding and head."""
    if config.calibrate is not None and config.quantize != "int4":
        raise ExportError(f"--calibrate is about rounding to int4; --quantize is {config.quantize}")
    group_size = config.group_size or _stored_group_size(checkpoint) or min(GROUP_SIZES)

    def format_of(name: str | None) -> WeightFormat:
        if name in (None, "none"):
            return WeightFormat(dtype)
        return WeightFormat(name, group_size if name == "int4" else 0)

    if config.quantize is None:
        return WeightFormats(format_of(None), format_of(None))
    return WeightFormats(format_of(config.quantize), format_of(config.quantize_embedding))


def _stored_group_size(checkpoint: Checkpoint) -> int | None:
    """The largest of GROUP_SIZES that the groups of a quantised checkpoint can be cut into."""
    stored = checkpoint.tensors.group_size()
    return max((size for size in GROUP_SIZES if stored and stored % size == 0), default=None)


def choose_task(config: ExportConfig, checkpoint: Checkpoint) -> str:
    """generate or embed."""
    task = config.task
    if task is None:
        embeds = checkpoint.pooling_mode is not None or is_embedding_model(config.model)
        task = "embed" if embeds else "generate"
    if task == "embed" and config.evaluate is not None:
        raise ExportError("--eval measures how well a model generates, and the task is embed")
    return task


def choose_max_model_len(
    config: ExportConfig, spec: ModelSpec, checkpoint: Checkpoint, pooling: Pooling | None
) -> int:
    if config.max_model_len is None:
        longest = None
        if pooling is not None:
            longest = longest_input(config.model, checkpoint.tokenizer_config)
        return min(spec.max_position_embeddings, longest or spec.max_position_embeddings)
    if config.max_model_len > spec.max_position_embeddings:
        raise ExportError(
            f"--max-model-len {config.max_model_len} is more than the model's"
            f" max_position_embeddings {spec.max_position_embeddings}"
        )
    return config.max_model_len
