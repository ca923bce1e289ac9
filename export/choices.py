"""What the options of an export come to for one checkpoint."""

from __future__ import annotations

from pinfer.export.checkpoint import Checkpoint
from pinfer.export.config import (
    CPU_DTYPES,
    CPU_KV_DTYPES,
    CPU_QUANTIZATIONS,
    CUDA_DTYPES,
    CUDA_KV_DTYPES,
    CUDA_QUANTIZATIONS,
    GROUP_SIZES,
    ExportConfig,
)
from pinfer.export.errors import ExportError
from pinfer.export.models.spec import ModelSpec
from pinfer.export.sentence_transformers import Pooling, is_embedding_model, longest_input
from pinfer.export.weights import WeightFormats
from pinfer.runtime.cuda_weight_format import CudaWeightFormat
from pinfer.runtime.weight_format import WeightFormat

DEFAULT_DTYPES = {"float32": "float32", "bfloat16": "bfloat16", "float16": "bfloat16",
                  "quantized": "bfloat16"}  # fmt: skip
DEFAULT_CUDA_DTYPES = {**DEFAULT_DTYPES, "float32": "bfloat16", "float16": "float16"}


def choose_dtype(config: ExportConfig, checkpoint: Checkpoint) -> str:
    on_cpu = config.device == "cpu"
    choices, defaults = (
        (CPU_DTYPES, DEFAULT_DTYPES) if on_cpu else (CUDA_DTYPES, DEFAULT_CUDA_DTYPES)
    )
    if config.dtype is not None:
        if config.dtype not in choices:
            raise ExportError(
                f"--dtype {config.dtype}: on --device {config.device} it is {' or '.join(choices)}"
            )
        return config.dtype
    if checkpoint.dtype not in defaults:
        raise ExportError(
            f"{checkpoint.source}: weights are {checkpoint.dtype};"
            f" choose --dtype {' or '.join(choices)}"
        )
    return defaults[checkpoint.dtype]


def check_cuda_options(config: ExportConfig) -> None:
    """ExportError for what needs the CPU's kernels, or is not there for CUDA yet."""
    for option, value in (("--eval", config.evaluate), ("--calibrate", config.calibrate)):
        if value is not None:
            raise ExportError(f"{option} runs the model, and --device cuda runs nothing here")


def choose_formats(config: ExportConfig, dtype: str, checkpoint: Checkpoint) -> WeightFormats:
    """What the options ask for: linear weights of the layers, embedding and head."""
    if config.calibrate is not None and config.quantize != "int4":
        raise ExportError(f"--calibrate is about rounding to int4; --quantize is {config.quantize}")
    on_cpu = config.device == "cpu"
    choices = CPU_QUANTIZATIONS if on_cpu else CUDA_QUANTIZATIONS
    if config.quantize is not None and config.quantize not in choices:
        raise ExportError(
            f"--quantize {config.quantize}: on --device {config.device} it is"
            f" {' or '.join(choices)}"
        )
    if not on_cpu:
        return _choose_cuda_formats(config, dtype, checkpoint)
    group_size = config.group_size or _stored_group_size(checkpoint) or min(GROUP_SIZES)

    def format_of(name: str | None) -> WeightFormat:
        if name in (None, "none"):
            return WeightFormat(dtype)
        return WeightFormat(name, group_size if name == "int4" else 0)

    if config.quantize is None:
        return WeightFormats(format_of(None), format_of(None))
    return WeightFormats(format_of(config.quantize), format_of(config.quantize_embedding))


def _choose_cuda_formats(config: ExportConfig, dtype: str, checkpoint: Checkpoint) -> WeightFormats:
    plain = CudaWeightFormat(dtype)
    if config.quantize is None:
        return WeightFormats(plain, plain)
    group_size = config.group_size or _stored_group_size(checkpoint) or min(GROUP_SIZES)
    linear = {
        "fp8": CudaWeightFormat("float8"),
        "int4": CudaWeightFormat("int4", group_size),
    }[config.quantize]
    # int8, the default, is the CPU's; on CUDA eight bits are floats.
    embedding = {
        "none": plain,
        "int8": CudaWeightFormat("float8"),
        "int4": CudaWeightFormat("int4", group_size),
    }[config.quantize_embedding]
    return WeightFormats(linear, embedding)


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


def choose_kv_dtype(config: ExportConfig, dtype: str) -> str:
    choices = CPU_KV_DTYPES if config.device == "cpu" else CUDA_KV_DTYPES
    if config.kv_dtype is not None and config.kv_dtype not in choices:
        raise ExportError(
            f"--kv-dtype {config.kv_dtype}: on --device {config.device} it is"
            f" {' or '.join(choices)}"
        )
    return config.kv_dtype or dtype
