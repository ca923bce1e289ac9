"""The merges that a scored vocabulary implies, for files that keep scores instead of merges."""

from __future__ import annotations

from collections.abc import Sequence


def merges_from_vocabulary(
    tokens: Sequence[str], scores: Sequence[float], longest_first: bool = False
) -> list[list[str]]:
    """Every way to join two tokens to a third, the best result first.

    Ways of one score: in the vocabulary's order of their results and by the ids of their parts, as
    Llama 2's tokenizer.json has them; with `longest_first` by the lengths of their parts, the
    longest left part first, as transformers' converters write them today.
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
    if longest_first:
        merges.sort(key=lambda merge: (-merge[2], -len(merge[0]), -len(merge[1])))
    else:
        merges.sort(key=lambda merge: -merge[2])
    return [[left, right] for left, right, _ in merges]
