"""What Jinja2 makes of a request of `pinfer render`: a text, or that it is refused."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import jinja2

from pinfer.export.template_corpus import Request
from pinfer.export.template_environment import render_reference

PART_SEPARATOR = "\n"


def expected_answer(
    template: Mapping[str, Any], special_tokens: Mapping[str, str], request: Request
) -> dict[str, str]:
    """What Jinja2 makes of a request. `exact_error` is set where the error's text is fixed."""
    now = request.get("now", 0.0)
    try:
        text = render_reference(
            template["source"],
            _join_parts(request["messages"], template["content_parts"]),
            tools=request.get("tools"),
            documents=request.get("documents"),
            special_tokens=special_tokens,
            chat_template_kwargs=request.get("chat_template_kwargs"),
            add_generation_prompt=request.get("add_generation_prompt", False),
            continue_final_message=request.get("continue_final_message", False),
            now=_Clock(now),
        )
    except Exception as error:  # whatever a template raises, the engine must refuse as well
        answer = {"error": str(error)}
        if type(error) is jinja2.exceptions.TemplateError:  # raise_exception: its text is the error
            answer["exact_error"] = str(error)
        return answer
    return {"text": text}


class _Clock:
    """A clock that stands still; equal clocks share a compiled template."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __call__(self) -> datetime:
        return datetime.fromtimestamp(self._seconds)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Clock) and other._seconds == self._seconds

    def __hash__(self) -> int:
        return hash(self._seconds)


def _join_parts(
    messages: list[dict[str, Any]], content_parts: Mapping[str, bool]
) -> list[dict[str, Any]]:
    """The engine's documented rule: parts are joined where the template wants text."""
    joined = []
    for message in messages:
        content = message.get("content")
        takes_parts = content_parts.get(message.get("role", ""), content_parts["user"])
        if isinstance(content, list) and not takes_parts:
            text = PART_SEPARATOR.join(part["text"] for part in content)
            message = {**message, "content": text}
        joined.append(message)
    return joined
