"""The Jinja2 environment in which published chat templates are written to run.

The settings, filters and globals are those that `transformers` (5.x) gives to chat templates; the
engine's evaluator is compared with this environment before a bundle is written.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any

import jinja2
import jinja2.ext
from jinja2 import nodes
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

REASONING_FIELDS = ("reasoning_content", "thinking", "reasoning")
CONTINUE_TAG = "CONTINUE_FINAL_MESSAGE_TAG "

Message = dict[str, Any]


class GenerationExtension(jinja2.ext.Extension):
    """`{% generation %}`: marks what the assistant said; here it renders its body."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("render_generation"), [], [], body).set_lineno(line)

    def render_generation(self, caller: Callable[[], str]) -> str:
        return caller()


class _SafeDict:
    """`dict` as templates see it: callable, without the attributes of the type."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args, **kwargs)


def _check_namespace_name(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.exceptions.SecurityError(
            f"a namespace cannot store the underscore-prefixed attribute {name!r}"
        )


class _Namespace(jinja2.utils.Namespace):
    """A namespace that refuses names with a leading underscore."""

    def __init__(*args: Any, **kwargs: Any) -> None:  # `self` may be a keyword
        attributes = dict(*args[1:], **kwargs)
        for name in attributes:
            _check_namespace_name(name)
        jinja2.utils.Namespace.__init__(args[0], attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_namespace_name(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)


def _raise_exception(message: Any) -> None:
    raise jinja2.exceptions.TemplateError(message)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: Any = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def make_environment(
    now: Callable[[], datetime] = datetime.now,
) -> ImmutableSandboxedEnvironment:
    """The environment; `now` is the clock behind `strftime_now` (local time)."""

    def strftime_now(pattern: str) -> str:
        return now().strftime(pattern)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[GenerationExtension, jinja2.ext.loopcontrols],
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = strftime_now
    environment.globals["dict"] = _SafeDict()
    environment.globals["namespace"] = _Namespace
    return environment


@lru_cache(maxsize=64)
def _compiled(source: str, now: Callable[[], datetime]) -> jinja2.Template:
    return make_environment(now).from_string(source)


def _prepare_messages(messages: list[Message]) -> list[Message]:
    """Drops keys without a value and copies reasoning to the names that templates read."""
    prepared = []
    for message in messages:
        if not isinstance(message, Mapping):
            raise TypeError(f"a message must be an object, found {message!r}")
        kept = {key: value for key, value in message.items() if value is not None}
        reasoning = next((kept[key] for key in REASONING_FIELDS if key in kept), None)
        if reasoning is not None:
            kept = {"thinking": reasoning, **kept, "reasoning_content": reasoning}
        prepared.append(kept)
    return prepared


def _mark_final_message(messages: list[Message], source: str) -> str:
    """Appends CONTINUE_TAG to the last message's text; returns that text."""
    if "content" not in messages[-1]:
        raise ValueError("continue_final_message: the last message has no content")
    if "content" not in source:
        raise ValueError("continue_final_message: the template does not read content")
    content = messages[-1]["content"]
    if not isinstance(content, list):
        messages[-1]["content"] = content + CONTINUE_TAG
        return content
    for index in reversed(range(len(content))):
        if "text" in content[index]:
            text = content[index]["text"]
            part = {**content[index], "text": text + CONTINUE_TAG}
            messages[-1]["content"] = [*content[:index], part, *content[index + 1 :]]
            return text
    raise ValueError("continue_final_message: the last message has no text part")


def _cut_after_final_message(rendered: str, text: str) -> str:
    if text.strip() not in rendered or CONTINUE_TAG.strip() not in rendered:
        raise ValueError("continue_final_message: the last message does not appear in the text")
    position = rendered.rindex(CONTINUE_TAG.strip())
    if rendered[position : position + len(CONTINUE_TAG)] == CONTINUE_TAG:
        return rendered[:position]
    return rendered[:position].rstrip()


def render_reference(
    source: str,
    messages: list[Message],
    *,
    tools: list[dict[str, Any]] | None = None,
    documents: list[dict[str, Any]] | None = None,
    special_tokens: Mapping[str, str] | None = None,
    chat_template_kwargs: Mapping[str, Any] | None = None,
    add_generation_prompt: bool = False,
    continue_final_message: bool = False,
    now: Callable[[], datetime] = datetime.now,
) -> str:
    """What `apply_chat_template(tokenize=False)` gives. Raises what the template raises."""
    if not messages:
        raise ValueError("the conversation is empty")
    if continue_final_message and add_generation_prompt:
        raise ValueError("continue_final_message and add_generation_prompt exclude each other")
    prepared = _prepare_messages(messages)
    final_text = _mark_final_message(prepared, source) if continue_final_message else ""
    variables: dict[str, Any] = {**(special_tokens or {}), **(chat_template_kwargs or {})}
    rendered = _compiled(source, now).render(
        messages=prepared,
        tools=tools,
        documents=documents,
        add_generation_prompt=add_generation_prompt,
        **variables,
    )
    if continue_final_message:
        return _cut_after_final_message(rendered, final_text)
    return rendered


def is_finite_constant(value: Any) -> bool:
    """Whether a template's constant can be written as JSON."""
    return not isinstance(value, float) or math.isfinite(value)
