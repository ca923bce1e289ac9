"""Manual pages and completion: made from the programs' own definitions, and complete."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAN = ROOT / "packaging" / "man"
COMPLETION = ROOT / "packaging" / "completion"
FLAG = re.compile(r"(?<![\w-])--?[a-z][a-z0-9-]*", re.I)


def flags_of(help_text: str) -> set[str]:
    """Flags that --help lists, as "-n,--max-tokens" or "-o, --output"."""
    heads = re.findall(r"^  (-[^\s,]+(?:, ?-[^\s,]+)*)", help_text, re.M)
    return {flag for head in heads for flag in FLAG.findall(head)}


@pytest.fixture(scope="module")
def commands(run, pinfer):
    """The flags of each command, by its --help."""
    listed = run(pinfer, "--help").stdout.split("Subcommands:\n")[1]
    names = re.findall(r"^  (\S+) ", listed, re.M)
    flags = {name: flags_of(run(pinfer, name, "--help").stdout) for name in names}
    assert {"run", "serve", "completion"} <= set(flags) and "--port" in flags["serve"]
    return flags


@pytest.fixture(scope="module")
def export_flags(run):
    program = Path(sys.executable).parent / "pinfer-export"
    if not program.exists():
        pytest.skip("pinfer-export is not installed beside this Python")
    flags = flags_of(run(program, "--help").stdout)
    assert {"-o", "--output", "--cpu-isa"} <= flags
    return flags


def page_text(name: str) -> str:
    return (MAN / f"{name}.1.in").read_text().replace("\\-", "-")


def test_pages_are_what_the_programs_say(run, pinfer):
    """A flag that was added, or whose help was changed, is in the page."""
    run(sys.executable, ROOT / "packaging" / "man_pages.py", pinfer, "--check")


def test_pages_have_every_flag(commands, export_flags):
    text = page_text("pinfer")
    for name, flags in commands.items():
        assert f"pinfer {name}" in text
        missing = {flag for flag in flags - {"-h"} if f"\\fB{flag}\\fR" not in text}
        assert not missing, f"{name}: {missing}"
    text = page_text("pinfer-export")
    missing = {flag for flag in export_flags if f"\\fB{flag}\\fR" not in text}
    assert not missing


@pytest.mark.parametrize("name", ["pinfer", "pinfer-export"])
def test_pages_are_valid(name):
    """groff has nothing to warn of."""
    if shutil.which("groff") is None:
        pytest.skip("no groff here (Debian: groff)")
    result = subprocess.run(
        ["groff", "-man", "-Tutf8", "-wall", "-z", MAN / f"{name}.1.in"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert result.returncode == 0 and result.stderr == ""


def bash_words(program: str, script: Path, words: list[str], path: Path) -> set[str]:
    """What bash proposes for the last of the words."""
    code = (
        'source "$0"; entry=$(complete -p "$1"); name=${entry##*-F }; name=${name%% *};'
        ' COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE};'
        ' "$name" "$1" "${@: -1}" "${@: -2:1}"; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    result = subprocess.run(
        ["bash", "--norc", "-c", code, script, program, *words], capture_output=True, text=True,
        env={**os.environ, "PATH": f"{path}:{os.environ['PATH']}"},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return set(result.stdout.split())


def test_bash_completes_every_flag(pinfer, commands):
    script, folder = COMPLETION / "pinfer.bash", pinfer.parent
    assert set(commands) <= bash_words("pinfer", script, [""], folder)
    for name, flags in commands.items():
        assert bash_words("pinfer", script, [name, "-"], folder) == flags, name
    assert bash_words("pinfer", script, ["serve", "--max-q"], folder) == {
        "--max-queue", "--max-queue-tokens",
    }  # fmt: skip


def test_bash_completes_the_exporter(export_flags):
    script, folder = COMPLETION / "pinfer-export.bash", Path(sys.executable).parent
    found = bash_words("pinfer-export", script, ["-"], folder)
    assert export_flags - {"-o", "-h"} <= found | {"--help"}


ZSH_STUBS = r"""
compdef() { : }
_arguments() { print -rl -- "$@" }
_describe() { print -rl -- "${(@P)2}" }
words=("$@"); CURRENT=$#
fpath=("$0" $fpath); autoload -Uz _pinfer; _pinfer
"""


def zsh_lines(words: list[str], path: Path) -> list[str]:
    """What the completion function tells zsh's own functions."""
    result = subprocess.run(
        ["zsh", "-f", "-c", ZSH_STUBS, COMPLETION, *words], capture_output=True, text=True,
        env={**os.environ, "PATH": f"{path}:{os.environ['PATH']}"},
    )  # fmt: skip
    assert result.returncode == 0 and result.stderr == "", result.stderr
    return result.stdout.splitlines()


def test_zsh_completes_every_flag(pinfer, commands):
    if shutil.which("zsh") is None:
        pytest.skip("no zsh here (Debian: zsh)")
    listed = zsh_lines(["pinfer", ""], pinfer.parent)
    assert {line.split(":")[0] for line in listed if not line.startswith("*")} >= set(commands)
    for name, flags in commands.items():
        lines = zsh_lines(["pinfer", name, "-"], pinfer.parent)
        found = {match[1] for line in lines if (match := re.match(r"\*(--?[\w-]+)", line))}
        assert found == flags, name
        assert all("[" in line and "]" in line for line in lines if line.startswith("*-"))
    [policy] = [line for line in lines_of("run", pinfer) if "--scheduling-policy" in line]
    assert policy.endswith(":value:(fcfs priority)")


def lines_of(name: str, pinfer: Path) -> list[str]:
    return zsh_lines(["pinfer", name, "-"], pinfer.parent)
