"""Engines behind one interface, for compare.py and its kin: each measurement is a process.

What a process says about itself is checked (numbers of tokens) before it counts.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent
KV_BYTES = {"float32": 4, "bfloat16": 2}
# One token each in every tokenizer that has these words; the engines' own counts are checked.
WORDS = (
    "time year people way day man thing woman life child world school state family student group "
    "country problem hand part place case week company system program question work government "
    "number night point home water room mother area money story fact month lot right study book"
).split()


class EngineError(Exception):
    """A run that does not count."""


class Point(NamedTuple):
    """kind "decode": output_tokens behind the prompt; "prefill": the prompt alone."""

    kind: str
    prompt_tokens: int
    output_tokens: int = 1


class Start(NamedTuple):
    first_token_s: float  # since the launch
    peak_mb: float  # 10^6 bytes


class Finished(NamedTuple):
    stdout: str
    stderr: str
    first_byte_s: float
    peak_mb: float


@dataclass
class Settings:
    threads: int = 2
    timeout: float = 900


def check(found: object, expected: object, what: str) -> None:
    if found != expected:
        raise EngineError(f"{what}: expected {expected}, found {found}")


class PeakMemory(threading.Thread):
    """Follows a process: the maximum that wait4() tells begins with that of the process it was
    forked from."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.megabytes = 0.0
        self._status = Path(f"/proc/{pid}/status")
        self._sample()  # it may end before the thread runs

    def run(self) -> None:
        while self._sample():
            time.sleep(0.005)

    def _sample(self) -> bool:
        """False once it has ended."""
        try:
            lines = self._status.read_text().splitlines()
        except OSError:
            return False
        peak = [line.split()[1] for line in lines if line.startswith("VmHWM:")]
        if peak:
            self.megabytes = max(self.megabytes, int(peak[0]) * 1024 / 1e6)
        return bool(peak) or not any(line.startswith("State:\tZ") for line in lines)


def run_process(command: list[str], timeout: float, environment: dict | None = None) -> Finished:
    with tempfile.TemporaryFile() as errors:
        begin = time.perf_counter()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=os.environ | (environment or {}),
        )
        timer = threading.Timer(timeout, process.kill)
        timer.start()
        memory = PeakMemory(process.pid)
        memory.start()
        try:
            first = process.stdout.read(1)
            first_byte_s = time.perf_counter() - begin
            output = (first + process.stdout.read()).decode(errors="replace")
        finally:
            process.stdout.close()
            process.wait()
            timer.cancel()
            memory.join()
        errors.seek(0)
        error = errors.read().decode(errors="replace")
    if process.returncode != 0:
        last = error.strip().splitlines()[-1:] or ["no message"]
        raise EngineError(f"{Path(command[0]).name} ended with {process.returncode}: {last[0]}")
    return Finished(output, error, first_byte_s, memory.megabytes)


class Engine:
    """One engine with one model."""

    def __init__(self, label: str, model: str, settings: Settings) -> None:
        self.label, self.model, self.settings = label, Path(model), settings

    def run(self, command: list[str], environment: dict | None = None) -> Finished:
        return run_process(command, self.settings.timeout, environment)

    def rates(self, points: list[Point]) -> list[float]:
        """Tokens per second of each point. All points are of one kind and output length."""
        raise NotImplementedError

    def start(self, prompt_tokens: int, output_tokens: int) -> Start:
        """A whole run, from launch to end."""
        raise NotImplementedError

    def weights_and_cache_mb(self, num_tokens: int) -> float:
        """Size of the weights, and of the cache of so many tokens where the engine says it."""
        raise NotImplementedError


