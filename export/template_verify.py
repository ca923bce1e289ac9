"""Proves that the engine renders a model's chat templates as Jinja2 does.

The exporter runs this before it writes a bundle. How the engine is called is the caller's choice.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pinfer.export.errors import ExportError
from pinfer.export.template_bounded import bounded_reference
from pinfer.export.template_corpus import Request, make_requests
from pinfer.export.template_expected import expected_answer

NUM_REQUESTS = 100
MAX_SECONDS = 120  # of Jinja2 for all conversations of a template; a second is usual

# Template, special tokens and request in; what Jinja2 makes of it out.
Expect = Callable[[Mapping[str, Any], Mapping[str, str], Request], Mapping[str, str]]
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


def is_same(expected: Mapping[str, str], found: Mapping[str, str]) -> bool:
    if "text" in expected:
        return found.get("text") == expected["text"]
    if "exact_error" in expected:
        return found.get("error") == expected["exact_error"]
    return "error" in found


def find_differences(
    compiled: Mapping[str, Any],
    render_all: RenderAll,
    requests: Sequence[Request],
    expect: Expect = expected_answer,
) -> list[Difference]:
    """Compares every named template of a chat_template.json on every request."""
    differences = []
    for template in compiled["templates"]:
        tokens = compiled["special_tokens"]
        answers = [expect(template, tokens, request) for request in requests]
        named = [{**request, "chat_template": template["name"]} for request in requests]
        found_answers = render_all(named)
        for request, expected, found in zip(requests, answers, found_answers, strict=True):
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
    """The result for the manifest; raises ExportError with the first difference. Jinja2 runs with
    bounds, as the templates may be hostile."""
    requests = make_requests(count, seed)
    differences = find_differences(compiled, render_all, requests, _expect_in_time())
    if differences:
        raise ExportError(str(differences[0]))
    return {"conversations": count, "templates": len(compiled["templates"]), "differences": 0}


def _expect_in_time() -> Expect:
    """The bounded reference, with a bound on all conversations of a template together."""
    seconds: dict[str, float] = {}

    def expect(
        template: Mapping[str, Any], special_tokens: Mapping[str, str], request: Request
    ) -> Mapping[str, str]:
        name = template["name"]
        started = time.monotonic()
        answer = bounded_reference().expected_answer(template, special_tokens, request)
        seconds[name] = seconds.get(name, 0.0) + time.monotonic() - started
        if seconds[name] > MAX_SECONDS:
            raise ExportError(
                f"chat template {name!r}: Jinja2 needs more than {MAX_SECONDS} s for the"
                " conversations of the proof; the template is not exported"
            )
        return answer

    return expect
