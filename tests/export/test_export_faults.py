"""Exports that are killed, race, or find no room: the output is absent, old, or complete."""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tiny_models

from pinfer.export.artifact_cache import default_cache_folder
from pinfer.export.config import ExportConfig
from pinfer.export.errors import ExportError
from pinfer.export.exporter import export as export_here

EXPORT = Path(sys.executable).parent / "pinfer-export"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting a file system needs root")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return tiny_models.make_checkpoint("tied", tmp_path_factory.mktemp("faults"))


@pytest.fixture(scope="module")
def cache(checkpoint, tmp_path_factory):
    """The user's cache, which knows the model after one export: the others take little time."""
    folder = default_cache_folder(tmp_path_factory.getbasetemp() / "none")
    result = export(checkpoint, tmp_path_factory.mktemp("warm-up") / "bundle", cache=folder)
    assert result.returncode == 0, result.stderr
    return folder


def start(checkpoint, output, *arguments, cache, **options):
    command = [EXPORT, checkpoint, "-o", output, "--dtype", "float32", *arguments]
    environment = {**os.environ, "PINFER_CACHE_DIR": str(cache)}
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment, **options)


def export(checkpoint, output, *arguments, cache):
    process = start(checkpoint, output, *arguments, cache=cache)
    _, stderr = process.communicate(timeout=300)
    return subprocess.CompletedProcess(process.args, process.returncode, "", stderr)


def is_whole(pinfer, bundle):
    result = subprocess.run([pinfer, "verify", bundle], capture_output=True, text=True)
    return result.returncode == 0


def leftovers(folder):
    return [path.name for path in folder.iterdir() if "pinfer-tmp" in path.name]


@pytest.mark.slow
def test_killed_at_random_moments(pinfer, checkpoint, cache, tmp_path):
    """With --force over an old bundle and without one before: never a part of one."""
    generator = random.Random(0)
    begin = time.monotonic()
    assert export(checkpoint, tmp_path / "old", cache=cache).returncode == 0
    whole_time = time.monotonic() - begin
    for i in range(20):
        output = tmp_path / ("old" if i % 2 else f"new-{i}")
        process = start(checkpoint, output, "--force", cache=cache)
        time.sleep(generator.uniform(0.3, 1.05) * whole_time)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        if i % 2 or output.exists():
            assert is_whole(pinfer, output), i
    for name in ("old", "new-0", "new-2"):
        output = tmp_path / name
        assert export(checkpoint, output, "--force", cache=cache).returncode == 0
        assert is_whole(pinfer, output)
        assert not [left for left in leftovers(tmp_path) if left.startswith(f".{name}.")]


@pytest.mark.slow
def test_two_exports_to_one_place(pinfer, checkpoint, cache, tmp_path):
    output = tmp_path / "bundle"
    both = [start(checkpoint, output, cache=cache) for _ in range(2)]
    errors = [process.communicate(timeout=300)[1] for process in both]
    codes = sorted(process.returncode for process in both)
    assert codes in ([0, 0], [0, 1]), errors
    if codes == [0, 1]:
        assert any("exists already" in e or "appeared during the export" in e for e in errors)
    assert is_whole(pinfer, output)
    assert leftovers(tmp_path) == []


@pytest.mark.slow
def test_two_models_fill_one_cache(pinfer, checkpoint, tmp_path):
    other = tiny_models.make_checkpoint("gqa3_untied_head_dim", tmp_path)
    both = [
        start(model, tmp_path / f"{model.name}-bundle", cache=tmp_path / "cache")
        for model in (checkpoint, other)
    ]
    for process in both:
        stderr = process.communicate(timeout=300)[1]
        assert process.returncode == 0, stderr
    for model in (checkpoint, other):
        assert is_whole(pinfer, tmp_path / f"{model.name}-bundle")