class Pinfer(Engine):
    def __init__(self, label: str, model: str, settings: Settings, binary: str) -> None:
        super().__init__(label, model, settings)
        self.binary = binary

    def rates(self, points: list[Point]) -> list[float]:
        kind, output_tokens = points[0].kind, points[0].output_tokens
        lengths = [point.prompt_tokens for point in points]
        command = [self.binary, "bench", str(self.model), "--json", "--repetitions", "1",
                   "--prompt-tokens", ",".join(map(str, lengths)), "--output-tokens",
                   str(output_tokens), "--threads", str(self.settings.threads)]  # fmt: skip
        results = [r for r in json.loads(self.run(command).stdout) if r["test"] == kind]
        found = [(r["prompt_tokens"], r["output_tokens"], r["batch"]) for r in results]
        check(found, [(length, output_tokens, 1) for length in lengths], f"{self.label}: tokens")
        return [result["tokens_per_s"] for result in results]

    def start(self, prompt_tokens: int, output_tokens: int) -> Start:
        command = [self.binary, "run", str(self.model), "-p", " ".join(WORDS[:prompt_tokens]),
                   "-n", str(output_tokens), "--temperature", "0", "--ignore-eos", "--ids",
                   "--stats", "--threads", str(self.settings.threads)]  # fmt: skip
        run = self.run(command)
        stats = json.loads(run.stderr.strip().splitlines()[-1])
        found = (stats["prompt_tokens"], stats["output_tokens"])
        check(found, (prompt_tokens, output_tokens), f"{self.label}: prompt and output tokens")
        return Start(run.first_byte_s, run.peak_mb)

    def weights_and_cache_mb(self, num_tokens: int) -> float:
        manifest = json.loads((self.model / "manifest.json").read_text())
        model, cache = manifest["model"], manifest["kv_cache"]
        tokens = -(-num_tokens // cache["block_size"]) * cache["block_size"]
        row = model["num_kv_heads"] * model["head_dim"] * KV_BYTES[cache["dtype"]]
        cache_bytes = tokens * model["num_layers"] * 2 * row
        weights = (self.model / "weights.safetensors").stat().st_size
        return (weights + cache_bytes) / 1e6


class LlamaCpp(Engine):
    """llama-bench for rates, llama-completion for whole runs (without its warm-up run)."""

    def __init__(
        self, label: str, model: str, settings: Settings, bench: str, completion: str
    ) -> None:
        super().__init__(label, model, settings)
        self.bench, self.completion = bench, completion

    def rates(self, points: list[Point]) -> list[float]:
        output_tokens = points[0].output_tokens
        lengths = [point.prompt_tokens for point in points]
        listed = ",".join(map(str, lengths))
        command = [self.bench, "-m", str(self.model), "-t", str(self.settings.threads), "-r", "1",
                   "-o", "json"]  # fmt: skip
        if points[0].kind == "decode":
            command += ["-p", "0", "-n", str(output_tokens), "-d", listed]
            expected = [(0, output_tokens, length) for length in lengths]
        else:
            command += ["-p", listed, "-n", "0"]
            expected = [(length, 0, 0) for length in lengths]
        results = json.loads(self.run(command).stdout)
        found = [(r["n_prompt"], r["n_gen"], r["n_depth"]) for r in results]
        check(found, expected, f"{self.label}: prompt, output and context tokens")
        return [result["avg_ts"] for result in results]

    def start(self, prompt_tokens: int, output_tokens: int) -> Start:
        command = [self.completion, "-m", str(self.model), "-p", " ".join(WORDS[:prompt_tokens]),
                   "-n", str(output_tokens), "--temp", "0", "--ignore-eos", "-no-cnv",
                   "--no-display-prompt", "--no-warmup", "-t", str(self.settings.threads), "-c",
                   str(self.context(prompt_tokens + output_tokens))]  # fmt: skip
        run = self.run(command)
        prompt = re.search(r"prompt eval time =.*?/ +(\d+) tokens", run.stderr)
        output = re.search(r"  eval time =.*?/ +(\d+) runs", run.stderr)
        if prompt is None or output is None:
            raise EngineError(f"{self.label}: llama-completion printed no times")
        found = (int(prompt[1]), int(output[1]) + 1)  # the first comes of the prompt
        check(found, (prompt_tokens, output_tokens), f"{self.label}: prompt and output tokens")
        return Start(run.first_byte_s, run.peak_mb)

    @staticmethod
    def context(num_tokens: int) -> int:
        return -(-num_tokens // 256) * 256

    def weights_and_cache_mb(self, num_tokens: int) -> float:
        """The cache in float16, of the whole context."""
        from gguf import GGUFReader

        reader = GGUFReader(self.model)
        architecture = reader.fields["general.architecture"].contents()
        layers, heads, kv_heads, hidden = (
            int(reader.fields[f"{architecture}.{name}"].contents())
            for name in ("block_count", "attention.head_count", "attention.head_count_kv",
                         "embedding_length")
        )  # fmt: skip
        cache = self.context(num_tokens) * layers * 2 * kv_heads * (hidden // heads) * 2
        return (self.model.stat().st_size + cache) / 1e6


class Worker(Engine):
    """An engine that is a Python package: a script of this folder, run by that package's Python."""

    script = ""

    def __init__(
        self, label: str, model: str, settings: Settings, python: str, options: str = ""
    ) -> None:
        super().__init__(label, model, settings)
        self.environment: dict[str, str] = {}
        self.command = [python, str(FOLDER / self.script), model, "--threads",
                        str(settings.threads), *options.split()]  # fmt: skip

    def measure(self, points: list[Point], whole: bool) -> tuple[list[dict], Finished]:
        words = [f"{point.prompt_tokens}:{point.output_tokens}" for point in points]
        run = self.run([*self.command, *(["--whole"] if whole else []), *words], self.environment)
        results = json.loads(run.stdout.strip().splitlines()[-1])
        found = [(r["prompt_tokens"], r["output_tokens"]) for r in results]
        expected = [(point.prompt_tokens, point.output_tokens) for point in points]
        check(found, expected, f"{self.label}: prompt and output tokens")
        return results, run

    def rates(self, points: list[Point]) -> list[float]:
        results, _ = self.measure(points, whole=False)
        if points[0].kind == "decode":
            return [(r["output_tokens"] - 1) / r["decode_s"] for r in results]
        return [r["prompt_tokens"] / r["first_token_s"] for r in results]

    def start(self, prompt_tokens: int, output_tokens: int) -> Start:
        _, run = self.measure([Point("decode", prompt_tokens, output_tokens)], whole=True)
        return Start(run.first_byte_s, run.peak_mb)

    def weights_and_cache_mb(self, num_tokens: int) -> float:
        """Of the weights alone."""
        files = [f for f in self.model.iterdir() if f.suffix in (".safetensors", ".bin", ".gguf")]
        return sum(file.stat().st_size for file in files) / 1e6


class Vllm(Worker):
    """It has several processes: the peak memory is that of the largest."""

    script = "vllm_worker.py"

    def __init__(
        self, label: str, model: str, settings: Settings, python: str, options: str, preload: str
    ) -> None:
        super().__init__(label, model, settings, python, options)
        self.environment = {
            "VLLM_USE_AOT_COMPILE": "0",  # else it compiles again at every start
            "HF_HUB_OFFLINE": "1",
            "LD_PRELOAD": preload,
        }


class OpenVino(Worker):
    script = "openvino_worker.py"
