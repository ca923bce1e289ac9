"""The engine's chat templates for tests, reached through the C++ test tool `template_tool`."""

import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pinfer.export.template_tree import compile_chat_template

REPOSITORY = Path(__file__).parents[2]
TEMPLATE_DATA = REPOSITORY / "tests" / "data" / "chat_templates"
SPECIAL_TOKENS = {"bos_token": "<bos>", "eos_token": "<eos>"}


def find_tool() -> Path:
    """The newest build of the tool; PINFER_TEMPLATE_TOOL names another one."""
    named = os.environ.get("PINFER_TEMPLATE_TOOL")
    if named:
        return Path(named)
    pattern = "build/*/tests/engine_cpp/template/template_tool"
    found = sorted(REPOSITORY.glob(pattern), key=lambda path: path.stat().st_mtime)
    assert found, f"template_tool is missing: none at {pattern}; run `make build-tests`"
    return found[-1]


def run_tool(argument: str, lines: Sequence[dict] = ()) -> list[dict]:
    """What the tool answers to JSON lines."""
    text = "".join(json.dumps(line) + "\n" for line in lines)
    run = subprocess.run([str(find_tool()), argument], input=text.encode(), capture_output=True)
    assert run.returncode == 0, run.stderr.decode()
    # Only line feeds end a line: the texts may hold any other line separator.
    return [json.loads(line) for line in run.stdout.decode().split("\n")[:-1]]


class EngineTemplates:
    """Compiled templates as the engine renders them. Answers all requests in one run."""

    def __init__(self, templates: str | list[dict], special_tokens: dict | None = None) -> None:
        tokens = SPECIAL_TOKENS if special_tokens is None else special_tokens
        self.compiled = compile_chat_template(templates, special_tokens=tokens)

    def render_all(self, requests: Sequence[dict]) -> list[dict]:
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(self.compiled, file)
            file.flush()
            answers = run_tool(file.name, requests)
        assert len(answers) == len(requests)
        return answers

    def render(self, request: dict) -> dict:
        return self.render_all([request])[0]
