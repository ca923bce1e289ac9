"""One executable file with engine and bundle in it (pinfer-export --standalone)."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
import zipfile

import httpx
import pytest
import successor_model
import tiny_models

import pinfer as binding
from pinfer.export.config import ExportConfig
from pinfer.export.errors import ExportError
from pinfer.export.exporter import export
from pinfer.export.standalone import append_bundle, export_standalone, find_program

MODEL = ["-p", "hello", "-n", "12", "--temperature", "0", "--ignore-eos"]


@pytest.fixture(scope="module")
def program(tied_checkpoint, tiny_folder):
    path = tiny_folder / "tied-program"
    tiny_models.export(tied_checkpoint, path, "--dtype", "float32", "--standalone")
    return path


def run(*command, stdin="", **options):
    return subprocess.run(
        [str(part) for part in command], input=stdin, capture_output=True, text=True, **options
    )


def answer(*command, **options):
    result = run(*command, **options)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_it_answers_as_the_bundle_does(program, pinfer, tied_bundle):
    expected = answer(pinfer, "run", tied_bundle, *MODEL)
    assert answer(program, *MODEL) == expected
    assert answer(program, "run", *MODEL) == expected
    assert answer(program, "--prompt=hello", *MODEL[2:]) == expected
    line = json.dumps({"prompt": "hello", "max_tokens": 12, "temperature": 0, "ignore_eos": True})
    assert json.loads(answer(program, "batch", stdin=line))["text"] + "\n" == expected
    assert json.loads(answer(program, "tokenize", stdin='{"text": "hello"}'))["ids"]


def test_a_bare_system_is_enough(program, tmp_path):
    """No environment, no other file of the project, nothing written: only libc and /proc."""
    alone = tmp_path / "bin" / "p"
    alone.parent.mkdir()
    shutil.copy(program, alone)
    here = tmp_path / "here"
    here.mkdir()
    alone.parent.chmod(0o555)
    here.chmod(0o555)
    try:
        first = answer(alone, *MODEL, env={"HOME": "/nonexistent"}, cwd=here)
        assert first == answer(program, *MODEL)
        assert os.listdir(here) == [] and os.listdir(alone.parent) == ["p"]
    finally:
        alone.parent.chmod(0o755)
        here.chmod(0o755)


def test_help_and_usage(program):
    assert re.match(r"pinfer \d", answer(program, "--version"))
    assert "BUNDLE" not in answer(program, "run", "--help")
    assert "serve" in answer(program, "--help")
    for arguments in (["run", "other", "-p", "x"], ["--no-such-flag"], ["frobnicate"]):
        assert run(program, *arguments).returncode == 2


def test_serve(program):
    process = subprocess.Popen(
        [program, "serve", "--port", "0", "--threads", "1"], stderr=subprocess.PIPE, text=True
    )
    try:
        url = None
        while url is None:
            found = re.search(r"listening on (http://\S+)", process.stderr.readline())
            url = found and found[1]
        body = {"prompt": "hello", "max_tokens": 12, "temperature": 0, "ignore_eos": True}
        found = httpx.post(f"{url}/v1/completions", json=body, timeout=30).json()
        assert found["choices"][0]["text"] + "\n" == answer(program, *MODEL)
        assert found["model"] == "tied"
    finally:
        process.send_signal(signal.SIGTERM)
        process.stderr.read()
        assert process.wait(30) == 0


def test_chat_is_what_it_does_by_itself(bundles, tmp_path):
    """A model that answers one thing, and has a template."""
    tokenizer = successor_model.byte_level()
    checkpoint = successor_model.make_fixed_logits(
        tmp_path / "yes", tokenizer, {ord("y"): 9.0}, chat_template="{{ messages[-1].content }}"
    )
    path = tmp_path / "program"
    config = ExportConfig(model=checkpoint, output=path, standalone=True, verify=False)
    export_standalone(config, lambda inner: export(inner, lambda *_: None))
    result = run(path, stdin="hello\n", env={"PINFER_MAX_TOKENS": "3", "PINFER_TEMPERATURE": "0"})
    assert result.returncode == 0 and len(result.stdout.strip()) == 3, result


# ---- the file ----


def test_its_files_are_those_of_the_bundle(program, tied_bundle, pinfer, tmp_path):
    with zipfile.ZipFile(program) as archive:
        assert archive.testzip() is None
        archive.extractall(tmp_path)
        names = set(archive.namelist())
        offsets = {
            e.filename: e.header_offset + 30 + len(e.filename) + len(e.extra)
            for e in archive.infolist()
        }
    assert all(offset % 4096 == 0 for offset in offsets.values())
    expected = {p.relative_to(tied_bundle).as_posix() for p in tied_bundle.rglob("*")}
    assert names == {name for name in expected if (tied_bundle / name).is_file()}
    assert answer(pinfer, "verify", tmp_path) == f"{tmp_path}: ok\n"
    assert "ok" in answer(program, "verify")
    assert answer(pinfer, "inspect", program) == answer(program, "inspect")


def test_any_engine_opens_it(program, tied_bundle):
    """Several at once, the bundle beside it."""
    options = {"temperature": 0.0, "max_tokens": 8, "ignore_eos": True}
    with (
        binding.Engine(program) as one,
        binding.Engine(program) as other,
        binding.Engine(tied_bundle) as bundle,
    ):
        found = [engine.generate("hello", **options).token_ids for engine in (one, other, bundle)]
    assert found[0] == found[1] == found[2]


def test_the_same_bundle_gives_the_same_bytes(tied_bundle, tmp_path):
    program = find_program()
    for name in ("a", "b"):
        append_bundle(program, tied_bundle, tmp_path / name)
        time.sleep(0.01)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_damaged_files_are_refused(program, pinfer, tmp_path):
    whole = program.read_bytes()
    with zipfile.ZipFile(program) as archive:
        entries = {entry.filename: entry for entry in archive.infolist()}
    weights = entries["weights.safetensors"].header_offset + 5000
    damaged = tmp_path / "damaged"

    def refusal(data, *command):
        damaged.write_bytes(data)
        damaged.chmod(0o755)
        result = run(*command)
        assert result.returncode in (1, 2), result
        return result.stderr.strip().splitlines()[-1]

    for size in (len(whole) - 1, weights, len(whole) - 100):
        line = refusal(whole[:size], pinfer, "run", damaged, *MODEL)
        assert line.startswith("pinfer: error: ") and "not a bundle" in line
        # Without its end it is the program alone, which asks for a bundle.
        assert refusal(whole[:size], damaged, "run", *MODEL).startswith("pinfer: error: ")
    changed = bytearray(whole)
    changed[weights] ^= 1
    line = refusal(bytes(changed), damaged, "verify")
    assert "damaged:weights.safetensors: expected SHA-256" in line
    changed = bytearray(whole)
    changed[entries["manifest.json"].header_offset + 5000] ^= 1
    assert "manifest.json: does not match" in refusal(bytes(changed), damaged, *MODEL)
    changed = bytearray(whole)
    changed[entries["manifest.json"].header_offset] ^= 1
    assert "damaged archive" in refusal(bytes(changed), damaged, *MODEL)


# ---- the export ----


def exported(checkpoint, output, **options):
    config = ExportConfig(
        model=checkpoint, output=output, standalone=True, verify=False, only="text", **options
    )
    export_standalone(config, lambda inner: export(inner, lambda *_: None))


def test_what_stands_in_the_way(tied_checkpoint, tmp_path):
    output = tmp_path / "p"
    output.write_text("mine")
    with pytest.raises(ExportError, match="exists already"):
        exported(tied_checkpoint, output)
    assert output.read_text() == "mine"
    exported(tied_checkpoint, output, force=True)
    assert os.access(output, os.X_OK) and zipfile.is_zipfile(output)
    with pytest.raises(ExportError, match="is a directory"):
        exported(tied_checkpoint, tmp_path, force=True)
    assert os.listdir(tmp_path) == ["p"]


def test_a_failed_export_leaves_nothing(tied_checkpoint, tmp_path):
    broken = shutil.copytree(tied_checkpoint, tmp_path / "broken")
    (broken / "tokenizer.json").write_text("{")
    with pytest.raises(ExportError, match=r"tokenizer\.json"):
        exported(broken, tmp_path / "p")
    assert sorted(os.listdir(tmp_path)) == ["broken"]


def test_a_program_that_carries_a_bundle_is_no_base(program, tied_bundle, tmp_path):
    with pytest.raises(ExportError, match="carries a bundle already"):
        append_bundle(program, tied_bundle, tmp_path / "twice")