@pytest.mark.slow
def test_damaged_cache_entries_are_made_again(pinfer, checkpoint, tmp_path):
    damaged = tmp_path / "cache"
    assert export(checkpoint, tmp_path / "first", cache=damaged).returncode == 0
    for path in damaged.glob("artifacts/*/head.so"):
        path.write_bytes(path.read_bytes()[:-100])
    for path in [*damaged.glob("text-proofs/*"), *damaged.glob("tokenizer-tables/*")]:
        path.write_text("{")
    assert export(checkpoint, tmp_path / "bundle", cache=damaged).returncode == 0
    assert is_whole(pinfer, tmp_path / "bundle")


@contextlib.contextmanager
def small_disk(folder, num_bytes):
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={num_bytes}", "tmpfs", folder]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("a tmpfs cannot be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


@needs_root
def test_a_disk_that_is_too_small_for_the_model(checkpoint, cache, tmp_path):
    """Found out before anything is compiled or written."""
    with small_disk(tmp_path / "small", 700 << 10) as small:
        result = export(checkpoint, small / "bundle", cache=cache)
        assert result.returncode == 1
        last = result.stderr.strip().splitlines()[-1]
        assert last.startswith(f"pinfer-export: error: {small}: the bundle needs"), last
        assert "0 MiB are free" in last and "compile" not in result.stderr
        assert list(small.iterdir()) == []


