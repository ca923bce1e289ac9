"""Back from double to a float32 logit, without making an infinity of a finite one."""

from __future__ import annotations

import numpy as np

_MAX = float(np.finfo(np.float32).max)


def clamp_logit(logit: float) -> np.float32:
    """-inf (a masked token) stays."""
    if logit == -np.inf:
        return np.float32(logit)
    return np.float32(min(max(logit, -_MAX), _MAX))
