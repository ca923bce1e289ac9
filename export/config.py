"""What one export is asked to do."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

DEVICES = ("cpu", "cuda")
DTYPES = ("float32", "bfloat16", "float16")
KV_DTYPES = (*DTYPES, "int8", "fp8")
QUANTIZATIONS = ("int8", "int4", "fp8")
# What one device can do of them.
CPU_DTYPES = ("float32", "bfloat16")
CPU_KV_DTYPES = (*CPU_DTYPES, "int8")
CPU_QUANTIZATIONS = ("int8", "int4")
CUDA_DTYPES = ("bfloat16", "float16")
CUDA_KV_DTYPES = (*CUDA_DTYPES, "fp8")
CUDA_QUANTIZATIONS = ("fp8", "int4")
CUDA_ARCHS = (80, 86, 87, 89, 90, 100, 103, 120)
DEFAULT_CUDA_ARCHS = (80, 90, 100)
BACKENDS = ("inductor", "tensorrt")
EMBEDDING_FORMATS = ("none", "int8", "int4")
GROUP_SIZES = (32, 64, 128)
CPU_ISAS = ("native", "x86-64-v3", "x86-64-v4")
PROVIDERS = ("native", "torch")
PARTS = ("text",)
TASKS = ("generate", "embed")


@dataclass(frozen=True)
class ExportConfig:
    """Options of one export. Validated by the command line; frozen afterwards."""

    model: Path  # Hugging Face directory or .gguf file
    output: Path  # the bundle directory to write
    dtype: str | None = None  # None: the checkpoint's; float16 becomes bfloat16
    quantize: str | None = None  # of the layers' linear weights
    group_size: int | None = None  # of int4: numbers that share a scale; None: the checkpoint's, 32
    quantize_embedding: str = "int8"  # of embedding and head, where `quantize` is set
    calibrate: Path | None = None  # a text that int4 weights are rounded for
    kv_dtype: str | None = None  # of the KV cache; None: dtype
    evaluate: Path | None = None  # a text to measure what the formats cost on
    device: str = "cpu"
    cpu_isa: str = "x86-64-v3"
    cuda_archs: tuple[int, ...] = DEFAULT_CUDA_ARCHS  # compute capabilities * 10
    backend: str = "inductor"  # what compiles layers
    task: str | None = None  # None: embed if sentence-transformers' files say so, else generate
    max_model_len: int | None = None  # None: the checkpoint's max_position_embeddings
    standalone: bool = False  # output is an executable file, and not a directory
    force: bool = False  # replace an existing bundle
    provider: str | None = None  # fail unless this provider can serve the bundle
    use_cache: bool = True  # reuse compiled artifacts
    verify: bool = True  # compare compiled parts and text with their references
    only: str | None = None  # "text": tokenizer and chat template alone
    cache_dir: Path | None = None
