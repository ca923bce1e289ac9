"""The C++ engine for Python programs: open a bundle, generate, stream, batch, chat.

A thin layer over the C interface by ctypes; no torch, no numpy. Thread-safety is the C interface's:
an Engine may be used from any thread, a Generation from one at a time.
"""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Callable, Iterator, Sequence
from ctypes import byref
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from pinfer.runtime.binding import c_api
from pinfer.runtime.binding.c_api import Error

__all__ = ["Engine", "Error", "Generation", "Output", "TokenLogprobs"]

# How long one wait takes, so that Ctrl-C reaches a waiting program.
_WAIT_MILLISECONDS = 100
_ENGINE_FIELDS = {name for name, *_ in c_api.EngineOptions._fields_}
# Sampling parameters that are plain numbers.
_NUMBERS = frozenset(
    """temperature top_p top_k min_p presence_penalty frequency_penalty repetition_penalty
    max_tokens min_tokens ignore_eos include_stop_str_in_output skip_special_tokens logprobs
    prompt_logprobs""".split()
)

Prompt = str | Sequence[int]
Message = dict[str, Any]


@dataclass
class TokenLogprobs:
    """At one position: natural log-softmax of the raw logits."""

    logprob: float  # of the token that stands there
    top: list[tuple[int, float]]  # the best ones, best first


@dataclass
class Output:
    """What a request has produced: a piece of it while streaming, or all of it."""

    text: str = ""
    token_ids: list[int] = field(default_factory=list)  # every sampled token, an end id included
    finish_reason: str | None = None  # None while it goes on; "stop", "length", "abort"
    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprobs] = field(default_factory=list)
    embedding: list[float] = field(default_factory=list)  # of submit_embedding(), at the end


class Generation:
    """A submitted request: iterate over its pieces, or wait() for all of it. Aborts when closed or
    collected before its end."""

    def __init__(self, engine: Engine, handle: ctypes.c_void_p) -> None:
        self._engine = engine  # keeps it open
        self._handle: ctypes.c_void_p | None = handle

    def __iter__(self) -> Iterator[Output]:
        while (piece := self.next()) is not None:
            yield piece

    def next(self, timeout: float | None = None) -> Output | None:
        """The next piece; None after the last one. TimeoutError if `timeout` seconds passed. Raises
        Error if the request failed."""
        if self._handle is None:
            return None
        remaining = None if timeout is None else int(timeout * 1000)
        output = c_api.Output()
        while True:
            wait = _WAIT_MILLISECONDS if remaining is None else min(remaining, _WAIT_MILLISECONDS)
            status = c_api.library().pinfer_request_next(
                self._handle, wait, byref(output), ctypes.sizeof(output)
            )
            if status == c_api.OK:
                break
            if status == c_api.ENDED:
                return None
            if status != c_api.TIMED_OUT:
                raise Error(c_api.status_name(status), "the next output cannot be read")
            if remaining is not None:
                remaining -= wait
                if remaining <= 0:
                    raise TimeoutError(f"no output within {timeout} s")
        if output.error_message is not None:
            raise Error("internal", output.error_message.decode("utf-8", "replace"))
        return _read_output(output)

    def wait(self) -> Output:
        """Everything that has not been read yet, to the end."""
        whole = Output()
        for piece in self:
            whole.text += piece.text
            whole.token_ids += piece.token_ids
            whole.logprobs += piece.logprobs
            whole.prompt_logprobs += piece.prompt_logprobs
            whole.embedding += piece.embedding
            whole.finish_reason = piece.finish_reason
            whole.num_prompt_tokens = piece.num_prompt_tokens
            whole.num_cached_tokens = piece.num_cached_tokens
        return whole

    def abort(self) -> None:
        """Ends the request early; its last piece says "abort". Any thread."""
        if self._handle is not None:
            c_api.library().pinfer_request_abort(self._handle)

    def close(self) -> None:
        if self._handle is not None:
            c_api.library().pinfer_request_free(self._handle)
            self._handle = None

    __del__ = close


