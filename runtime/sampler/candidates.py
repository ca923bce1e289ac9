"""The tokens that are still in the running, as parallel arrays in ascending order of id."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(slots=True)
class Candidates:
    token_ids: npt.NDArray[np.int64]
    logits: npt.NDArray[np.float32]
    weights: npt.NDArray[np.int64]  # unnormalised probabilities; see exp_weight.py

    def keep_if(self, keep: npt.NDArray[np.bool_]) -> None:
        """Keeps those for which keep is true."""
        self.token_ids = self.token_ids[keep]
        self.logits = self.logits[keep]
        self.weights = self.weights[keep]
