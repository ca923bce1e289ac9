"""Which providers of the tensor functions can serve an artifact, from the names that it needs."""

from __future__ import annotations

from collections.abc import Iterable

from pinfer.export.artifact import BuiltArtifact
from pinfer.export.config import PROVIDERS
from pinfer.export.errors import ExportError
from pinfer.runtime.bundle.symbols import NATIVE_SYMBOLS, SHARED_SYMBOLS, VECTOR_FUNCTIONS


def missing_symbols(provider: str, symbols: Iterable[str]) -> list[str]:
    """The names that `provider` does not have. libtorch has every function of torch's own shim;
    those of the proxy executor need one beside it, which no engine of ours is."""
    missing = [s for s in symbols if s not in SHARED_SYMBOLS and s not in VECTOR_FUNCTIONS]
    if provider == "torch":
        return [s for s in missing if not s.startswith("aoti_torch_") or "proxy_executor" in s]
    return [s for s in missing if s not in NATIVE_SYMBOLS]


def providers_for(artifacts: Iterable[BuiltArtifact]) -> list[str]:
    symbols = sorted({symbol for built in artifacts for symbol in built.symbols})
    return [name for name in PROVIDERS if not missing_symbols(name, symbols)]


def check_provider(requested: str | None, artifacts: list[BuiltArtifact]) -> None:
    """ExportError naming the symbols if the requested provider, or none at all, can serve them."""
    if requested is None and providers_for(artifacts):
        return
    for built in artifacts:
        missing = missing_symbols(requested or "torch", built.symbols)
        if missing:
            raise ExportError(
                f"{built.path.stem}: provider {requested or 'torch'} lacks {', '.join(missing)}"
            )
