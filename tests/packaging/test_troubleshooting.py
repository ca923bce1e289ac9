"""docs/troubleshooting.md: the texts it quotes are what is printed."""

import contextlib
import hashlib
import json
import re
import shutil
import signal
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import httpx
import pytest
import tiny_models
from safetensors.torch import load_file, save_file

sys.path.insert(0, str(Path(__file__).parent))
from manual_commands import free_port
from unit_checks import wait_until_healthy

from pinfer.export.config import ExportConfig
from pinfer.export.errors import ExportError
from pinfer.export.exporter import export

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()
TEMPLATE = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}"
    "{% endif %}{% for m in messages %}{{ m.content }}{% endfor %}"
)
UP = "model.layers.1.mlp.up_proj.weight"
# What a test cannot bring about at will, or another one does, is looked for in the sources.
IN_THE_SOURCES = {
    "--cpu-isa native: this machine has less than x86-64-v3",
    "compiled code differs from eager in",
    "the tokenizer's pattern needs Oniguruma (libonig.so.5), which cannot be loaded",
    "the model is loading",
    "the queue is full",
    "the server is shutting down",
    "the engine does not move",
    "what the model computed is not finite",
    "vllm:num_preemptions_total",
    "struct_size: expected 24 or more, found 0; ..._init() sets it",
    "the CUDA driver has found no device",
    "at least 12.0 is needed",
    "; export again with --cuda-arch ",
    "device memory leaves ",
    "out of device memory: ",
    "out of memory",
    "this process has a CUDA device open already: one engine for CUDA at a time",
}
# Words of the protocol, of another program, and flags.
NO_MESSAGES = {"finish_reason", "length", "--quantize", "GLIBC_2.36", "tokenizers"}


def quotes() -> list[str]:
    """Code in the first column of tables (the second where the first is a status), and where items
    begin."""
    found = []
    for line in PAGE.splitlines():
        if line.startswith("| ") and not line.startswith(("| you see", "| status")):
            cells = line.split(" | ")
            found += re.findall(r"`([^`]+)`", cells[1 if re.match(r"\| \d", line) else 0])
        elif line.startswith("- `struct_size"):
            found.append(line.split("`")[1])
    return [quote for quote in found if quote not in NO_MESSAGES and "status=" not in quote]


def plain(text: str) -> str:
    """Without what differs from case to case: numbers, features of a processor, line breaks."""
    text = re.sub(r"lacks [\w, ]+", "lacks X", " ".join(text.split()))
    return re.sub(r"\d+(\.\d+)?", "0", text)


# ---- bringing them about ----


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The reader's folder: a model and its bundles, with a template, without one, to embed."""
    folder = tmp_path_factory.mktemp("trouble")
    model = tiny_models.make_checkpoint("tied", folder).rename(folder / "model")

    def make(name: str, **options) -> None:
        settings = {"model": model, "output": folder / name, "dtype": "float32", **options}
        export(ExportConfig(**settings), lambda *_: None)

    make("bare")
    (folder / "embeds").mkdir()
    make("embeds/bundle", task="embed")
    (model / "chat_template.jinja").write_text(TEMPLATE)
    make("bundle")
    return folder


