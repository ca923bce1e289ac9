"""Answers of commands that print a JSON object a line."""

import json


def json_lines(text: str) -> list:
    """Lines end with a line feed alone: what else str.splitlines() knows (U+0085, U+2028, ...) may
    stand in a text."""
    return [json.loads(line) for line in text.split("\n") if line]
