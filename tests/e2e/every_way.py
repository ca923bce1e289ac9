"""One request in every way the engine takes it: all must give the same answer."""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pinfer as binding


@dataclass(frozen=True)
class Answer:
    text: str
    ids: list[int]
    finish_reason: str
    num_prompt_tokens: int


class EveryWay:
    """`pinfer run` and `batch`, and pinfer.Engine, over one bundle. A context manager."""

    RUN_FLAGS = frozenset({"max_tokens", "temperature", "stop", "ignore_eos", "min_tokens"})

    def __init__(self, program: Path, bundle: Path) -> None:
        self._program, self.bundle = program, bundle
        self.engine = binding.Engine(bundle, threads=1)

    def __enter__(self) -> "EveryWay":
        return self

    def __exit__(self, *_: object) -> None:
        self.engine.close()

    def ask(self, prompt: str, **options) -> Answer:
        """The answer to a text, greedy unless `options` say otherwise."""
        options = {"temperature": 0.0, "max_tokens": 30, **options}
        lines = [{"prompt": prompt, **options}] * 2
        first, second = self.batch_lines(lines)
        assert first == second, first
        answer = Answer(*(first[k] for k in ("text", "ids", "finish_reason", "num_prompt_tokens")))
        assert as_answer(self.engine.generate(prompt, **options)) == answer
        assert all(as_answer(o) == answer for o in self.engine.batch([prompt] * 2, **options))
        assert joined(self.engine.stream(prompt, **options)) == answer
        if set(options) <= self.RUN_FLAGS:
            assert self.run(prompt, **options) == answer.text
            ids = [int(word) for word in self.run(prompt, "--ids", **options).split()]
            assert ids == answer.ids
        return answer

    def batch_lines(self, lines: list[dict]) -> list[dict]:
        text = "".join(json.dumps(line) + "\n" for line in lines)
        result = subprocess.run(
            [self._program, "batch", self.bundle], input=text.encode(), capture_output=True
        )
        assert result.returncode == 0, result.stderr
        return [json.loads(line) for line in result.stdout.decode().splitlines()]

    def run(self, prompt: str, *flags: str, **options) -> str:
        """What `pinfer run` prints, without the line's end that it adds."""
        for name, value in options.items():
            flag = f"--{name.replace('_', '-')}"
            if value is True:
                flags += (flag,)
            elif value is not False:
                values = value if isinstance(value, list) else [value]
                flags += tuple(part for entry in values for part in (flag, str(entry)))
        command = [self._program, "run", self.bundle, "-p", prompt, *flags]
        result = subprocess.run(command, capture_output=True)
        assert result.returncode == 0, result.stderr
        return result.stdout.decode().removesuffix("\n")


def as_answer(output: binding.Output) -> Answer:
    return Answer(output.text, output.token_ids, output.finish_reason, output.num_prompt_tokens)


def joined(pieces) -> Answer:
    pieces = list(pieces)
    assert all(piece.finish_reason is None for piece in pieces[:-1])
    ids = [i for piece in pieces for i in piece.token_ids]
    last = pieces[-1]
    text = "".join(piece.text for piece in pieces)
    return Answer(text, ids, last.finish_reason, last.num_prompt_tokens)