@needs_root
@pytest.mark.parametrize("full_at", ["tokenizer.bin", "tokenizer.json", "manifest.json"])
def test_a_disk_that_fills_while_files_are_written(checkpoint, cache, tmp_path, full_at):
    """The message names the file that did not fit, at its final place."""

    def export_text(output):
        config = ExportConfig(model=checkpoint, output=output, only="text", cache_dir=cache)
        export_here(config, lambda *_: None)

    export_text(tmp_path / "roomy")
    page = os.sysconf("SC_PAGE_SIZE")
    names = ["tokenizer.bin", "tokenizer.json", "manifest.json"]
    needed = [-(-(tmp_path / "roomy" / name).stat().st_size // page) for name in names]
    pages = sum(needed[: names.index(full_at) + 1]) - 1
    with small_disk(tmp_path / "small", pages * page) as small:
        with pytest.raises(ExportError) as caught:
            export_text(small / "bundle")
        assert str(caught.value) == f"{small / 'bundle' / full_at}: No space left on device"
        assert list(small.iterdir()) == []


@needs_root
def test_read_only_target(checkpoint, cache, tmp_path):
    target = tmp_path / "target"
    target.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", target]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("a tmpfs cannot be mounted here")
    try:
        result = export(checkpoint, target / "bundle", cache=cache)
        assert result.returncode == 1
        last = result.stderr.strip().splitlines()[-1]
        assert "cannot write there" in last and "Read-only" in last, last
    finally:
        subprocess.run(["umount", target], check=True)


def test_force_over_a_bundle_that_an_engine_has_mapped(checkpoint, cache, tmp_path):
    import pinfer as binding

    output = tmp_path / "bundle"
    assert export(checkpoint, output, cache=cache).returncode == 0
    with binding.Engine(output) as engine:
        options = {"temperature": 0.0, "max_tokens": 20, "ignore_eos": True}
        before = engine.generate([5, 6, 7], **options).token_ids
        running = engine.submit([5, 6, 7], **{**options, "max_tokens": 200})
        assert export(checkpoint, output, "--force", cache=cache).returncode == 0
        assert running.wait().token_ids[:20] == before
        assert engine.generate([5, 6, 7], **options).token_ids == before
    with binding.Engine(output) as engine:
        assert engine.generate([5, 6, 7], **options).token_ids == before


def test_exports_of_one_model_are_identical(checkpoint, cache, tmp_path):
    def contents(bundle):
        return {
            str(path.relative_to(bundle)): path.read_bytes()
            for path in sorted(bundle.rglob("*"))
            if path.is_file()
        }

    assert export(checkpoint, tmp_path / "first", cache=cache).returncode == 0
    assert export(checkpoint, tmp_path / "second", cache=cache).returncode == 0
    assert contents(tmp_path / "first") == contents(tmp_path / "second")


def test_a_bundle_has_no_path_of_this_machine(checkpoint, cache, tmp_path):
    assert export(checkpoint, tmp_path / "bundle", cache=cache).returncode == 0
    assert tiny_models.machine_paths_in(tmp_path / "bundle") == []


@pytest.mark.slow
def test_compiling_twice_gives_identical_bundles(checkpoint, tmp_path):
    for name in ("first", "second"):
        result = export(checkpoint, tmp_path / name, "--no-cache", cache=tmp_path / name / "none")
        assert result.returncode == 0, result.stderr
    for path in (tmp_path / "first").rglob("*"):
        if path.is_file():
            other = tmp_path / "second" / path.relative_to(tmp_path / "first")
            assert path.read_bytes() == other.read_bytes(), path.name


HOSTILE = "x'\"; touch {mark}; $(touch {mark}) `touch {mark}` \\ %s {{{{ }}}}\n#"


def test_strings_of_a_model_change_nothing_but_labels(pinfer, checkpoint, cache, tmp_path):
    """Names, paths and strings with quotes, line breaks and $(...): no command is run."""
    mark = tmp_path / "mark"
    text = HOSTILE.format(mark=mark)
    model = shutil.copytree(checkpoint, tmp_path / 'it\'s $(touch mark) `x` "q"\nline;')
    config = json.loads((model / "config.json").read_text())
    config |= {"_name_or_path": text, "name_or_path": text, "transformers_version": text}
    (model / "config.json").write_text(json.dumps(config))
    tokenizer = json.loads((model / "tokenizer.json").read_text())
    tokenizer["added_tokens"].append(
        {"id": 259, "content": text, "special": True, "single_word": False, "lstrip": False,
         "rstrip": False, "normalized": False}
    )  # fmt: skip
    (model / "tokenizer.json").write_text(json.dumps(tokenizer))
    (model / "LICENSE $(touch mark)").write_text(text)
    output = tmp_path / "out $(touch mark) 'q'"
    result = export(model, output, cache=cache)
    assert result.returncode == 0, result.stderr
    assert is_whole(pinfer, output)
    names = [path.name for path in tmp_path.rglob("mark")] + [
        path.name for path in Path.cwd().glob("mark")
    ]
    assert names == []
    manifest = json.loads((output / "manifest.json").read_text())
    assert manifest["model"]["model_name"] == model.name


def test_text_alone(pinfer, checkpoint, cache, tmp_path):
    """--only text needs neither config.json nor weights."""
    model = tmp_path / "text-model"
    model.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(checkpoint / name, model / name)
    (model / "chat_template.jinja").write_text(
        "{% for m in messages %}[{{ m.content }}]{% endfor %}"
    )
    output = tmp_path / "bundle"
    result = export(model, output, "--only", "text", cache=cache)
    assert result.returncode == 0, result.stderr
    assert sorted(path.name for path in output.iterdir()) == [
        "chat_template.json", "manifest.json", "manifest.sha256", "tokenizer.bin", "tokenizer.json",
    ]  # fmt: skip
    manifest = json.loads((output / "manifest.json").read_text())
    assert manifest["parts"] == ["text"]
    assert manifest["text"]["proof"]["tokenizer"]["differences"] == 0
    assert manifest["text"]["proof"]["chat_template"]["differences"] == 0
    assert is_whole(pinfer, output)
    line = json.dumps({"messages": [{"role": "user", "content": "hi"}]})
    rendered = subprocess.run(
        [pinfer, "render", output], input=line, capture_output=True, text=True
    )
    assert json.loads(rendered.stdout)["text"] == "[hi]"
    run = subprocess.run([pinfer, "run", output, "-p", "x"], capture_output=True, text=True)
    assert run.returncode == 1 and "holds no model" in run.stderr
