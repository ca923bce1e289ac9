"""The merges that a scored vocabulary implies, for files that keep scores instead of merges."""

from __future__ import annotations

from collections.abc import Sequence


def merges_from_vocabulary(tokens: Sequence[str], scores: Sequence[float]) -> list[list[str]]:
    """Every way to join two tokens to a third, the best result first.

    Ties between results keep the vocabulary's order; ways to the same result are ordered by the
    ids of their parts.
    """
    ids = {token: token_id for token_id, token in enumerate(tokens)}
    merges: list[tuple[str, str, float]] = []
    for token, score in zip(tokens, scores, strict=True):
        ways: list[tuple[int, int, str, str]] = []
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in ids and right in ids:
                ways.append((ids[left], ids[right], left, right))
        merges.extend((left, right, score) for _, _, left, right in sorted(ways))
    merges.sort(key=lambda merge: -merge[2])
    return [[left, right] for left, right, _ in merges]
