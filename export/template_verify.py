"""Proves that the engine renders a model's chat templates as Jinja2 does.

The exporter runs this before it writes a bundle. How the engine is called is the caller's choice.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import jinja2

from pinfer.export.errors import ExportError
from pinfer.export.template_corpus import Request, make_requests
from pinfer.export.template_environment import render_reference

PART_SEPARATOR = "\n"
NUM_REQUESTS = 100

# Requests in, `{"text": str}` or `{"error": str}` for each out, in order.
RenderAll = Callable[[Sequence[Request]], Sequence[Mapping[str, str]]]


@dataclass(frozen=True)
class Difference:
    """One request on which the two sides differ."""

    template: str
    request: Request
    expected: Mapping[str, str]
    found: Mapping[str, str]

    def __str__(self) -> str:
        return (
            f"chat template {self.template!r}: the engine's text differs from Jinja2's\n"
            f"request: {json.dumps(self.request, ensure_ascii=False)}\n"
            f"expected: {json.dumps(self.expected, ensure_ascii=False)}\n"
            f"found: {json.dumps(self.found, ensure_ascii=False)}"
        )


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


def is_same(expected: Mapping[str, str], found: Mapping[str, str]) -> bool:
    if "text" in expected:
        return found.get("text") == expected["text"]
    if "exact_error" in expected:
        return found.get("error") == expected["exact_error"]
    return "error" in found


def find_differences(
    compiled: Mapping[str, Any], render_all: RenderAll, requests: Sequence[Request]
) -> list[Difference]:
    """Compares every named template of a chat_template.json on every request."""
    differences = []
    for template in compiled["templates"]:
        named = [{**request, "chat_template": template["name"]} for request in requests]
        for request, found in zip(requests, render_all(named), strict=True):
            expected = expected_answer(template, compiled["special_tokens"], request)
            if not is_same(expected, found):
                differences.append(Difference(template["name"], request, expected, found))
    return differences


def verify_chat_template(
    compiled: Mapping[str, Any],
    render_all: RenderAll,
    *,
    count: int = NUM_REQUESTS,
    seed: int = 0,
) -> dict[str, int]:
    """The result for the manifest; raises ExportError with the first difference."""
    differences = find_differences(compiled, render_all, make_requests(count, seed))
    if differences:
        raise ExportError(str(differences[0]))
    return {"conversations": count, "templates": len(compiled["templates"]), "differences": 0}


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
