"""Hidden states to embeddings. A request's tokens may come over several steps: what has been added
is kept until then."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from pinfer.runtime.core.model_runner_output import Embedding
from pinfer.runtime.core.pooling_params import PoolingParams

LEAST_LENGTH = 1e-12  # what PyTorch's normalize() divides by at least


class Pooler:
    def __init__(self) -> None:
        self._sums: dict[str, tuple[np.ndarray, int]] = {}  # by request id; of so many tokens

    def add(self, request_id: str, rows: np.ndarray) -> None:
        """Rows [num_tokens, hidden], in the order of the tokens: sums do not depend on how the
        tokens are spread over steps."""
        total, count = self._sums.get(request_id, (np.zeros(rows.shape[1]), 0))
        for row in rows:
            total = total + row.astype(np.float64)
        self._sums[request_id] = (total, count + len(rows))

    def take(self, request_id: str, params: PoolingParams) -> Embedding:
        """The embedding of what was added, which is forgotten. Failed if a number is not finite, or
        nothing was added."""
        total, count = self._sums.pop(request_id, (np.zeros(0), 0))
        if count == 0:
            return Embedding(request_id, failed=True)
        values = total[: params.dimensions or None] / count
        if params.normalize:
            values = values / max(float(np.sqrt((values**2).sum())), LEAST_LENGTH)
        values = values.astype(np.float32)
        return Embedding(request_id, values.tolist(), failed=not np.isfinite(values).all())

    def forget(self, request_ids: Iterable[str]) -> None:
        """Requests that ended, or begin again."""
        for request_id in request_ids:
            self._sums.pop(request_id, None)
