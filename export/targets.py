"""What parts are compiled for: how each kind of device traces, lowers, builds and checks them."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import torch

from pinfer.export import artifact, parts
from pinfer.export.artifact import BuiltArtifact
from pinfer.export.artifact_cache import ArtifactCache
from pinfer.export.choices import check_cuda_options
from pinfer.export.config import ExportConfig
from pinfer.export.errors import ExportError
from pinfer.export.models.spec import TensorPlan
from pinfer.export.part import Part
from pinfer.export.part_check import check_part
from pinfer.export.providers import check_provider, missing_symbols, providers_for
from pinfer.runtime.bundle.symbols import CUDA_SYMBOLS
from pinfer.runtime.layers.layer_spec import HeadSpec, LayerSpec
from pinfer.runtime.weight_format import WeightFormat

Warn = Callable[[str], None]
TENSORRT_MODULES = ("torch_tensorrt", "tensorrt")


class Target(Protocol):
    """Sources of a part are whatever its own build() takes."""

    def decoder_layer(
        self,
        name: str,
        spec: LayerSpec,
        num_freqs: int,
        weights: WeightFormat,
        cache_dtype: torch.dtype,
        block_size: int,
    ) -> Part: ...

    def head(self, spec: HeadSpec, weights: WeightFormat) -> Part: ...

    def key(self, part: Part, spec: object) -> str: ...

    def generate(self, part: Part) -> Any: ...

    def build(self, name: str, sources: Any, folder: Path) -> BuiltArtifact: ...

    def check(self, part: Part, built: BuiltArtifact, max_model_len: int, warn: Warn) -> None: ...

    def providers(self, requested: str | None, built: list[BuiltArtifact]) -> list[str]: ...

    def entry(self) -> dict[str, Any]: ...

    def positions_entry(self, positions: TensorPlan | None) -> dict[str, Any]: ...


class CpuTarget:
    def __init__(self, cpu_isa: str) -> None:
        self.cpu_isa = artifact.resolve_cpu_isa(cpu_isa)

    decoder_layer = staticmethod(parts.decoder_layer)
    head = staticmethod(parts.head)

    def key(self, part: Part, spec: object) -> str:
        return ArtifactCache.key(part, spec, self.cpu_isa)

    def generate(self, part: Part) -> Any:
        # Seconds to import: an export that compiles nothing does without.
        from pinfer.export import inductor_sources, trace

        return inductor_sources.generate(part, trace.trace(part), self.cpu_isa)

    def build(self, name: str, sources: Any, folder: Path) -> BuiltArtifact:
        return artifact.build(name, sources, self.cpu_isa, folder)

    def check(self, part: Part, built: BuiltArtifact, max_model_len: int, warn: Warn) -> None:
        if missing_symbols("native", built.symbols):
            warn(f"{part.name} is not checked: it needs provider torch")
        elif not artifact.runs_here(self.cpu_isa):
            warn(f"{part.name} is not checked: this machine lacks {self.cpu_isa}")
        else:
            check_part(part, built, max_model_len)

    def providers(self, requested: str | None, built: list[BuiltArtifact]) -> list[str]:
        check_provider(requested, built)
        return providers_for(built)

    def entry(self) -> dict[str, Any]:
        return {
            "device": "cpu",
            "cpu_isa": self.cpu_isa,
            "cpu_features": list(artifact.CPU_FEATURES[self.cpu_isa]),
        }

    def positions_entry(self, positions: TensorPlan | None) -> dict[str, Any]:
        return {}  # a packed table's shape tells


class CudaTarget:
    """Compiled on any machine; what comes out is not run here."""

    def __init__(self, cpu_isa: str, archs: tuple[int, ...]) -> None:
        self.cpu_isa = artifact.resolve_cpu_isa(cpu_isa)
        self.archs = archs
        try:
            from pinfer.export import cuda_sources
        except ImportError as error:
            raise ExportError(
                f"--device cuda: {error.name or error} is missing: pip install"
                " 'pinfer[export,cuda]', or with a CPU build of torch: pip install --no-deps"
                " triton==3.9.0"
            ) from error
        self._sources = cuda_sources

    def decoder_layer(self, *arguments: Any) -> Part:
        from pinfer.export import cuda_parts

        return cuda_parts.decoder_layer(*arguments)

    def head(self, spec: HeadSpec, weights: WeightFormat) -> Part:
        from pinfer.export import cuda_parts

        return cuda_parts.head(spec, weights)

    def key(self, part: Part, spec: object) -> str:
        target = f"{self.cpu_isa} cuda {self.archs} triton {version('triton')}"
        return ArtifactCache.key(part, spec, target, self._code())

    def generate(self, part: Part) -> Any:
        from pinfer.export import trace

        return self._sources.generate(part, trace.trace(part), self.archs)

    def build(self, name: str, sources: Any, folder: Path) -> BuiltArtifact:
        from pinfer.export import cuda_artifact

        return cuda_artifact.build(name, sources, self.cpu_isa, folder)

    def check(self, part: Part, built: BuiltArtifact, max_model_len: int, warn: Warn) -> None:
        """Nothing here can run it."""

    def providers(self, requested: str | None, built: list[BuiltArtifact]) -> list[str]:
        if requested == "torch":
            raise ExportError("--provider torch: bundles for CUDA are served by native alone")
        for each in built:
            if missing := sorted(set(each.symbols) - CUDA_SYMBOLS):
                raise ExportError(f"{each.path.stem}: provider native lacks {', '.join(missing)}")
        return ["native"]

    def entry(self) -> dict[str, Any]:
        return {
            "device": "cuda",
            "cuda_archs": [self._sources.target_name(arch) for arch in self.archs],
            "cpu_isa": self.cpu_isa,
            "cpu_features": list(artifact.CPU_FEATURES[self.cpu_isa]),
        }

    def positions_entry(self, positions: TensorPlan | None) -> dict[str, Any]:
        return {} if positions is None else {"num_positions": positions.shape[0]}

    def _code(self) -> Iterable[Path]:
        """Of the exporter, beside what every artifact depends on."""
        export = Path(__file__).parent
        runtime = Path(parts.ops.__file__).parent
        yield from sorted(export.glob("cuda_*.py"))
        yield from sorted((export / "cuda_headers").iterdir())
        yield from sorted(runtime.glob("cuda_*.py"))
        yield runtime / "layers" / "cuda_modules.py"


def missing_for_tensorrt() -> list[str]:
    missing = [name for name in TENSORRT_MODULES if importlib.util.find_spec(name) is None]
    if not torch.cuda.is_available():
        missing.append("a GPU (TensorRT builds its engines on the one that they are for)")
    return missing


def choose_target(config: ExportConfig) -> Target:
    if config.backend == "tensorrt":
        missing = missing_for_tensorrt()
        needs = f"missing here: {', '.join(missing)}; and " if missing else ""
        raise ExportError(
            f"--backend tensorrt: {needs}pinfer has no engine for what it compiles yet"
            " (--plan shows how a layer would be divided)"
        )
    if config.device == "cpu":
        return CpuTarget(config.cpu_isa)
    check_cuda_options(config)
    return CudaTarget(config.cpu_isa, config.cuda_archs)
