"""What a request asks of the sampler and of the end rules.

One field list; the C++ twin (engine_cpp/core/sampling_params.h) has the same names, types and
defaults.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from pinfer.runtime.core.field_check import MAX_INT, check_range, field_error

# Temperatures up to this one mean greedy: the best token always wins.
GREEDY_TEMPERATURE = 1e-5


@dataclass(frozen=True, slots=True)
class SamplingParams:
    temperature: float = 1.0  # >= 0; 0 = greedy
    top_p: float = 1.0  # (0, 1]; 1 = off
    top_k: int = 0  # 0 or -1 = off
    min_p: float = 0.0  # [0, 1]; 0 = off
    presence_penalty: float = 0.0  # [-2, 2], over generated tokens
    frequency_penalty: float = 0.0  # [-2, 2], over generated tokens
    repetition_penalty: float = 1.0  # > 0, over prompt and generated tokens; 1 = off
    logit_bias: dict[int, float] = field(default_factory=dict)  # token id -> [-100, 100]
    allowed_token_ids: list[int] = field(default_factory=list)  # empty = every id
    # Sequences that are never completed.
    bad_words_token_ids: list[list[int]] = field(default_factory=list)
    seed: int | None = None  # none = random
    max_tokens: int = 16  # >= 1
    min_tokens: int = 0  # [0, max_tokens]: no end id is sampled before
    ignore_eos: bool = False
    stop_token_ids: list[int] = field(default_factory=list)
    stop: list[str] = field(default_factory=list)
    logprobs: int | None = None  # the N best with each sampled token; none = off
    prompt_logprobs: int | None = None  # the same with each prompt token but the first

    def validate(self) -> None:
        """Raises ValueError naming the field, the range and what was found."""
        self._check_filters()
        self._check_penalties()
        self._check_end_rules()

    def validate_token_ids(self, vocab_size: int) -> None:
        """The same for ids of logit_bias and allowed_token_ids beyond the vocabulary."""
        range_text = f"a token id below {vocab_size}"
        for name, token_ids in (
            ("logit_bias", sorted(self.logit_bias)),
            ("allowed_token_ids", self.allowed_token_ids),
        ):
            for token_id in token_ids:
                if not 0 <= token_id < vocab_size:
                    raise field_error(name, range_text, token_id)

    @property
    def is_greedy(self) -> bool:
        return self.temperature <= GREEDY_TEMPERATURE

    def _check_filters(self) -> None:
        if not math.isfinite(self.temperature) or self.temperature < 0.0:
            raise field_error("temperature", "a finite number >= 0", self.temperature)
        if not 0.0 < self.top_p <= 1.0:
            raise field_error("top_p", "in (0, 1]", self.top_p)
        check_range("top_k", self.top_k, -1, MAX_INT)
        check_range("min_p", self.min_p, 0.0, 1.0)

    def _check_penalties(self) -> None:
        check_range("presence_penalty", self.presence_penalty, -2.0, 2.0)
        check_range("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        if not math.isfinite(self.repetition_penalty) or self.repetition_penalty <= 0.0:
            raise field_error("repetition_penalty", "a finite number > 0", self.repetition_penalty)
        for token_id, bias in sorted(self.logit_bias.items()):
            if token_id < 0:
                raise field_error("logit_bias", "a map from ids >= 0", token_id)
            check_range(f"logit_bias[{token_id}]", bias, -100.0, 100.0)
        for word in self.bad_words_token_ids:
            if not word:
                raise field_error("bad_words_token_ids", "lists that are not empty", "[]")
            _check_token_ids("bad_words_token_ids", word)
        _check_token_ids("allowed_token_ids", self.allowed_token_ids)

    def _check_end_rules(self) -> None:
        check_range("max_tokens", self.max_tokens, 1, MAX_INT)
        check_range("min_tokens", self.min_tokens, 0, self.max_tokens)
        _check_token_ids("stop_token_ids", self.stop_token_ids)
        if "" in self.stop:
            raise field_error("stop", "a list of non-empty strings", '""')
        check_range("logprobs", self.logprobs or 0, 0, MAX_INT)
        check_range("prompt_logprobs", self.prompt_logprobs or 0, 0, MAX_INT)


def _check_token_ids(name: str, token_ids: list[int]) -> None:
    for token_id in token_ids:
        if token_id < 0:
            raise field_error(name, "a list of ids >= 0", token_id)
