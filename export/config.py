"""What one export is asked to do."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

DTYPES = ("float32", "bfloat16")
KV_DTYPES = (*DTYPES, "int8")
QUANTIZATIONS = ("int8", "int4")
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
    cpu_isa: str = "x86-64-v3"
    task: str | None = None  # None: embed if sentence-transformers' files say so, else generate
    max_model_len: int | None = None  # None: the checkpoint's max_position_embeddings
    force: bool = False  # replace an existing bundle
    provider: str | None = None  # fail unless this provider can serve the bundle
    use_cache: bool = True  # reuse compiled artifacts
    verify: bool = True  # compare compiled parts and text with their references
    only: str | None = None  # "text": tokenizer and chat template alone
    cache_dir: Path | None = None
