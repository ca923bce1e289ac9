"""What a kind of layers asks of its cache blocks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KVCacheSpec:
    block_size: int = 16  # tokens
    sliding_window: int = 0  # tokens that a token attends to, itself included; 0 = all

    def num_blocks_for(self, num_tokens: int) -> int:
        """Blocks that hold num_tokens tokens."""
        return (num_tokens + self.block_size - 1) // self.block_size

    def num_skipped_blocks(self, num_computed_tokens: int) -> int:
        """Leading blocks that no token from position num_computed_tokens on attends to."""
        if self.sliding_window == 0:
            return 0
        return max(0, num_computed_tokens - self.sliding_window + 1) // self.block_size

    def num_window_blocks(self) -> int:
        """Blocks before a block border that the next token attends to; at most all before it."""
        return self.num_blocks_for(max(1, self.sliding_window - 1))

    def max_blocks_held(self, num_tokens: int, max_tokens_per_step: int) -> int:
        """The most blocks that a request of num_tokens tokens holds at once, if a step computes at
        most max_tokens_per_step of them."""
        num_all = self.num_blocks_for(num_tokens)
        if self.sliding_window == 0:
            return num_all
        return min(num_all, self.num_blocks_for(self.sliding_window - 1 + max_tokens_per_step) + 1)
