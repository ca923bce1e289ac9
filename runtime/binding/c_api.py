"""The C interface (engine_cpp/include/pinfer/pinfer.h) for ctypes: structs, functions, errors."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import (
    POINTER,
    c_bool,
    c_char_p,
    c_double,
    c_float,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_void_p,
)
from functools import lru_cache
from typing import Any

from pinfer.runtime.library import load_library

OK, TIMED_OUT, ENDED = 0, 6, 8
STATUS_NAMES = (
    "ok", "invalid_argument", "not_found", "failed_precondition", "data_loss",
    "resource_exhausted", "timed_out", "internal", "ended",
)  # fmt: skip
LOG_LEVELS = ("debug", "info", "warning", "error")


class Error(Exception):
    """What the engine refused or failed at. `status`: one of STATUS_NAMES."""

    def __init__(self, status: str, message: str) -> None:
        super().__init__(message)
        self.status = status


LogCallback = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_char_p)
ProgressCallback = ctypes.CFUNCTYPE(None, c_void_p, c_double, c_char_p)


class EngineOptions(ctypes.Structure):
    _fields_ = (
        ("struct_size", c_size_t),
        ("max_model_len", c_int32),
        ("max_num_seqs", c_int32),
        ("max_num_batched_tokens", c_int32),
        ("num_blocks", c_int32),
        ("block_size", c_int32),
        ("long_prefill_token_threshold", c_int32),
        ("scheduling_policy", c_char_p),
        ("enable_prefix_caching", c_bool),
        ("verify", c_bool),
        ("text_only", c_bool),
        ("threads", c_int32),
        ("provider", c_char_p),
        ("max_queue", c_int32),
        ("max_queue_tokens", c_int64),
        ("log_callback", LogCallback),
        ("log_user_data", c_void_p),
        ("progress_callback", ProgressCallback),
        ("progress_user_data", c_void_p),
        ("huge_pages", c_char_p),
        ("gpu_memory_utilization", c_double),
        ("max_cuda_graph_seqs", c_int64),
        ("cpus", c_char_p),
        ("async_scheduling", c_int64),
    )


class Metrics(ctypes.Structure):
    _fields_ = (
        ("struct_size", c_size_t),
        ("num_requests_running", c_int64),
        ("num_requests_waiting", c_int64),
        ("num_usable_blocks", c_int64),
        ("num_free_blocks", c_int64),
        ("num_preemptions", c_int64),
        ("prefix_cache_queries", c_int64),
        ("prefix_cache_hits", c_int64),
        ("prompt_tokens", c_int64),
        ("generation_tokens", c_int64),
        ("num_steps", c_int64),
        ("requests_finished_stop", c_int64),
        ("requests_finished_length", c_int64),
        ("requests_finished_abort", c_int64),
        ("requests_finished_error", c_int64),
        ("num_queued_tokens", c_int64),
        ("stalled_ms", c_int64),
    )


class SamplingParams(ctypes.Structure):
    _fields_ = (
        ("struct_size", c_size_t),
        ("temperature", c_double),
        ("top_p", c_double),
        ("min_p", c_double),
        ("presence_penalty", c_double),
        ("frequency_penalty", c_double),
        ("repetition_penalty", c_double),
        ("top_k", c_int32),
        ("max_tokens", c_int32),
        ("min_tokens", c_int32),
        ("has_seed", c_bool),
        ("ignore_eos", c_bool),
        ("include_stop_str_in_output", c_bool),
        ("skip_special_tokens", c_bool),
        ("seed", c_int64),
        ("stop_token_ids", POINTER(c_int32)),
        ("num_stop_token_ids", c_size_t),
        ("stop", POINTER(c_char_p)),
        ("num_stop", c_size_t),
        ("logit_bias_token_ids", POINTER(c_int32)),
        ("logit_bias_values", POINTER(c_double)),
        ("num_logit_bias", c_size_t),
        ("allowed_token_ids", POINTER(c_int32)),
        ("num_allowed_token_ids", c_size_t),
        ("bad_words", POINTER(c_char_p)),
        ("num_bad_words", c_size_t),
        ("logprobs", c_int32),
        ("prompt_logprobs", c_int32),
    )


class TokenLogprobs(ctypes.Structure):
    _fields_ = (
        ("logprob", c_double),
        ("top_token_ids", POINTER(c_int32)),
        ("top_logprobs", POINTER(c_double)),
        ("num_top", c_size_t),
    )


class Output(ctypes.Structure):
    _fields_ = (
        ("struct_size", c_size_t),
        ("text", c_void_p),
        ("text_size", c_size_t),
        ("token_ids", POINTER(c_int32)),
        ("num_token_ids", c_size_t),
        ("finish_reason", c_char_p),
        ("error_message", c_char_p),
        ("num_prompt_tokens", c_int32),
        ("num_cached_tokens", c_int32),
        ("logprobs", POINTER(TokenLogprobs)),
        ("num_logprobs", c_size_t),
        ("prompt_logprobs", POINTER(TokenLogprobs)),
        ("num_prompt_logprobs", c_size_t),
        ("queue_ms", c_double),
        ("prefill_ms", c_double),
        ("decode_ms", c_double),
        ("embedding", POINTER(c_float)),
        ("num_embedding", c_size_t),
    )


OutputCallback = ctypes.CFUNCTYPE(None, c_void_p, POINTER(Output))


class RequestOptions(ctypes.Structure):
    _fields_ = (
        ("struct_size", c_size_t),
        ("prompt_token_ids", POINTER(c_int32)),
        ("num_prompt_token_ids", c_size_t),
        ("sampling_params", POINTER(SamplingParams)),
        ("priority", c_int32),
        ("choice_index", c_int32),
        ("cache_salt", c_char_p),
        ("output_callback", OutputCallback),
        ("output_user_data", c_void_p),
    )


class EmbedOptions(ctypes.Structure):
    _fields_ = (
        ("struct_size", c_size_t),
        ("token_ids", POINTER(c_int32)),
        ("num_token_ids", c_size_t),
        ("dimensions", c_int32),
        ("priority", c_int32),
        ("cache_salt", c_char_p),
        ("output_callback", OutputCallback),
        ("output_user_data", c_void_p),
    )


_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "pinfer_version": (c_char_p, []),
    "pinfer_abi_version": (c_int32, []),
    "pinfer_status_name": (c_char_p, [c_int]),
    "pinfer_error_message": (c_char_p, [c_void_p]),
    "pinfer_error_free": (None, [c_void_p]),
    "pinfer_free": (None, [c_void_p]),
    "pinfer_engine_options_init": (c_int, [POINTER(EngineOptions), c_size_t]),
    "pinfer_engine_open": (
        c_int,
        [c_char_p, POINTER(EngineOptions), POINTER(c_void_p), POINTER(c_void_p)],
    ),
    "pinfer_engine_close": (None, [c_void_p]),
    "pinfer_engine_drain": (c_int, [c_void_p, c_int64, POINTER(c_void_p)]),
    "pinfer_engine_info_json": (c_char_p, [c_void_p]),
    "pinfer_engine_metrics": (c_int, [c_void_p, POINTER(Metrics), c_size_t]),
    "pinfer_tokenize": (
        c_int,
        [c_void_p, c_char_p, c_size_t, c_bool, POINTER(POINTER(c_int32)), POINTER(c_size_t),
         POINTER(c_void_p)],
    ),
    "pinfer_detokenize": (
        c_int,
        [c_void_p, POINTER(c_int32), c_size_t, c_bool, POINTER(c_void_p), POINTER(c_size_t),
         POINTER(c_void_p)],
    ),
    "pinfer_render": (
        c_int,
        [c_void_p, c_char_p, c_size_t, POINTER(c_void_p), POINTER(c_size_t), POINTER(c_void_p)],
    ),
    "pinfer_sampling_params_init": (c_int, [POINTER(SamplingParams), c_size_t]),
    "pinfer_sampling_params_default": (c_int, [c_void_p, POINTER(SamplingParams), c_size_t]),
    "pinfer_request_options_init": (c_int, [POINTER(RequestOptions), c_size_t]),
    "pinfer_submit": (
        c_int,
        [c_void_p, POINTER(RequestOptions), POINTER(c_void_p), POINTER(c_void_p)],
    ),
    "pinfer_embed_tokenize": (
        c_int,
        [c_void_p, c_char_p, c_size_t, c_char_p, POINTER(POINTER(c_int32)), POINTER(c_size_t),
         POINTER(c_void_p)],
    ),
    "pinfer_embed_options_init": (c_int, [POINTER(EmbedOptions), c_size_t]),
    "pinfer_embed": (
        c_int,
        [c_void_p, POINTER(EmbedOptions), POINTER(c_void_p), POINTER(c_void_p)],
    ),
    "pinfer_request_next": (c_int, [c_void_p, c_int64, POINTER(Output), c_size_t]),
    "pinfer_request_abort": (None, [c_void_p]),
    "pinfer_request_free": (None, [c_void_p]),
    "pinfer_verify": (c_int, [c_char_p, POINTER(c_void_p)]),
}  # fmt: skip


# Of pinfer.h: the version of the interface that is declared here.
ABI_VERSION = 1


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL:
    """libpinfer with its functions declared."""
    loaded = load_library(_FUNCTIONS)
    if loaded.pinfer_abi_version() != ABI_VERSION:
        raise ImportError(
            f"{loaded._name}: expected version {ABI_VERSION} of the interface, "
            f"found {loaded.pinfer_abi_version()}"
        )
    return loaded


def initialized(struct: Any, function: Callable[..., int], *arguments: Any) -> Any:
    """The struct, filled by a function that takes it and its size last. Raises Error."""
    status = function(*arguments, ctypes.byref(struct), ctypes.sizeof(struct))
    if status != OK:
        raise Error(status_name(status), f"{function.__name__} failed")
    return struct


def status_name(status: int) -> str:
    return STATUS_NAMES[status] if status < len(STATUS_NAMES) else f"status {status}"


def call(function: Callable[..., int], *arguments: Any) -> None:
    """Calls a function whose last parameter is pinfer_error**. Raises Error."""
    error = c_void_p()
    status = function(*arguments, ctypes.byref(error))
    if status == OK:
        return
    message = library().pinfer_error_message(error) or b"unknown error"
    library().pinfer_error_free(error)
    raise Error(status_name(status), message.decode("utf-8", "replace"))


def take_text(function: Callable[..., int], *arguments: Any) -> str:
    """Calls a function that hands out text (pointer and size before the error). Raises Error."""
    text, size = c_void_p(), c_size_t()
    call(function, *arguments, ctypes.byref(text), ctypes.byref(size))
    try:
        return ctypes.string_at(text.value or 0, size.value).decode("utf-8")
    finally:
        library().pinfer_free(text)


def set_field(struct: Any, name: str, value: Any) -> None:
    """Sets a number or a text. ValueError naming the field where C would cut the value off."""
    if isinstance(value, str):
        value = text_bytes(name, value)
    setattr(struct, name, value)
    if isinstance(value, int) and getattr(struct, name) != value:
        field = next(kind for field, kind, *_ in struct._fields_ if field == name)
        raise ValueError(
            f"{name}: expected an integer of {8 * ctypes.sizeof(field)} bits, found {value}"
        )


def text_bytes(name: str, text: str) -> bytes:
    """As C takes it, which ends a text at its first NUL. ValueError naming the field for one."""
    if "\0" in text:
        raise ValueError(f"{name}: expected a text without NUL, found {text!r:.80}")
    return text.encode()
