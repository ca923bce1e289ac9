"""The engine's settings.

One field list; command-line flags are these names in kebab case, and the C++ twin
(engine_cpp/core/engine_config.h) has the same names, types and defaults.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from pinfer.runtime.core.field_check import MAX_INT, check_range, field_error

_MAX_BLOCK_SIZE = 256
_MAX_THREADS = 1024
# What the pool of blocks can be asked for: its lists are made at start.
MAX_NUM_BLOCKS = 1 << 25


class SchedulingPolicy(Enum):
    FCFS = "fcfs"  # first come, first served
    PRIORITY = "priority"  # smaller priority first, then earlier arrival


class Provider(Enum):
    NATIVE = "native"  # our own tensor handles, no dependency
    TORCH = "torch"  # libtorch


class HugePages(Enum):
    AUTO = "auto"  # weights are moved into huge pages where there is room for them
    OFF = "off"  # they stay in the file's pages, which processes share


@dataclass(frozen=True, slots=True)
class EngineConfig:
    max_model_len: int = 0  # tokens, prompt and output; 0 = the model's own limit
    max_num_seqs: int = 256  # requests running at once
    max_num_batched_tokens: int = 2048  # tokens computed in one step, >= max_num_seqs
    num_blocks: int = 0  # cache blocks, the null block included; 0 = sized from free memory
    block_size: int = 16  # tokens
    long_prefill_token_threshold: int = 0  # cap of one request's tokens per step; 0 = off
    scheduling_policy: SchedulingPolicy = SchedulingPolicy.FCFS
    enable_prefix_caching: bool = True
    # Admit a request only when its whole prompt fits the free blocks.
    scheduler_reserve_full_isl: bool = True
    watermark: float = 0.0  # [0, 1): share of blocks kept free at admission while others run
    threads: int = 0  # compute threads; 0 = what cgroup quota and affinity allow
    cpus: str = ""  # that compute threads are bound to: "0-3,8", "node:0"; "" = to none
    provider: Provider = Provider.NATIVE
    huge_pages: HugePages = HugePages.AUTO
    gpu_memory_utilization: float = 0.9  # (0, 1]: share of a GPU's memory that may be taken
    max_cuda_graph_seqs: int = 256  # largest decode step that a GPU records; 0 = none
    async_scheduling: bool = False  # schedule the next step while one runs

    def validate(self) -> None:
        """Raises ValueError naming the field, the range and what was found.

        0 is accepted where it means "choose". How many blocks a request needs depends on the model
        (core/kv_cache_config.py), which CPUs there are on the machine.
        """
        check_range("max_model_len", self.max_model_len, 0, MAX_INT)
        check_range("max_num_seqs", self.max_num_seqs, 1, MAX_INT)
        # Every running request gets at least one token in every step.
        check_range(
            "max_num_batched_tokens", self.max_num_batched_tokens, self.max_num_seqs, MAX_INT
        )
        check_range("num_blocks", self.num_blocks, 0, MAX_NUM_BLOCKS)
        if self.num_blocks == 1:
            raise field_error("num_blocks", "at least 2 (one is the null block)", 1)
        check_range("block_size", self.block_size, 1, _MAX_BLOCK_SIZE)
        check_range("long_prefill_token_threshold", self.long_prefill_token_threshold, 0, MAX_INT)
        if not 0.0 <= self.watermark < 1.0:
            raise field_error("watermark", "in [0, 1)", self.watermark)
        check_range("threads", self.threads, 0, _MAX_THREADS)
        if not 0.0 < self.gpu_memory_utilization <= 1.0:
            raise field_error("gpu_memory_utilization", "in (0, 1]", self.gpu_memory_utilization)
        check_range("max_cuda_graph_seqs", self.max_cuda_graph_seqs, 0, MAX_INT)
