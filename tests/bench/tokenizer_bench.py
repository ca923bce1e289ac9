"""Compares the engine's tokenizer with the `tokenizers` package on the same text, one thread each.

    python tests/bench/tokenizer_bench.py [--bench PATH] [--rounds 5] [--csv FILE] [NAME...]

NAME is smollm2 or one of tests/registry_models.NPM_TOKENIZERS. All ids, and the text of all ids,
are compared first.
"""

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "export"))

from gguf import GGUFReader
from registry_models import NPM_TOKENIZERS, npm_tokenizer, smollm2_gguf
from tokenizer_engine import EngineTokenizer
from tokenizers import Tokenizer

from pinfer.export.tokenizer_gguf import tokenizer_from_gguf
from pinfer.export.tokenizer_tables import compile_tokenizer

REPOSITORY = Path(__file__).parents[2]
PROSE = (
    "It was the best of times, it was the worst of times; the people's voices rose and fell.\n"
    "Les élèves français étudient l'histoire à l'école, où ils apprennent 1789 et 1848.\n"
    "Die Größe der Straßen überraschte sie: 12.345,67 Meter, und alles war schön.\n"
    "Привет, как дела? Сегодня хорошая погода, и мы пойдём гулять в парк.\n"
    "今天天气很好，我们一起去公园散步吧。日本語の文章もここにあります。\n"
    "안녕하세요, 오늘은 날씨가 정말 좋네요. 👩🏽‍🚀🦙 नमस्ते दुनिया, مرحبا بالعالم.\n"
)


def sample_text(size: int) -> str:
    """Source code of the standard library and prose in several languages, half each."""
    code = []
    left = size // 2
    for path in sorted(Path(os.__file__).parent.glob("*.py")):
        if left <= 0:
            break
        code.append(path.read_text(encoding="utf-8", errors="replace")[:left])
        left -= len(code[-1])
    return "".join(code) + "\n" + PROSE * (size // 2 // len(PROSE.encode()))


def texts_of(text: str) -> list[str]:
    """32 lines at a time, as the C++ side cuts them."""
    lines = text.removesuffix("\n").split("\n")
    return ["".join(f"{line}\n" for line in lines[i : i + 32]) for i in range(0, len(lines), 32)]


def find_bench() -> Path:
    pattern = "build/*/tests/engine_cpp/tokenizer/tokenizer_bench"
    found = sorted(REPOSITORY.glob(pattern), key=lambda path: path.stat().st_mtime)
    assert found, f"tokenizer_bench is missing: none at {pattern}; run `make build-tests`"
    return found[-1]


def tokenizer_text(name: str) -> str:
    """tokenizer.json of a tokenizer."""
    if name != "smollm2":
        return (npm_tokenizer(name) / "tokenizer.json").read_text(encoding="utf-8")
    fields = {key: field.contents() for key, field in GGUFReader(smollm2_gguf()).fields.items()}
    return json.dumps(tokenizer_from_gguf(fields), ensure_ascii=False)


def measure_engine(bench: Path, tables: Path, texts: list[str], rounds: int) -> dict:
    text_file = tables.with_suffix(".text")
    text_file.write_bytes("".join(texts).encode())
    command = [str(bench), str(tables), str(text_file), str(rounds)]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def check_equal(name: str, path: Path, tables: bytes, texts: list[str]) -> int:
    """The number of tokens. Ends the program where ids or decoded texts differ."""
    reference = Tokenizer.from_file(str(path))
    reference.no_truncation()
    engine = EngineTokenizer(tables, path.parent)
    expected = [reference.encode(text, add_special_tokens=False).ids for text in texts]
    found = engine.encode(texts, add_special_tokens=False)
    differing = sum(ours != theirs for ours, theirs in zip(found, expected, strict=True))
    texts_back = [reference.decode(ids, skip_special_tokens=False) for ids in expected]
    found_back = engine.decode(expected, skip_special_tokens=False)
    differing += sum(ours != theirs for ours, theirs in zip(found_back, texts_back, strict=True))
    if differing:
        sys.exit(f"tokenizer_bench: {name}: {differing} of {2 * len(texts)} results differ")
    return sum(len(ids) for ids in expected)


def measure_reference(path: Path, texts: list[str], rounds: int) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {"open_s": [], "encode_s": [], "decode_s": []}

    def timed(name, action):
        start = time.perf_counter()
        result = action()
        seconds[name].append(time.perf_counter() - start)
        return result

    def one_round() -> None:
        tokenizer = timed("open_s", lambda: Tokenizer.from_file(str(path)))
        encoded = timed(
            "encode_s", lambda: [tokenizer.encode(t, add_special_tokens=False) for t in texts]
        )
        ids = [encoding.ids for encoding in encoded]
        timed("decode_s", lambda: [tokenizer.decode(i, skip_special_tokens=False) for i in ids])

    for _ in range(rounds):
        one_round()
    return seconds


def measure(name: str, bench: Path, texts: list[str], rounds: int) -> list[dict]:
    with tempfile.TemporaryDirectory() as folder:
        path, tables = Path(folder) / "tokenizer.json", Path(folder) / "tokenizer.bin"
        path.write_text(tokenizer_text(name), encoding="utf-8")
        compiled = compile_tokenizer(path.read_text(encoding="utf-8"))
        num_tokens = check_equal(name, path, compiled, texts)
        tables.write_bytes(compiled)
        engine = measure_engine(bench, tables, texts, rounds)
        reference = measure_reference(path, texts, rounds)
    if num_tokens != engine["tokens"]:
        sys.exit(f"tokenizer_bench: {name}: {engine['tokens']} tokens, expected {num_tokens}")
    rows = []
    for what in ("open", "encode", "decode"):
        ours = statistics.median(engine[f"{what}_s"])
        theirs = statistics.median(reference[f"{what}_s"])
        spread = max(engine[f"{what}_s"]) / min(engine[f"{what}_s"])
        row = {
            "tokenizer": name,
            "what": what,
            "engine_ms": ours * 1e3,
            "reference_ms": theirs * 1e3,
        }
        row |= {"engine_tokens_per_s": 0 if what == "open" else num_tokens / ours}
        row |= {"times_faster": theirs / ours, "max_over_min": spread}
        rows.append({k: v if isinstance(v, str) else round(v, 3) for k, v in row.items()})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=["smollm2", *sorted(NPM_TOKENIZERS)])
    parser.add_argument("--bench", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", type=int, default=2_000_000, help="bytes of text")
    parser.add_argument("--csv", type=Path)
    options = parser.parse_args()
    texts = texts_of(sample_text(options.size))
    bench = options.bench or find_bench()
    rows = [row for name in options.names for row in measure(name, bench, texts, options.rounds)]
    for row in rows:
        print("  ".join(f"{key} {value}" for key, value in row.items()))
    if options.csv:
        with options.csv.open("w", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
