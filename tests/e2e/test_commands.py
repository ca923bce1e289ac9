"""The commands as a user meets them, over a tiny bundle."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from json_lines import json_lines


def run(pinfer, *arguments, stdin="", timeout=60):
    return subprocess.run(
        [pinfer, *map(str, arguments)], input=stdin, capture_output=True, text=True, timeout=timeout
    )


def last_line(text):
    return text.strip().splitlines()[-1]


def test_version_and_help(pinfer):
    assert run(pinfer, "--version").stdout.startswith("pinfer 0.")
    assert "batch" in run(pinfer, "--help").stdout
    assert "--max-num-seqs" in run(pinfer, "run", "--help").stdout


CPU = str(max(os.sched_getaffinity(0)))


def test_usage_errors_exit_with_2(pinfer, tied_bundle):
    for arguments in (
        [],
        ["frobnicate"],
        ["run"],
        ["run", tied_bundle, "--no-such-flag"],
        ["run", tied_bundle, "-p", "x", "--threads", "two"],
        ["run", tied_bundle, "-p", "x", "--scheduling-policy", "lifo"],
        ["run", tied_bundle, "-p", "x", "-n", "010"],
        ["run", tied_bundle, "-p", "x", "--seed", str(2**64)],
        ["run", tied_bundle, "-p", "x", "--system", "y"],
    ):
        result = run(pinfer, *arguments)
        assert result.returncode == 2, arguments
        assert last_line(result.stderr).startswith("pinfer: error: "), result.stderr
    unknown = last_line(run(pinfer, "frobnicate", tied_bundle).stderr)
    assert unknown == "pinfer: error: frobnicate: no such command"


def test_output_that_cannot_be_written_is_an_error(pinfer, tied_bundle):
    commands = (
        ["run", tied_bundle, "-p", "x", "-n", "2"], ["run", tied_bundle, "-p", "x", "--ids"],
        ["tokenize", tied_bundle], ["batch", tied_bundle], ["inspect", tied_bundle],
        ["verify", tied_bundle], ["completion", "bash"], ["--version"], ["run", "--help"],
    )  # fmt: skip
    for arguments in commands:
        with open("/dev/full", "w") as full:
            result = subprocess.run(
                [pinfer, *map(str, arguments)], stdout=full, stderr=subprocess.PIPE, text=True,
                input='{"prompt": "x", "text": "x", "max_tokens": 1}\n', timeout=60,
            )  # fmt: skip
        assert result.returncode == 1, arguments
        expected = "pinfer: error: standard output: No space left on device"
        assert last_line(result.stderr) == expected, arguments


def test_a_text_flag_takes_one_text(pinfer, tied_bundle):
    assert run(pinfer, "run", "--stop", "x", tied_bundle, "-p", "x", "-n", "1").returncode == 0


def test_refusals_exit_with_1(pinfer, tied_bundle, tied_checkpoint, tmp_path):
    cases = (
        (["run", tmp_path / "nothing", "-p", "x"], "no such bundle"),
        (["run", tied_checkpoint, "-p", "x"], "tied: not a bundle: a model, which pinfer-export"),
        (["run", tied_bundle, "-p", "x", "--num-blocks", "3"], "--num-blocks 3"),
        (["run", tied_bundle, "-p", "x", "--cpus", "0-"], "cpus: expected CPUs as 0-3,8"),
        (["run", tied_bundle, "-p", "x", "--cpus", "4095"], "cpus: expected CPUs that this"),
        (["run", tied_bundle, "-p", "x", "--cpus", "node:99"], "cpus: expected a node of "),
        (["run", tied_bundle, "-p", "x", "--cpus", CPU, "--threads", "2"], "at most 1, one for"),
        (["run", tied_bundle, "-p", "x", "--max-model-len", "999"], "256"),
        (["run", tied_bundle, "-p", "x" * 300], "context_length_exceeded"),
        (["run", tied_bundle, "-p", "x", "--temperature", "-1"], "temperature"),
        (["run", tied_bundle, "-p", "x", "--chat"], "no chat template"),
        (["run", tied_bundle, "-p", ""], "no tokens"),
        (["run", tied_bundle, "-f", tmp_path / "none"], "cannot read"),
    )
    for arguments, part in cases:
        result = run(pinfer, *arguments)
        assert result.returncode == 1, (arguments, result.stderr)
        line = last_line(result.stderr)
        assert line.startswith("pinfer: error: ") and part in line, line


def test_run_streams_ids_and_stats(pinfer, tied_bundle):
    arguments = [tied_bundle, "-n", "12", "--temperature", "0", "--ignore-eos"]
    result = run(pinfer, "run", *arguments, "-p", "hello", "--ids", "--stats")
    assert result.returncode == 0, result.stderr
    ids = [int(word) for word in result.stdout.split()]
    assert len(ids) == 12
    stats = json.loads(last_line(result.stderr))
    assert list(stats) == [
        "load_ms", "prompt_tokens", "prefill_ms", "first_token_ms", "output_tokens",
        "decode_tokens_per_s", "peak_rss_mb", "threads", "provider", "load_stages_ms",
    ]  # fmt: skip
    assert list(stats["load_stages_ms"]) == ["manifest", "text", "code", "ready"]
    assert sum(stats["load_stages_ms"].values()) == pytest.approx(stats["load_ms"], abs=1)
    assert stats["prompt_tokens"] == 5 and stats["output_tokens"] == 12
    assert stats["provider"] == "native" and stats["threads"] >= 1
    # The prompt may come from stdin too, and the batch gives the same ids.
    assert run(pinfer, "run", *arguments, "--ids", stdin="hello").stdout == result.stdout
    line = {"prompt": "hello", "max_tokens": 12, "temperature": 0, "ignore_eos": True}
    batch = run(pinfer, "batch", tied_bundle, stdin=json.dumps(line))
    assert json.loads(batch.stdout)["ids"] == ids


def test_seed_repeats_and_differs(pinfer, tied_bundle):
    lines = [
        {"prompt": "abc", "max_tokens": 16, "temperature": 1, "seed": seed, "ignore_eos": True}
        for seed in (7, 7, 8)
    ]
    result = run(pinfer, "batch", tied_bundle, stdin="\n".join(map(json.dumps, lines)))
    first, again, other = (answer["ids"] for answer in json_lines(result.stdout))
    assert first == again != other
    alone = run(pinfer, "batch", tied_bundle, stdin=json.dumps(lines[0]))
    assert json.loads(alone.stdout)["ids"] == first


def test_batch_answers_every_line_in_order(pinfer, tied_bundle):
    lines = [
        json.dumps({"prompt": "a", "max_tokens": 3, "ignore_eos": True}),
        "not json",
        json.dumps({"prompt": "a", "max_tokens": 2, "frobnicate": 1}),
        json.dumps({"prompt": "a", "prompt_ids": [3]}),
        json.dumps({"prompt_ids": [3, 999]}),
        json.dumps({"prompt": "a", "max_tokens": "ten"}),
        json.dumps({"prompt": "a", "top_p": 1.5}),
        json.dumps({"messages": [{"role": "user", "content": "x"}]}),
        json.dumps({"prompt_ids": [], "max_tokens": 1}),
        json.dumps({"prompt_ids": [5] * 256}),
        "[" * 300,
        json.dumps({"prompt": "b", "max_tokens": 4, "ignore_eos": True}),
    ]
    parts = [
        None, "not valid JSON", "frobnicate", "one of", "999", "max_tokens", "top_p",
        "no chat template", "no tokens", "context_length_exceeded", "", None,
    ]  # fmt: skip
    result = run(pinfer, "batch", tied_bundle, stdin="\n".join(lines) + "\n")
    assert result.returncode == 0, result.stderr
    answers = json_lines(result.stdout)
    assert len(answers) == len(lines)
    for answer, part in zip(answers, parts, strict=True):
        if part is None:
            assert set(answer) == {"text", "ids", "finish_reason", "num_prompt_tokens"}
        else:
            assert part in answer["error"]
    assert len(answers[0]["ids"]) == 3 and len(answers[-1]["ids"]) == 4


def test_batch_answers_before_the_next_line(pinfer, tied_bundle):
    """A program that waits for each answer before it asks again is served."""
    process = subprocess.Popen(
        [pinfer, "batch", tied_bundle], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    for _ in range(3):
        process.stdin.write(json.dumps({"prompt": "a", "max_tokens": 2}) + "\n")
        process.stdin.flush()
        assert "ids" in json.loads(process.stdout.readline())
    process.stdin.close()
    assert process.wait(timeout=10) == 0


def test_more_requests_than_blocks_all_finish(pinfer, tied_bundle):
    """Preemption under a small cache changes no id."""
    lines = [
        json.dumps({
            "prompt": "x" * (5 * i + 1), "max_tokens": 40, "temperature": 0, "ignore_eos": True,
        })
        for i in range(20)
    ]  # fmt: skip
    roomy = run(pinfer, "batch", tied_bundle, stdin="\n".join(lines))
    small = run(
        pinfer, "batch", tied_bundle, "--num-blocks", "17", "--max-num-seqs", "8",
        "--max-num-batched-tokens", "48", stdin="\n".join(lines),
    )  # fmt: skip
    assert roomy.returncode == small.returncode == 0, small.stderr
    found, expected = (
        [answer["ids"] for answer in json_lines(result.stdout)] for result in (small, roomy)
    )
    assert found == expected


def test_text_commands(pinfer, tied_bundle):
    result = run(pinfer, "tokenize", tied_bundle, stdin='"hi"\n{"text": "é</s>"}\n7\n')
    answers = json_lines(result.stdout)
    assert result.returncode == 0 and len(answers) == 3
    assert len(answers[0]["ids"]) == 2 and answers[1]["ids"][-1] == 2 and "error" in answers[2]
    lines = [
        json.dumps({"ids": answers[1]["ids"]}),
        json.dumps({"ids": answers[1]["ids"], "skip_special_tokens": False}),
        json.dumps({"ids": [12345]}),
    ]
    result = run(pinfer, "detokenize", tied_bundle, stdin="\n".join(lines))
    answers = json_lines(result.stdout)
    assert answers[0] == {"text": "é"} and answers[1] == {"text": "é</s>"}
    assert "12345" in answers[2]["error"]


def test_inspect_and_verify(pinfer, tied_bundle):
    assert "LlamaForCausalLM" in run(pinfer, "inspect", tied_bundle).stdout
    manifest = json.loads(run(pinfer, "inspect", tied_bundle, "--json").stdout)
    assert manifest["format_version"] == 1
    assert run(pinfer, "verify", tied_bundle).returncode == 0
    assert "EngineConfig" in json.loads(run(pinfer, "describe").stdout)


def test_interrupt_keeps_what_was_said(pinfer, tied_bundle):
    process = subprocess.Popen(
        [pinfer, "run", tied_bundle, "-p", "hello", "--ids", "--ignore-eos", "--threads", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    time.sleep(0.02)
    os.kill(process.pid, signal.SIGINT)
    out, error = process.communicate(timeout=20)
    # Before the handler stands the default action ends the process; afterwards it ends cleanly.
    assert process.returncode in (0, -signal.SIGINT), error
    if process.returncode == 0:
        assert out.split()


def test_environment_and_flags(pinfer, tied_bundle):
    command = [pinfer, "run", tied_bundle, "-p", "hello", "-n", "2", "--stats"]
    environment = {**os.environ, "PINFER_THREADS": "1"}
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert json.loads(last_line(result.stderr))["threads"] == 1
    result = subprocess.run(
        [*command, "--threads", "2"], capture_output=True, text=True, env=environment
    )
    assert json.loads(last_line(result.stderr))["threads"] == 2
    environment = {**os.environ, "OMP_NUM_THREADS": "3"}
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert json.loads(last_line(result.stderr))["threads"] == 3


def test_compute_threads_are_bound_to_cpus(pinfer, tied_bundle):
    def status_of(task):
        return dict(line.split(":\t", 1) for line in (task / "status").read_text().splitlines())

    arguments = ["--cpus", CPU, "--log-level", "info"]
    with subprocess.Popen(
        [pinfer, "batch", tied_bundle, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        process.stdin.write(json.dumps({"prompt": "hello", "max_tokens": 2}) + "\n")
        process.stdin.flush()
        deadline = time.monotonic() + 30
        bound = []
        while not bound and time.monotonic() < deadline:
            tasks = list(Path(f"/proc/{process.pid}/task").iterdir())
            bound = [t for t in tasks if status_of(t)["Cpus_allowed_list"].strip() == CPU]
            time.sleep(0.01)
        _, error = process.communicate(timeout=30)
    assert process.returncode == 0, error
    if os.cpu_count() > 1:
        assert len(bound) == 1  # the engine thread; those that read and write are not bound
    assert "threads: 1" in error


def test_the_c_example_gives_the_same_answer(pinfer, build_dir, tied_bundle):
    example = build_dir / "tests" / "engine_cpp" / "engine" / "generate_example"
    found = run(example, tied_bundle, "hello")
    expected = run(pinfer, "run", tied_bundle, "-p", "hello", "-n", "32", "--temperature", "0")
    assert found.returncode == 0, found.stderr
    assert found.stdout == expected.stdout
    assert run(example, tied_bundle / "none", "hello").stderr.startswith("error: ")


def test_completion_scripts(pinfer):
    script = run(pinfer, "completion", "bash").stdout
    ask = f"{script}\nCOMP_WORDS=(pinfer %s); COMP_CWORD=%d; _pinfer; echo ${{COMPREPLY[*]}}"

    def complete(words, position):
        command = ["bash", "-c", ask % (words, position)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()

    assert complete("sc", 1) == ["score"]
    assert "--max-num-seqs" in complete("run --max", 2)
    assert complete("bench --rep", 2) == ["--repetitions"]
    assert "__fish_use_subcommand" in run(pinfer, "completion", "fish").stdout
    assert run(pinfer, "completion", "zsh").stdout.startswith("#compdef pinfer")
    assert run(pinfer, "completion", "tcsh").returncode == 2
