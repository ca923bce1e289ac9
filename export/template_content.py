"""Finds out whether a chat template takes `content` as text or loops over its parts.

Templates differ by role (some loop over a user's parts but want text from the system), so each role
is tried: the template is rendered with a message whose content is a list of two text parts. Where
that fails, or prints the list itself, the engine joins the parts to one text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pinfer.export.template_environment import Message, render_reference

ROLES = ("system", "user", "assistant", "tool")

_FIRST, _SECOND = "pinfer-part-one", "pinfer-part-two"
_PARTS = [{"type": "text", "text": _FIRST}, {"type": "text", "text": _SECOND}]
_TOOL_CALL = {
    "id": "call00000",
    "type": "function",
    "function": {"name": "look_up", "arguments": {"word": "part"}},
}
_TOOL = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Looks a word up.",
        "parameters": {"type": "object", "properties": {"word": {"type": "string"}}},
    },
}


def detect_content_parts(source: str, special_tokens: Mapping[str, str]) -> dict[str, bool]:
    """For each role: whether its content may be passed as a list of parts."""
    return {role: _takes_parts(source, special_tokens, role) for role in ROLES}


def _takes_parts(source: str, special_tokens: Mapping[str, str], role: str) -> bool:
    try:
        text = render_reference(
            source,
            _conversation(role),
            tools=[_TOOL] if role == "tool" else None,
            special_tokens=special_tokens,
            add_generation_prompt=True,
        )
    except Exception:  # a template may raise anything; it then does not take parts
        return False
    return _FIRST in text and not any(shown in text for shown in _whole_list_forms())


def _whole_list_forms() -> list[str]:
    """How a template shows a part that it does not look into."""
    return [str(_PARTS[0]), json.dumps(_PARTS[0]), json.dumps(_PARTS[0], separators=(",", ":"))]


def _conversation(role: str) -> list[Message]:
    user: Message = {"role": "user", "content": "question"}
    tested: Message = {"role": role, "content": [dict(part) for part in _PARTS]}
    if role == "user":
        return [tested]
    if role == "system":
        return [tested, user]
    if role == "assistant":
        return [user, tested, dict(user)]
    call: dict[str, Any] = {"role": "assistant", "content": "", "tool_calls": [_TOOL_CALL]}
    return [user, call, {**tested, "name": "look_up", "tool_call_id": "call00000"}]
