"""Byte tries of the added tokens and of vocabularies, as the engine maps them.

Nodes are {u32 first edge, u32 number of edges, i32 value or -1, u32 zero}; edges are
(child << 8) | byte, sorted by byte within a node. Node 0 is the root.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pinfer.export.errors import ExportError

_MAX_NODES = 1 << 24


def build_trie(values: Mapping[bytes, int]) -> tuple[bytes, bytes]:
    """(nodes, edges) of a trie that maps each key to its value; both empty without keys."""
    if not values:
        return b"", b""
    keys = sorted(values)
    if not keys[0]:
        raise ExportError("tokenizer: an empty string cannot be a token to look for")
    first_edges: list[int] = [0]
    edge_counts: list[int] = [0]
    node_values: list[int] = [-1]
    edges: list[int] = []
    # Breadth first over ranges of the sorted keys, so that a node's edges lie side by side.
    level: list[tuple[int, int, int, int]] = [(0, 0, len(keys), 0)]  # node, begin, end, depth
    while level:
        next_level: list[tuple[int, int, int, int]] = []
        for node, begin, end, depth in level:
            if len(keys[begin]) == depth:
                node_values[node] = values[keys[begin]]
                begin += 1
            first_edges[node] = len(edges)
            while begin < end:
                byte = keys[begin][depth]
                stop = begin + 1
                while stop < end and keys[stop][depth] == byte:
                    stop += 1
                child = len(node_values)
                edges.append((child << 8) | byte)
                first_edges.append(0)
                edge_counts.append(0)
                node_values.append(-1)
                edge_counts[node] += 1
                next_level.append((child, begin, stop, depth + 1))
                begin = stop
        level = next_level
    if len(node_values) > _MAX_NODES:
        raise ExportError(f"tokenizer: a trie of {len(node_values)} nodes is too large")
    nodes = np.zeros((len(node_values), 4), dtype="<u4")
    nodes[:, 0] = first_edges
    nodes[:, 1] = edge_counts
    nodes[:, 2] = np.asarray(node_values, dtype="<i4").view("<u4")
    return nodes.tobytes(), np.asarray(edges, dtype="<u4").tobytes()
