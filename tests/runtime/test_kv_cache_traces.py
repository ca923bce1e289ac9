"""The cache manager with several groups does what vLLM's did (tests/data/kv_cache_traces)."""

import json
import lzma
from pathlib import Path

from pinfer.runtime.core.engine_config import EngineConfig
from pinfer.runtime.core.kv_cache_config import KVCacheConfig, KVCacheGroup
from pinfer.runtime.core.kv_cache_spec import KVCacheSpec
from pinfer.runtime.core.request import Request
from pinfer.runtime.core.sampling_params import SamplingParams
from pinfer.runtime.kv_cache.kv_cache_manager import KVCacheManager

TRACES = Path(__file__).parents[1] / "data" / "kv_cache_traces" / "groups.json.xz"


class Replay:
    def __init__(self, trace):
        block_size = trace["block_size"]
        config = EngineConfig(
            block_size=block_size,
            num_blocks=trace["num_blocks"],
            max_model_len=1000,
            scheduler_reserve_full_isl=False,
        )
        groups = [
            KVCacheGroup(KVCacheSpec(block_size, window), [layer])
            for layer, window in enumerate(trace["windows"])
        ]
        self.manager = KVCacheManager(config, KVCacheConfig(groups))
        self._requests = {}

    def admit(self, request_id, prompt_ranges, num_new_tokens, num_hit_tokens, tables):
        prompt = [first + i for first, count in prompt_ranges for i in range(count)]
        request = Request(request_id, prompt, SamplingParams())
        computed = self.manager.get_computed_blocks(request)
        assert computed.num_tokens == num_hit_tokens
        if self.manager.allocate_for_admission(request, computed, num_new_tokens, 0):
            request.num_computed_tokens = num_hit_tokens + num_new_tokens
            self._requests[request_id] = request
            assert request.block_ids == tables
        else:
            assert tables is None

    def run(self, request_id, token_id, num_new_tokens, tables):
        request = self._requests[request_id]
        if token_id is not None:
            request.append_output_token_id(token_id)
        if self.manager.allocate_for_running(request, num_new_tokens):
            request.num_computed_tokens += num_new_tokens
            assert request.block_ids == tables
        else:
            assert tables is None

    def free(self, request_id):
        self.manager.free(self._requests.pop(request_id))


def test_traces_are_reproduced():
    traces = json.loads(lzma.decompress(TRACES.read_bytes()))
    for trace in traces:
        replay = Replay(trace)
        for name, *arguments in trace["operations"]:
            getattr(replay, name)(*arguments)
        assert replay.manager.block_pool.free_block_ids() == trace["free_block_ids"]
    assert len(traces) == 60
    assert {len(trace["windows"]) for trace in traces} == {1, 2, 3}
