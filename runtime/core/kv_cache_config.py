"""Which layers share block tables and cache memory.

Layers of one kind (one KVCacheSpec) form a group, or several of about the same size. A request has
one block table for each group, and all groups draw their blocks from one pool: a block is as large
as num_tensors layers need, whichever group holds it. So a group whose layers have a sliding window
gives back blocks that any other group may take. Where a group has fewer layers than another, the
rest of its blocks is padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pinfer.runtime.core.kv_cache_spec import KVCacheSpec

LayersByWindow = dict[int, list[int]]


@dataclass(frozen=True, slots=True)
class KVCacheGroup:
    spec: KVCacheSpec
    layers: list[int]  # ascending


@dataclass(frozen=True, slots=True)
class KVCachePlace:
    """Where a layer's keys and values are: its group's table names the blocks, in this pair of
    tensors."""

    group_id: int = 0
    tensor_id: int = 0


@dataclass(frozen=True, slots=True)
class KVCacheConfig:
    """A plain value, made by make_kv_cache_config."""

    # At least one. Groups of one kind stand together; full attention comes first, then the windows,
    # ascending.
    groups: list[KVCacheGroup]

    @property
    def num_groups(self) -> int:
        return len(self.groups)

    @property
    def block_size(self) -> int:
        """Of every group."""
        return self.groups[0].spec.block_size

    @property
    def num_tensors(self) -> int:
        """Pairs of tensors, K and V: as many as the largest group has layers."""
        return max(len(group.layers) for group in self.groups)

    def places(self) -> list[KVCachePlace]:
        """By layer."""
        places = {
            layer: KVCachePlace(group_id, tensor_id)
            for group_id, group in enumerate(self.groups)
            for tensor_id, layer in enumerate(group.layers)
        }
        return [places[layer] for layer in range(len(places))]

    def max_blocks_held(self, num_tokens: int, max_tokens_per_step: int) -> int:
        """The most blocks that a request of num_tokens tokens holds at once, over all groups, if a
        step computes at most max_tokens_per_step of them."""
        return sum(
            group.spec.max_blocks_held(num_tokens, max_tokens_per_step) for group in self.groups
        )

    def max_tokens_held(self, num_blocks: int, limit: int, max_tokens_per_step: int) -> int:
        """The longest request, up to limit tokens, that never holds more than num_blocks."""
        fits, beyond = 0, limit + 1
        while beyond - fits > 1:
            middle = (fits + beyond) // 2
            if self.max_blocks_held(middle, max_tokens_per_step) <= num_blocks:
                fits = middle
            else:
                beyond = middle
        return fits


def uniform_kv_cache_config(
    num_layers: int, block_size: int, sliding_window: int = 0
) -> KVCacheConfig:
    """One group: every layer alike."""
    spec = KVCacheSpec(block_size, sliding_window)
    return KVCacheConfig([KVCacheGroup(spec, list(range(num_layers)))])


def make_kv_cache_config(
    layer_windows: Sequence[int], block_size: int, max_model_len: int
) -> KVCacheConfig:
    """layer_windows: by layer, the tokens that a token attends to, itself included; 0 = all. A
    window that no request of max_model_len outgrows counts as none.

    Layers of a kind are dealt out to as many groups as they need at one size for all kinds. That
    size is the one with the fewest groups, then the least padding, among those that pad full
    attention by no more than a twelfth of its layers (it is paid for the whole length of requests),
    other kinds by no more than a sixth.
    """
    kinds: LayersByWindow = {}
    for layer, window in enumerate(layer_windows):
        kinds.setdefault(window if window < max_model_len else 0, []).append(layer)
    group_size = _choose_group_size(kinds)
    groups = []
    for window, layers in sorted(kinds.items()):
        num_groups = -(-len(layers) // group_size)
        spec = KVCacheSpec(block_size, window)
        groups += [KVCacheGroup(spec, layers[first::num_groups]) for first in range(num_groups)]
    return KVCacheConfig(groups)


def _count_groups(kinds: LayersByWindow, group_size: int) -> int:
    """Over all kinds; 0 if the size pads one too much."""
    num_groups = 0
    for window, layers in kinds.items():
        num_needed = -(-len(layers) // group_size)
        num_padded = num_needed * group_size - len(layers)
        least_layers_per_padded = 12 if window == 0 else 6
        if num_padded * least_layers_per_padded > len(layers):
            return 0
        num_groups += num_needed
    return num_groups


def _choose_group_size(kinds: LayersByWindow) -> int:
    """Of equal counts the smaller size pads less."""
    chosen = 1
    for size in range(2, max(map(len, kinds.values())) + 1):
        num_groups = _count_groups(kinds, size)
        if 0 < num_groups < _count_groups(kinds, chosen):
            chosen = size
    return chosen
