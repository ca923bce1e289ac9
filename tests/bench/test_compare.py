"""The comparing benchmarks with stand-ins for all engines: what they count and refuse."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import compare
import growth
import regression

# A program whose rates (decode, prefill) lie in a file beside it.
PINFER = """
import json, os, sys
flags = dict(zip(sys.argv[1:], sys.argv[2:]))
decode, prefill = json.loads(open(sys.argv[0] + ".rates").read())
if sys.argv[1] == "bench":
    results = []
    for depth in map(int, flags.get("--depth", "0").split(",")):
        for batch in map(int, flags.get("--batch", "1").split(",")):
            for prompt in map(int, flags["--prompt-tokens"].split(",")):
                for test, output, rate in (("prefill", 1, prefill),
                                           ("decode", int(flags["--output-tokens"]), decode)):
                    results.append({"test": test, "prompt_tokens": prompt, "output_tokens": output,
                                    "batch": batch, "depth": depth, "threads": 2,
                                    "tokens_per_s": rate / (1 + (prompt + depth) / 4096) * batch,
                                    "stddev": 1.0})
    print(json.dumps(results))
else:
    print("text")
    stats = {"prompt_tokens": len(flags["-p"].split()), "output_tokens": int(flags["-n"])}
    print(json.dumps(stats), file=sys.stderr)
"""
LLAMA_BENCH = """
import json, sys
flags = dict(zip(sys.argv[1::2], sys.argv[2::2]))
results = []
for prompt in map(int, flags["-p"].split(",")):
    for depth in map(int, flags.get("-d", "0").split(",")):
        results.append({"n_prompt": prompt, "n_gen": int(flags["-n"]), "n_depth": depth,
                        "avg_ts": 400.0 if prompt else 50.0})
print(json.dumps(results))
"""
LLAMA_COMPLETION = """
import sys
flags = dict(zip(sys.argv[1:], sys.argv[2:]))
print("text")
prompt = len(flags["-p"].split()) - SHORT
print(f"I perf: prompt eval time =  8.8 ms /  {prompt} tokens ( 5 ms per token)", file=sys.stderr)
print(f"I perf:        eval time = 13.9 ms /  {int(flags['-n']) - 1} runs", file=sys.stderr)
"""
VLLM = """
from types import SimpleNamespace as Object
print("noise on stdout")
EngineArgs = SamplingParams = Object
class LLMEngine:
    @classmethod
    def from_engine_args(cls, options):
        assert options.enable_prefix_caching is False
        return cls()
    def add_request(self, name, prompt, params):
        assert len(set(prompt["prompt_token_ids"])) > 1
        self.left, self.tokens = params.max_tokens, []
    def has_unfinished_requests(self):
        return len(self.tokens) < self.left
    def step(self):
        self.tokens.append(7)
        return [Object(outputs=[Object(token_ids=self.tokens)])]
"""
OPENVINO_GENAI = """
from types import SimpleNamespace as Object
GenerationConfig = Object
class LLMPipeline:
    def __init__(self, model, device, INFERENCE_NUM_THREADS):
        assert device == "CPU" and INFERENCE_NUM_THREADS == 2
    def generate(self, tensor, config):
        assert tensor.shape[0] == 1 and config.ignore_eos and not config.do_sample
        metrics = Object(get_ttft=lambda: Object(mean=100.0), get_tpot=lambda: Object(mean=20.0))
        return Object(tokens=[[7] * config.max_new_tokens], perf_metrics=metrics)
