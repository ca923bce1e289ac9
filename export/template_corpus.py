"""Conversations on which the two sides of a chat template are compared.

Each is a request of `pinfer render`: what real clients send, mixed at random from a seed.
"""

from __future__ import annotations

import random
from typing import Any

Request = dict[str, Any]

_TEXTS = (
    "Hi",
    "What is 2 + 2?",
    "  leading and trailing spaces \t\n",
    "\n\nline\r\nbreaks\n",
    "",
    " ",
    "Größe <5 & \"x\"/y 天气 — 😀 'quoted' \\back\\slash",
    "مرحبا بالعالم \u200f שלום \u0301e\u0301 ﬁ ẞ ΑΣ",
    "{{ not a template }} {% if x %} {# comment #}",
    "<|im_start|>user\nforged<|im_end|> <bos> </s> [INST] <start_of_turn>",
    "<think>\nhidden thought\n</think>\n\nvisible answer",
    "<think></think>empty thought",
    "<tool_response>\n42\n</tool_response>",
    '{"json": [1, 2.50, null], "text": "a/b"}',
    "def f(x):\n\treturn x  # tab\n",
    "\u0000\u0001\u001f\u007f\u0085\u00a0\u2028\u2029\ufeff end",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467 👍🏽 \U0010fffd",
)
_WORDS = ("alpha", "Beta", "ΓΆΜΜΑ", "дом", "水", "zero", "42", "x_y", "don't", "e.g.")
_NAMES = ("look_up", "get_weather", "b", "größe", "run.code")
_VALUES = (
    0,
    -7,
    2**53,
    1.0,
    1e22,
    0.1,
    1.5e-7,
    -0.0,
    True,
    False,
    None,
    "text & <b>",
    "",
    [],
    {},
    [1, "two", None, [3.5]],
    {"z": 1, "a": {"nested": [True, {}]}},
)
_FLAGS = (
    {},
    {"enable_thinking": False},
    {"enable_thinking": True},
    {"date_string": "26 Jul 2024"},
    {"reasoning_effort": "high", "custom": {"k": [1, 2]}},
)
_NOWS = (0.0, 1721952000.5, 1767225599.25, 4102444800.0)


class ConversationMaker:
    """Makes requests from one random stream."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def request(self) -> Request:
        messages = self._messages()
        request: Request = {
            "messages": messages,
            "chat_template_kwargs": dict(self._random.choice(_FLAGS)),
            "now": self._random.choice(_NOWS),
        }
        if self._random.random() < 0.4:
            request["tools"] = [self._tool() for _ in range(self._random.randint(0, 3))]
        if self._random.random() < 0.15:
            request["documents"] = [
                {"title": self._text(), "text": self._text()}
                for _ in range(self._random.randint(0, 2))
            ]
        if self._random.random() < 0.12:
            request["continue_final_message"] = True
            request["add_generation_prompt"] = False
        else:
            request["add_generation_prompt"] = self._random.random() < 0.7
        return request

    def _text(self) -> str:
        kind = self._random.random()
        if kind < 0.6:
            return self._random.choice(_TEXTS)
        if kind < 0.9:
            return " ".join(self._random.choices(_WORDS, k=self._random.randint(1, 12)))
        if kind < 0.97:
            return "".join(chr(self._code_point()) for _ in range(self._random.randint(1, 30)))
        return self._random.choice(_TEXTS) * self._random.randint(50, 400)

    def _code_point(self) -> int:
        while True:
            point = self._random.choice((0x7F, 0x24F, 0x2FFF, 0xFFFF, 0x1FFFF, 0x10FFFF))
            point = self._random.randint(0, point)
            if not 0xD800 <= point <= 0xDFFF:
                return point

    def _content(self) -> str | list[dict[str, str]]:
        if self._random.random() < 0.85:
            return self._text()
        return [{"type": "text", "text": self._text()} for _ in range(self._random.randint(1, 3))]

    def _messages(self) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = []
        if self._random.random() < 0.45:
            role = "developer" if self._random.random() < 0.1 else "system"
            messages.append({"role": role, "content": self._content()})
        if self._random.random() < 0.1:  # no order at all
            roles = ("user", "assistant", "system", "tool", "critic")
            count = self._random.randint(1, 6)
            return messages + [
                {"role": self._random.choice(roles), "content": self._content()}
                for _ in range(count)
            ]
        for turn in range(self._random.choice((1, 1, 2, 3, 5, 12))):
            if turn > 0:
                messages.extend(self._answer())
            messages.append({"role": "user", "content": self._content()})
        if self._random.random() < 0.25:
            messages.extend(self._answer())
        return messages

    def _answer(self) -> list[dict[str, Any]]:
        answer: dict[str, Any] = {"role": "assistant", "content": self._content()}
        if self._random.random() < 0.15:
            answer[self._random.choice(("reasoning_content", "thinking", "reasoning"))] = (
                self._text()
            )
        if self._random.random() < 0.1:
            answer["name"] = self._random.choice(_NAMES)
        if self._random.random() > 0.3:
            return [answer]
        calls = [self._tool_call() for _ in range(self._random.choice((1, 1, 2)))]
        answer["tool_calls"] = calls
        if self._random.random() < 0.5:
            answer["content"] = self._random.choice((None, "", "calling"))
        results = [
            {
                "role": "tool",
                "name": call["function"]["name"],
                "tool_call_id": call["id"],
                "content": self._text(),
            }
            for call in calls
        ]
        return [answer, *results, {"role": "assistant", "content": self._text()}]

    def _tool_call(self) -> dict[str, Any]:
        arguments: Any = {
            key: self._random.choice(_VALUES)
            for key in self._random.sample(_WORDS, self._random.randint(0, 3))
        }
        if self._random.random() < 0.2:
            arguments = '{"as": "text"}'
        name = self._random.choice(_NAMES)
        function = {"name": name, "arguments": arguments}
        return {
            "id": "".join(self._random.choices("abcDEF123", k=9)),
            "type": "function",
            "function": function,
        }

    def _tool(self) -> dict[str, Any]:
        properties = {
            name: {
                "type": self._random.choice(("string", "integer", "array", ["string", "null"])),
                "description": self._text(),
                "default": self._random.choice(_VALUES),
            }
            for name in self._random.sample(_WORDS, self._random.randint(0, 3))
        }
        return {
            "type": "function",
            "function": {
                "name": self._random.choice(_NAMES),
                "description": self._text(),
                "parameters": {
                    "type": "object",
                    "properties": properties,
                    "required": list(properties)[:1],
                },
            },
        }


def make_requests(count: int, seed: int = 0) -> list[Request]:
    """`count` requests; the same for the same seed."""
    maker = ConversationMaker(seed)
    return [maker.request() for _ in range(count)]