def export_errors(folder: Path, patch: pytest.MonkeyPatch) -> list[str]:
    """What the exporter says to damaged models, in-process: importing torch takes seconds."""
    said = []

    def attempt(**options) -> None:
        settings = {"model": Path("model"), "output": Path("new"), **options}
        with pytest.raises(ExportError) as caught:
            export(ExportConfig(**settings), lambda *_: None)
        said.append(str(caught.value))

    @contextlib.contextmanager
    def changed(name: str):
        """model/NAME may be changed within."""
        path = folder / "model" / name
        before = path.read_bytes()
        yield path
        path.write_bytes(before)

    patch.chdir(folder)
    attempt(model=Path("nothing"))
    (folder / "other").mkdir()
    (folder / "other" / "file").touch()
    attempt(output=Path("bundle"))
    attempt(output=Path("other"), force=True)
    with changed("tokenizer.json") as path:
        path.unlink()
        attempt()
    with changed("tokenizer.json") as path:
        path.write_text(path.read_text().replace('"BPE"', '"Unknown"'))
        attempt()
    for changes in (
        {"architectures": ["GrokForCausalLM"]},
        {"frobnication_factor": 2},
        {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}},
        {"rope_theta": 5e5, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}},
        {"tie_word_embeddings": False},
    ):
        with changed("config.json") as path:
            path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
            attempt()
    with changed("model.safetensors") as path:
        whole = path.read_bytes()
        for data in (whole[:-4096], b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n"):
            path.write_bytes(data)
            attempt()
        path.write_bytes(whole)
        tensors = load_file(path)
        save_file({name: t for name, t in tensors.items() if name != UP}, path)
        attempt()
        tensors[UP][0, 0] = float("nan")
        save_file(tensors, path)
        attempt()
    with patch.context() as inner:
        inner.setattr(shutil, "disk_usage", lambda _: namedtuple("Usage", "free")(0))
        attempt()
    with patch.context() as inner:
        inner.setenv("PATH", "")
        inner.delenv("CXX", raising=False)
        attempt()
    code = "import sys; sys.modules['click'] = None; from pinfer.export.entry import main; main()"
    said.append(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stderr)
    return said


def damaged_bundles(folder: Path) -> list[str]:
    """Makes bundles that are refused; their names."""

    def copy(name: str) -> Path:
        return shutil.copytree(folder / "bundle", folder / name / "bundle")

    def edit_manifest(bundle: Path, change) -> None:
        manifest = json.loads((bundle / "manifest.json").read_text())
        change(manifest)
        data = json.dumps(manifest).encode()
        (bundle / "manifest.json").write_bytes(data)
        (bundle / "manifest.sha256").write_text(hashlib.sha256(data).hexdigest())

    edit_manifest(copy("version"), lambda m: m.update(format_version=2))
    edit_manifest(copy("feature"), lambda m: m["target"].update(cpu_features=["avx9"]))
    edit_manifest(copy("text"), lambda m: m.update(parts=["text"]))
    with (copy("edited") / "manifest.json").open("a") as file:
        file.write(" ")
    with (copy("cut") / "weights.safetensors").open("r+b") as file:
        file.truncate(1000)
    (copy("missing") / "artifacts/head.so").unlink()
    head = copy("foreign") / "artifacts/head.so"
    head.write_bytes(b"no library")
    entry = {"size": 10, "sha256": hashlib.sha256(b"no library").hexdigest()}
    edit_manifest(head.parents[1], lambda m: m["files"].update({"artifacts/head.so": entry}))
    return ["version", "feature", "text", "edited", "cut", "missing", "foreign"]


def command_errors(folder: Path, pinfer: Path, patch: pytest.MonkeyPatch) -> list[str]:
    """The last lines of commands that are refused."""
    said = []

    def attempt(*arguments: str, place: str = "") -> None:
        command = [pinfer, *arguments]
        result = subprocess.run(command, cwd=folder / place, capture_output=True, text=True,
                                timeout=60, stdin=subprocess.DEVNULL)  # fmt: skip
        assert result.returncode in (1, 2), (arguments, result)
        said.append(result.stderr)

    for name in [*damaged_bundles(folder), "embeds"]:
        attempt("run", "bundle", "-p", "x", place=name)
    with (folder / "cut/bundle/weights.safetensors").open("wb") as file:
        file.write((folder / "bundle/weights.safetensors").read_bytes()[:-1] + b"x")
    attempt("verify", "bundle", place="cut")
    (folder / "file").write_text("no bundle")
    for bundle in ("nothing", "model", "file"):
        attempt("run", bundle, "-p", "x")
    attempt("embed", "bundle", "-p", "x")
    for flags in (["--max-model-len", "512"], ["--num-blocks", "5"]):
        attempt("run", "bundle", "-p", "x", *flags)
    with patch.context() as inner:
        inner.setenv("PINFER_TORCH_LIB", str(folder))
        attempt("run", "bundle", "-p", "x", "--provider", "torch")
    for flags in (["--api-key", ""], ["--api-key-file", "keys"], ["--tls-cert", "x"]):
        attempt("serve", "bundle", *flags)
    (folder / "keys").touch()
    attempt("serve", "bundle", "--api-key-file", "keys")
    with patch.context() as inner:
        inner.setenv("PINFER_API_KEY", "")
        attempt("serve", "bundle")
    attempt("frobnicate")
    return said


@contextlib.contextmanager
def serving(folder: Path, pinfer: Path, bundle: str, port: int, *flags: str):
    """A server, its process and log; stopped at the end."""
    command = [pinfer, "serve", bundle, "--port", str(port), *flags]
    with (folder / f"{port}.log").open("w+") as log:
        server = subprocess.Popen(list(map(str, command)), cwd=folder, stderr=log)
        try:
            wait_until_healthy(server, f"http://127.0.0.1:{port}")
            yield folder / f"{port}.log"
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(30)


def server_errors(folder: Path, pinfer: Path, port: int) -> list[str]:
    """Answers that are refusals, and the log."""
    said = []
    hello = {"messages": [{"role": "user", "content": "hi"}]}
    flags = ["--max-queue", "2", "--max-body", "1", "--served-model-name", "model"]
    open_to_all = ["--host", "0.0.0.0"]
    with serving(folder, pinfer, "bundle", port, *flags, *open_to_all) as log:
        client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60)

        def attempt(path: str, body: dict | str, **options) -> None:
            content = body if isinstance(body, str) else json.dumps(body)
            answer = client.post(path, content=content, **options)
            assert answer.status_code >= 400, (path, body, answer.text)
            said.append(answer.json()["error"]["message"])

        attempt("/v1/v1/completions", {})
        said.append(client.get("/v1/completions").json()["error"]["message"])
        for body in (
            {"prompt": "x" * 300}, {"prompt": ""}, {"prompt": "x", "model": "gpt-4"},
            {"prompt": "x", "temperature": "hot"}, {"prompt": "x", "n": 9},
            {"prompt": "x", "stream_options": {"include_usage": True}},
            {"prompt": "x", "max_tokens": 0}, {"prompt": "x", "suffix": "y"}, '{"prompt": "x"',
            {"prompt": "x" * 1_100_000},
        ):  # fmt: skip
            attempt("/v1/completions", body)
        image = [{"type": "image_url", "image_url": {}}]
        for more in (
            {"messages": [{"role": "system", "content": "x"}]},
            {"messages": [{"role": "user", "content": image}]},
            {"response_format": {"type": "json_object"}}, {"tool_choice": "required"},
        ):  # fmt: skip
            attempt("/v1/chat/completions", {**hello, **more})
        with serving_at_socket(folder, pinfer):
            for place in (["--port", str(port)], ["--unix-socket", "socket"]):
                command = [pinfer, "serve", "bundle", *place]
                result = subprocess.run(command, cwd=folder, capture_output=True, text=True)
                said.append(result.stderr)
        said.append(log.read_text())
    (folder / "key").write_text("k\n")
    with serving(folder, pinfer, "bare", port, "--api-key-file", "key"):
        url = f"http://127.0.0.1:{port}/v1/chat/completions"
        for headers in ({}, {"Authorization": "Bearer k"}):
            said.append(httpx.post(url, json=hello, headers=headers).json()["error"]["message"])
    return said


