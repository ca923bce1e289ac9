"""The reference engine: runs any bundle in eager PyTorch with the Python twins, one step after the
other. For parity tests; the engine that serves is the C++ one (pinfer.Engine)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pinfer.runtime.core.engine_config import EngineConfig
from pinfer.runtime.core.kv_cache_config import make_kv_cache_config
from pinfer.runtime.core.pooling_params import PoolingMode, PoolingParams
from pinfer.runtime.core.request import Request, RequestOptions
from pinfer.runtime.core.sampling_params import SamplingParams
from pinfer.runtime.core.token_logprobs import TokenLogprobs
from pinfer.runtime.engine.engine_core import EngineCore
from pinfer.runtime.executor.model import Model
from pinfer.runtime.executor.model_runner import ModelRunner
from pinfer.runtime.sampler.sampler import Sampler


@dataclass(slots=True)
class Completion:
    token_ids: list[int] = field(default_factory=list)
    finish_reason: str = ""
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprobs] = field(default_factory=list)


class Engine:
    """Token ids in, token ids out; not thread-safe."""

    def __init__(
        self,
        bundle: Path,
        config: EngineConfig | None = None,
        masked_token_ids: Iterable[int] = (),
    ) -> None:
        """masked_token_ids: ids without a token (padded vocabulary); they are never sampled."""
        model = Model(bundle)
        config = config or EngineConfig()
        if config.max_model_len == 0:
            config = replace(config, max_model_len=model.manifest["model"]["max_model_len"])
        kv_cache_config = make_kv_cache_config(
            model.layer_windows, config.block_size, config.max_model_len
        )
        per_request = kv_cache_config.max_blocks_held(
            config.max_model_len, config.max_num_batched_tokens
        )
        if config.num_blocks == 0:
            config = replace(config, num_blocks=per_request + 2)
        config.validate()
        if per_request > config.num_blocks - 1:
            raise ValueError(
                f"num_blocks {config.num_blocks} (one is the null block) cannot hold one request "
                f"of max_model_len {config.max_model_len}, which needs {per_request} blocks"
            )
        self._eos_token_ids = list(model.manifest["text"]["eos_token_ids"])
        self._core = EngineCore(
            config,
            kv_cache_config,
            ModelRunner(model, kv_cache_config, config.num_blocks),
            Sampler(masked_token_ids),
            model.embeds,
        )
        self._pooling: dict[str, Any] = model.manifest.get("pooling", {})
        self._next_id = 0

    def generate(
        self, prompts: Sequence[Sequence[int]], params: SamplingParams | Sequence[SamplingParams]
    ) -> list[Completion]:
        """All prompts at once through the scheduler; answers in the order of the prompts."""
        each = [params] * len(prompts) if isinstance(params, SamplingParams) else list(params)
        completions: dict[str, Completion] = {}
        for prompt, own in zip(prompts, each, strict=True):
            request_id = f"r{self._next_id}"
            self._next_id += 1
            options = RequestOptions(eos_token_ids=self._eos_token_ids)
            self._core.add_request(Request(request_id, prompt, own, options))
            completions[request_id] = Completion()
        while self._core.has_work():
            for output in self._core.step():
                completion = completions[output.request_id]
                completion.token_ids += output.new_token_ids
                completion.logprobs += output.new_logprobs
                completion.prompt_logprobs += output.prompt_logprobs
                completion.finish_reason = output.finish_reason
        return list(completions.values())

    def embed(self, inputs: Sequence[Sequence[int]], dimensions: int = 0) -> list[list[float]]:
        """All inputs at once; a bundle whose task is embed."""
        mode = PoolingMode(self._pooling["mode"])
        params = PoolingParams(mode, self._pooling["normalize"], dimensions)
        embeddings: dict[str, list[float]] = {}
        for token_ids in inputs:
            request_id = f"r{self._next_id}"
            self._next_id += 1
            options = RequestOptions(pooling=params)
            self._core.add_request(Request(request_id, token_ids, SamplingParams(), options))
            embeddings[request_id] = []
        while self._core.has_work():
            for output in self._core.step():
                embeddings[output.request_id] = output.embedding
        return list(embeddings.values())
