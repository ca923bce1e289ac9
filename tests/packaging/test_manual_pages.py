"""The manual's pages: commands of quick start and export run; those that other pages and the README
show exist, with these flags; links lead somewhere."""

import re
import sys
from itertools import chain
from pathlib import Path

import pytest
import tiny_models

sys.path.insert(0, str(Path(__file__).parent))
from manual_commands import DOCS, check_places, commands_for, run_block, shell_in

ROOT = DOCS.parent
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
TEMPLATE = "{% for m in messages %}<s>{{ m.role }}: {{ m.content }}\n{% endfor %}<s>assistant:"
FLAG = re.compile(r"(?<![\w-])--?[a-z][a-z0-9-]*", re.I)


@pytest.fixture
def folder(tmp_path):
    """A folder with a model in it, as the pages have it, and a text."""
    if not (Path(sys.executable).parent / "pinfer-export").exists():
        pytest.skip("pinfer-export is not installed beside this Python")
    model = tiny_models.make_checkpoint("tied", tmp_path).rename(tmp_path / "model")
    (model / "chat_template.jinja").write_text(TEMPLATE)
    (tmp_path / "sample.txt").write_text("The quick brown fox jumps over the lazy dog. " * 6)
    return tmp_path


def test_no_command_stands_elsewhere():
    check_places("quick_start", {"install", "quick-start"})
    check_places("export", {"export"})


def test_install(run):
    [[command]] = commands_for("quick_start", "install")
    planned = run("make", "--dry-run", "--always-make", *command.split()[1:2], cwd=ROOT).stdout
    assert "packaging/debian_packages.sh build" in planned and "pip install" in planned


def test_quick_start(folder):
    lines = list(chain(*commands_for("quick_start", "quick-start")))
    said = dict(zip(lines, run_block(lines, shell_in(folder)), strict=True))
    assert "architecture      LlamaForCausalLM" in said["pinfer inspect bundle"]
    [batch] = [text for line, text in said.items() if line.endswith("pinfer batch bundle")]
    assert batch.count('"finish_reason"') == 2
    [curl] = [text for line, text in said.items() if line.startswith("curl")]
    assert '"object":"chat.completion"' in curl


@pytest.mark.slow
def test_export(folder):
    lines = list(chain(*commands_for("export", "export")))
    said = dict(zip(lines, run_block(lines, shell_in(folder)), strict=True))
    assert "context           128" in said["pinfer inspect small"]
    assert (
        '"ids"' in said[lines[5]] and "perplexity" in (folder / "small/manifest.json").read_text()
    )


# ---- commands that are shown, and not run ----


def shown_commands(text: str) -> list[str]:
    """Lines of code and code in the text that begin with one of the two programs' names."""
    lines = [line.strip() for line in text.splitlines() if line.startswith("    ")]
    lines += re.findall(r"`([^`]+)`", text)
    lines += [line for block in re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S)
              for line in block.splitlines()]  # fmt: skip
    commands = [re.sub(r"^(\S*/|podman run .* )(?=pinfer)", "", line) for line in lines]
    return [line for line in commands if re.match(r"pinfer(-export)? ", line)]


@pytest.fixture(scope="module")
def known_flags(run, pinfer):
    """Flags by command, of `pinfer COMMAND` and pinfer-export."""
    listed = run(pinfer, "--help").stdout.split("Subcommands:\n")[1]
    names = re.findall(r"^  (\S+) ", listed, re.M)
    known = {f"pinfer {name}": run(pinfer, name, "--help").stdout for name in names}
    program = Path(sys.executable).parent / "pinfer-export"
    if program.exists():
        known["pinfer-export"] = run(program, "--help").stdout
    return {name: set(FLAG.findall(text)) for name, text in known.items()}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_exist(page, known_flags):
    for line in shown_commands(page.read_text()):
        words = re.split(r" [#|] ", line)[0].split()
        name = "pinfer-export" if words[0] == "pinfer-export" else " ".join(words[:2])
        if name in ("pinfer --version", "pinfer --help"):
            continue
        if name == "pinfer-export" and name not in known_flags:
            continue
        # "pinfer tokenize | detokenize" and "pinfer run ...": the word alone.
        assert name in known_flags, f"{page.name}: {line}"
        unknown = {flag for word in words[1:] for flag in FLAG.findall(word)} - known_flags[name]
        assert not unknown, f"{page.name}: {line}: {unknown}"


# ---- links ----


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#\s:]+)[)#]", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_readme_links_every_page():
    linked = set(re.findall(r"\]\(docs/([\w]+)\.md\)", (ROOT / "README.md").read_text()))
    through = {"tokenizers", "sampling", "scheduler"}  # from the pages they belong to
    assert linked | through == {page.stem for page in DOCS.glob("*.md")}
