"""The engine's tokenizer for tests, reached through the C++ test tool `tokenize_tool`."""

import json
import os
import subprocess
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


def find_tool() -> Path:
    """The newest build of the tool; PINFER_TOKENIZE_TOOL names another one."""
    named = os.environ.get("PINFER_TOKENIZE_TOOL")
    if named:
        return Path(named)
    pattern = "build/*/tests/engine_cpp/tokenizer/tokenize_tool"
    found = sorted(REPOSITORY.glob(pattern), key=lambda path: path.stat().st_mtime)
    assert found, f"tokenize_tool is missing: none at {pattern}; run `make build-tests`"
    return found[-1]


class EngineTokenizer:
    """A compiled tokenizer. Each call answers all its requests in one run of the tool."""

    def __init__(self, tables: bytes, folder: Path) -> None:
        self._path = folder / "tokenizer.bin"
        self._path.write_bytes(tables)

    def ask(self, requests: list[dict]) -> list[dict]:
        lines = "".join(json.dumps(request) + "\n" for request in requests)
        command = [str(find_tool()), str(self._path)]
        run = subprocess.run(command, input=lines.encode(), capture_output=True)
        assert run.returncode == 0, run.stderr.decode()
        # Only line feeds end a line: the texts may hold any other line separator.
        answers = [json.loads(line) for line in run.stdout.decode().split("\n")[:-1]]
        assert len(answers) == len(requests)
        return answers

    def encode(self, texts: list[str], add_special_tokens: bool = True) -> list:
        """The ids of each text, or the error's text."""
        requests = [{"text": text, "add_special_tokens": add_special_tokens} for text in texts]
        return [answer.get("ids", answer.get("error")) for answer in self.ask(requests)]

    def decode(self, ids: list[list[int]], skip_special_tokens: bool) -> list[str]:
        requests = [{"ids": one, "skip_special_tokens": skip_special_tokens} for one in ids]
        return [answer.get("text", answer.get("error")) for answer in self.ask(requests)]

    def stream(self, ids: list[list[int]], skip_special_tokens: bool, prompts=None) -> list:
        """The pieces of text of each stream; `prompts` are the ids before each."""
        prompts = [[]] * len(ids) if prompts is None else prompts
        requests = [
            {
                "ids": one,
                "stream": True,
                "prompt_ids": prompt,
                "skip_special_tokens": skip_special_tokens,
            }
            for one, prompt in zip(ids, prompts, strict=True)
        ]
        return [answer["texts"] for answer in self.ask(requests)]