class Engine:
    """An opened bundle. Use as a context manager, or close() it.

    Options are EngineConfig's fields (`pinfer describe`), and: verify (check every file's hash),
    text_only (no model), max_queue and max_queue_tokens (requests waiting at
    once and their prompt tokens, 0 = no limit), log (called with
    level and message, from any thread), progress (called with fraction and stage).
    """

    def __init__(
        self,
        bundle: str | os.PathLike[str],
        *,
        log: Callable[[str, str], None] | None = None,
        progress: Callable[[float, str], None] | None = None,
        **options: Any,
    ) -> None:
        self._handle: ctypes.c_void_p | None = None
        library = c_api.library()
        c_options = c_api.initialized(c_api.EngineOptions(), library.pinfer_engine_options_init)
        for name, value in options.items():
            if name not in _ENGINE_FIELDS or name.endswith(
                ("_callback", "_user_data", "struct_size")
            ):
                raise TypeError(f"Engine() has no option {name!r}")
            c_api.set_field(c_options, name, value)
        # Kept as long as the engine, which calls it.
        self._log_callback = _log_callback(log)
        c_options.log_callback = self._log_callback
        progress_callback = _progress_callback(progress)
        c_options.progress_callback = progress_callback
        handle = ctypes.c_void_p()
        c_api.call(library.pinfer_engine_open, os.fsencode(bundle), byref(c_options), byref(handle))
        self._handle = handle

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Aborts what still runs and frees everything. No other call may be running."""
        if self._handle is not None:
            handle, self._handle = self._handle, None
            c_api.library().pinfer_engine_close(handle)

    __del__ = close

    @property
    def info(self) -> dict[str, Any]:
        """model_name, dtype, vocab_size, max_model_len, threads, provider, num_blocks, ..."""
        return json.loads(c_api.library().pinfer_engine_info_json(self._opened()))

    def metrics(self) -> dict[str, int]:
        """Counters and gauges at this moment."""
        function = c_api.library().pinfer_engine_metrics
        metrics = c_api.initialized(c_api.Metrics(), function, self._opened())
        return {name: getattr(metrics, name) for name, *_ in metrics._fields_[1:]}

    def drain(self, timeout: float | None = None) -> bool:
        """Refuses new requests and waits for the others; False if the time (seconds) ran out."""
        milliseconds = -1 if timeout is None else int(timeout * 1000)
        try:
            c_api.call(c_api.library().pinfer_engine_drain, self._opened(), milliseconds)
        except Error as error:
            if error.status == "timed_out":
                return False
            raise
        return True

    # ---- text ----

    def tokenize(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return self._ids(c_api.library().pinfer_tokenize, text, add_special_tokens)

    def _ids(self, function: Any, text: str, option: Any) -> list[int]:
        data = text.encode("utf-8", "surrogatepass")  # the engine says what is wrong with it
        ids, count = ctypes.POINTER(ctypes.c_int32)(), ctypes.c_size_t()
        c_api.call(function, self._opened(), data, len(data), option, byref(ids), byref(count))
        try:
            return ids[: count.value]
        finally:
            c_api.library().pinfer_free(ids)

    def detokenize(self, token_ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        ids = _int32_array(token_ids)
        return c_api.take_text(c_api.library().pinfer_detokenize, self._opened(), ids, len(ids),
                               skip_special_tokens)  # fmt: skip

    def render(self, messages: Sequence[Message], **options: Any) -> str:
        """The chat template's text. Options: tools, documents, add_generation_prompt,
        continue_final_message, chat_template, chat_template_kwargs."""
        request = json.dumps({"messages": list(messages), **options}).encode()
        return c_api.take_text(c_api.library().pinfer_render, self._opened(), request, len(request))

    # ---- generation ----

    def submit(
        self,
        prompt: Prompt,
        *,
        priority: int = 0,
        cache_salt: str = "",
        choice_index: int = 0,
        **sampling: Any,
    ) -> Generation:
        """Hands a request to the engine and returns at once. `prompt`: text, or token ids as they
        are. choice_index: which of several choices of one seed. Sampling parameters as in
        SamplingParams, stop strings and bad_words as texts; what is not given comes from the
        model."""
        token_ids = self.tokenize(prompt) if isinstance(prompt, str) else prompt
        params, kept = self._sampling_params(sampling)
        ids = _int32_array(token_ids)
        library = c_api.library()
        options = c_api.initialized(c_api.RequestOptions(), library.pinfer_request_options_init)
        options.prompt_token_ids = ids
        options.num_prompt_token_ids = len(ids)
        options.sampling_params = ctypes.pointer(params)
        c_api.set_field(options, "priority", priority)
        c_api.set_field(options, "cache_salt", cache_salt)
        c_api.set_field(options, "choice_index", choice_index)
        handle = ctypes.c_void_p()
        c_api.call(library.pinfer_submit, self._opened(), byref(options), byref(handle))
        del kept  # the engine has copied what it needs
        return Generation(self, handle)

    def stream(self, prompt: Prompt, **options: Any) -> Iterator[Output]:
        """Pieces as they come; options as in submit()."""
        generation = self.submit(prompt, **options)
        try:
            yield from generation
        finally:
            generation.close()

    def generate(self, prompt: Prompt, **options: Any) -> Output:
        """The whole answer; options as in submit()."""
        return self.submit(prompt, **options).wait()

    def batch(self, prompts: Sequence[Prompt], **options: Any) -> list[Output]:
        """Many prompts at once through the one scheduler; answers in the order of the prompts."""
        generations = [self.submit(prompt, **options) for prompt in prompts]
        return [generation.wait() for generation in generations]

    def chat(
        self,
        messages: Sequence[Message],
        *,
        template: dict[str, Any] | None = None,
        **options: Any,
    ) -> Output:
        """The answer to a conversation. `template`: options of render()."""
        return self.submit(self._chat_prompt(messages, template), **options).wait()

    def stream_chat(
        self,
        messages: Sequence[Message],
        *,
        template: dict[str, Any] | None = None,
        **options: Any,
    ) -> Iterator[Output]:
        """chat(), in pieces."""
        return self.stream(self._chat_prompt(messages, template), **options)

    def score(self, token_ids: Sequence[int], top: int = 0) -> list[TokenLogprobs]:
        """Log-probabilities of token_ids[1:], each given those before it."""
        output = self.generate(token_ids, max_tokens=1, temperature=0.0, prompt_logprobs=top)
        return output.prompt_logprobs

    # ---- embeddings ----

    def tokenize_to_embed(self, text: str, prompt_name: str | None = None) -> list[int]:
        """As sentence-transformers does it: behind the model's prompt of that name (None: its
        default, if it has one; "": none), stripped, with special tokens."""
        name = None if prompt_name is None else prompt_name.encode()
        return self._ids(c_api.library().pinfer_embed_tokenize, text, name)

    def submit_embedding(
        self,
        text: Prompt,
        *,
        prompt_name: str | None = None,
        dimensions: int = 0,
        priority: int = 0,
        cache_salt: str = "",
    ) -> Generation:
        """Hands a text, or token ids as they are, to a model that embeds. The one piece of output
        has the embedding. dimensions: how many leading ones are kept, before it is normalised; 0:
        all."""
        is_text = isinstance(text, str)
        ids = _int32_array(self.tokenize_to_embed(text, prompt_name) if is_text else text)
        library = c_api.library()
        options = c_api.initialized(c_api.EmbedOptions(), library.pinfer_embed_options_init)
        options.token_ids = ids
        options.num_token_ids = len(ids)
        c_api.set_field(options, "dimensions", dimensions)
        c_api.set_field(options, "priority", priority)
        c_api.set_field(options, "cache_salt", cache_salt)
        handle = ctypes.c_void_p()
        c_api.call(library.pinfer_embed, self._opened(), byref(options), byref(handle))
        return Generation(self, handle)

    def embed(self, texts: Sequence[Prompt], **options: Any) -> list[list[float]]:
        """One vector for each text, all of them at once; options as in submit_embedding()."""
        submitted = [self.submit_embedding(text, **options) for text in texts]
        return [request.wait().embedding for request in submitted]

    def _chat_prompt(
        self, messages: Sequence[Message], template: dict[str, Any] | None
    ) -> list[int]:
        return self.tokenize(self.render(messages, **(template or {})), add_special_tokens=False)

    def _opened(self) -> ctypes.c_void_p:
        if self._handle is None:
            raise ValueError("the engine is closed")
        return self._handle

    def _sampling_params(self, given: dict[str, Any]) -> tuple[c_api.SamplingParams, list[Any]]:
        """The struct, and the arrays that it points to."""
        function = c_api.library().pinfer_sampling_params_default
        params = c_api.initialized(c_api.SamplingParams(), function, self._opened())
        kept: list[Any] = []
        for name, value in given.items():
            if name in _NUMBERS:
                c_api.set_field(params, name, value)
            elif name == "seed":
                params.has_seed = value is not None
                c_api.set_field(params, name, value or 0)
            elif name in ("stop_token_ids", "allowed_token_ids"):
                kept.append(_int32_array(value))
                setattr(params, name, kept[-1])
                setattr(params, f"num_{name}", len(value))
            elif name in ("stop", "bad_words"):
                texts = [value] if isinstance(value, str) else list(value)
                kept.append(
                    (ctypes.c_char_p * len(texts))(
                        *(c_api.text_bytes(name, text) for text in texts)
                    )
                )
                setattr(params, name, kept[-1])
                setattr(params, f"num_{name}", len(texts))
            elif name == "logit_bias":
                kept.append(_int32_array(list(value)))
                kept.append((ctypes.c_double * len(value))(*value.values()))
                params.logit_bias_token_ids, params.logit_bias_values = kept[-2:]
                params.num_logit_bias = len(value)
            else:
                raise TypeError(f"unknown sampling parameter {name!r}")
        return params, kept


def _int32_array(values: Sequence[int]) -> Any:
    for value in values:
        if not -(2**31) <= value < 2**31:  # ctypes would cut it off
            raise ValueError(f"token id {value}: expected 0 to {2**31 - 1}")
    return (ctypes.c_int32 * len(values))(*values)


def _read_logprobs(tokens: Any, count: int) -> list[TokenLogprobs]:
    return [
        TokenLogprobs(
            entry.logprob,
            list(
                zip(
                    entry.top_token_ids[: entry.num_top],
                    entry.top_logprobs[: entry.num_top],
                    strict=True,
                )
            ),
        )
        for entry in tokens[:count]
    ]


def _read_output(output: c_api.Output) -> Output:
    reason = output.finish_reason
    return Output(
        text=ctypes.string_at(output.text, output.text_size).decode("utf-8"),
        token_ids=output.token_ids[: output.num_token_ids],
        finish_reason=None if reason is None else reason.decode(),
        num_prompt_tokens=output.num_prompt_tokens,
        num_cached_tokens=output.num_cached_tokens,
        logprobs=_read_logprobs(output.logprobs, output.num_logprobs),
        prompt_logprobs=_read_logprobs(output.prompt_logprobs, output.num_prompt_logprobs),
        embedding=output.embedding[: output.num_embedding],
    )


def _log_callback(log: Callable[[str, str], None] | None) -> Any:
    if log is None:
        return c_api.LogCallback()
    return c_api.LogCallback(
        lambda _, level, message: log(c_api.LOG_LEVELS[level], message.decode("utf-8", "replace"))
    )


def _progress_callback(progress: Callable[[float, str], None] | None) -> Any:
    if progress is None:
        return c_api.ProgressCallback()
    return c_api.ProgressCallback(lambda _, fraction, stage: progress(fraction, stage.decode()))