@contextlib.contextmanager
def serving_at_socket(folder: Path, pinfer: Path):
    command = [str(pinfer), "serve", "bundle", "--unix-socket", "socket"]
    server = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
    try:
        assert any("listening on" in line for line in server.stderr)
        yield
    finally:
        server.terminate()
        server.communicate(timeout=30)


@pytest.fixture(scope="module")
def said(folder, pinfer):
    """All that is said in these cases."""
    with pytest.MonkeyPatch.context() as patch:
        texts = export_errors(folder, patch)
        texts += command_errors(folder, pinfer, patch)
        texts += server_errors(folder, pinfer, int(free_port()))
    return [plain(text) for text in texts]


@pytest.fixture(scope="module")
def sources():
    """The sources' text, literals that stand side by side joined."""
    folders = (ROOT / name for name in ("engine_cpp", "csrc", "export"))
    files = [path for folder in folders for path in sorted(folder.rglob("*.[ch]*"))]
    files += sorted((ROOT / "export").rglob("*.py"))
    text = "\n".join(path.read_text() for path in files)
    return re.sub(r'"\s*f?"', "", text)


@pytest.mark.parametrize("quote", sorted(set(quotes()) - IN_THE_SOURCES))
def test_is_printed(said, quote):
    assert any(plain(quote) in text for text in said), "\n".join(said)


@pytest.mark.parametrize("quote", sorted(IN_THE_SOURCES))
def test_is_in_the_sources(sources, quote):
    assert quote in quotes(), "the page does not quote it"
    for part in re.split(r"\d+(?:\.\d+)?|x86-64-v\d|_total$", quote):
        assert part.strip() in sources, part