"""
ALL_TESTS = {
    "decode, 32 + 16, tokens/s",
    "prefill, 64, tokens/s",
    "launch to first token, 32, ms",
    "decode behind 256 / 32",
    "prefill of 256 / 64",
    "peak memory, MB",
    "weights + cache, MB",
    "decode, a core stolen / undisturbed",
}
SIZES = ["--output-tokens", "16", "--prefill-tokens", "64", "--context-tokens", "256"]


def program(path, code, rates=None):
    path.write_text(f"#!{sys.executable}\n{code}")
    path.chmod(0o755)
    if rates is not None:
        path.with_name(path.name + ".rates").write_text(json.dumps(rates))
    return str(path)


@pytest.fixture
def bundle(tmp_path):
    folder = tmp_path / "bundle"
    folder.mkdir()
    model = {"num_layers": 10, "num_kv_heads": 2, "head_dim": 50}
    manifest = {"model": model, "kv_cache": {"dtype": "bfloat16", "block_size": 16}}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / "weights.safetensors").write_bytes(bytes(1_000_000))
    return folder


@pytest.fixture
def gguf(tmp_path):
    from gguf import GGUFWriter

    writer = GGUFWriter(tmp_path / "model.gguf", "llama")
    writer.add_block_count(10)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_embedding_length(200)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return tmp_path / "model.gguf"


def run_compare(tmp_path, *arguments):
    file = tmp_path / "results.json"
    words = [*map(str, arguments), *SIZES, "--json", str(file)]
    code = compare.main(words)
    return code, json.loads(file.read_text())


def test_pinfer_beside_llama(tmp_path, bundle, gguf, capsys):
    code, results = run_compare(
        tmp_path,
        *("--pinfer", f"ours={bundle}"),
        *("--pinfer-binary", program(tmp_path / "pinfer", PINFER, (100.0, 1000.0))),
        *("--llama", f"theirs={gguf}"),
        *("--llama-bench", program(tmp_path / "llama-bench", LLAMA_BENCH)),
        *("--llama-completion", program(tmp_path / "c", LLAMA_COMPLETION.replace("SHORT", "0"))),
        *("--rounds", "2", "--ratio", "ours/theirs"),
    )
    assert code == 0 and results["failures"] == [] and set(results["values"]) == ALL_TESTS
    assert results["values"]["decode, 32 + 16, tokens/s"]["theirs"] == [50.0, 50.0]
    ratio = results["ratios"]["decode, 32 + 16, tokens/s"]["ours/theirs"]
    assert ratio == [pytest.approx(100 / (1 + 32 / 4096) / 50)] * 2
    assert results["values"]["decode behind 256 / 32"]["ours"][0] == pytest.approx(4128 / 4352)
    known = results["values"]["weights + cache, MB"]
    assert known["ours"][0] == pytest.approx(1 + 48 * 10 * 2 * 2 * 50 * 2 / 1e6)
    cache = 256 * 10 * 2 * 2 * 50 * 2
    assert known["theirs"][0] == pytest.approx((gguf.stat().st_size + cache) / 1e6)
    assert set(results["machine"]) >= {"load_average", "stolen_percent", "other_processes_percent"}
    table = capsys.readouterr().out
    assert "| decode, 32 + 16, tokens/s | ours/theirs | 1.98 (1.98 to 1.98) |" in table
    assert "stolen" in table and "load average" in table


@pytest.mark.parametrize("flag", ["vllm", "openvino"])
def test_workers(tmp_path, monkeypatch, flag):
    packages = tmp_path / "packages"
    packages.mkdir()
    (packages / "vllm.py").write_text(VLLM)
    (packages / "openvino.py").write_text("Tensor = lambda array: array\n")
    (packages / "openvino_genai.py").write_text(OPENVINO_GENAI)
    monkeypatch.setenv("PYTHONPATH", str(packages))
    (tmp_path / "model.safetensors").write_bytes(bytes(500_000))
    code, results = run_compare(
        tmp_path,
        *(f"--{flag}", f"it={tmp_path}", f"--{flag}-python", sys.executable, "--rounds", "1"),
    )
    assert code == 0, results["failures"]
    values = {metric: row["it"] for metric, row in results["values"].items()}
    assert set(values) == ALL_TESTS and all(value[0] > 0 for value in values.values())
    assert values["weights + cache, MB"] == [0.5]
    if flag == "openvino":
        assert values["decode, 32 + 16, tokens/s"] == [pytest.approx(50)]
        assert values["prefill, 64, tokens/s"] == [pytest.approx(640)]


def test_wrong_numbers_of_tokens_do_not_count(tmp_path, bundle, gguf, capsys):
    code, results = run_compare(
        tmp_path,
        *("--llama", f"theirs={gguf}", "--rounds", "1", "--tests", "first_token"),
        *("--llama-completion", program(tmp_path / "c", LLAMA_COMPLETION.replace("SHORT", "1"))),
    )
    assert code == 1 and results["values"] == {}
    assert (
        "theirs: prompt and output tokens: expected (32, 8), found (31, 8)"
        in (results["failures"][0])
    )
    code, results = run_compare(
        tmp_path,
        *("--pinfer", f"ours={bundle}", "--rounds", "1", "--tests", "decode"),
        *("--pinfer-binary", program(tmp_path / "p", "import sys; sys.exit('pinfer: error: no')")),
    )
    assert code == 1 and "p ended with 1: pinfer: error: no" in results["failures"][0]
    assert "failed: round 1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "expected engines"),
        (["--pinfer", "BUNDLE"], "expected LABEL=PATH"),
        (["--pinfer", "a=BUNDLE", "--llama", "a=BUNDLE"], "labels of their own"),
        (["--pinfer", "a=BUNDLE", "--ratio", "a/b"], "--ratio"),
        (["--pinfer", "a=BUNDLE", "--tests", "decode,decoding"], "decoding"),
    ],
)
def test_wrong_arguments(bundle, capsys, arguments, message):
    with pytest.raises(SystemExit) as ended:
        compare.parse_options([word.replace("BUNDLE", str(bundle)) for word in arguments])
    assert ended.value.code == 2 and message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("head", "failing"),
    [((95.0, 900.0), []), ((60.0, 1000.0), ["decode"]), ((100.0, 600.0), ["prefill"])],
)
def test_regression_passes_and_fails(tmp_path, bundle, capsys, head, failing):
    code = regression.main(
        [
            program(tmp_path / "base", PINFER, (100.0, 1000.0)),
            program(tmp_path / "head", PINFER, head),
            *(str(bundle), "--rounds", "3"),
        ]
    )
    failed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("failed")]
    assert code == bool(failing)
    assert [line.split()[1].rstrip(":") for line in failed] == failing


def test_regression_fails_if_a_program_does(tmp_path, bundle, capsys):
    base = program(tmp_path / "base", PINFER, (100.0, 1000.0))
    head = program(tmp_path / "head", "raise SystemExit(1)")
    assert regression.main([base, head, str(bundle), "--rounds", "1"]) == 1
    assert "head ended with 1" in capsys.readouterr().out


def test_growth(tmp_path, bundle, monkeypatch):
    drawn = []
    monkeypatch.setattr(growth, "draw", lambda rows, path: drawn.append((rows, path)))
    growth.main(
        [
            program(tmp_path / "pinfer", PINFER, (100.0, 1000.0)),
            *(f"model={bundle}", "--batches", "1,4", "--contexts", "32,4096"),
            *("--output", str(tmp_path / "figures" / "growth")),
        ]
    )
    [(rows, path)] = drawn
    assert path == tmp_path / "figures" / "growth.png" and path.with_suffix(".csv").is_file()
    found = [(row["sweep"], int(row["batch"]), int(row["context"])) for row in rows]
    assert found == [
        *(("batch", batch, 32) for batch in (1, 4)),
        *(("context", 1, context) for context in (32, 4096)),
    ]
    assert float(rows[3]["ms_per_token"]) == pytest.approx(20)
    assert float(rows[1]["ms_per_step"]) == pytest.approx(4 * float(rows[1]["ms_per_token"]), 1e-2)


def test_growth_figure(tmp_path):
    pytest.importorskip("matplotlib", reason="only the extra `bench` has matplotlib")
    point = {"model": "m", "batch": "1", "context": "32", "ms_per_step": "2", "ms_per_token": "2"}
    growth.draw([{**point, "sweep": sweep} for sweep in ("batch", "context")], tmp_path / "f.png")
    assert (tmp_path / "f.png").read_bytes().startswith(b"\x89PNG")
