"""Writes the manual pages packaging/man/*.1.in from what the programs say of themselves.

Usage: python packaging/man_pages.py PINFER [--check]   (needs the exporter's requirements)

pinfer(1) comes from the --help of every command, pinfer-export(1) from its click definitions; only
the sections around them are written here. --check: exit status 1 if a page would change.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import click

from pinfer.export.__main__ import command as export_command

PAGES = Path(__file__).parent / "man"
# Groups of options that several commands have: described once.
SHARED_GROUPS = ("Engine", "Sampling (default: the model's settings)")


@dataclass(frozen=True)
class Option:
    names: tuple[str, ...]
    value: str  # "TEXT", "fcfs|priority"; empty for a switch
    default: str
    text: str


@dataclass
class Command:
    name: str
    description: str
    positionals: list[str] = field(default_factory=list)
    groups: dict[str, list[Option]] = field(default_factory=dict)
    footer: str = ""


def parse_head(head: str) -> tuple[tuple[str, ...], str, str]:
    """Names, value and default of "-n,--max-tokens INT:CHECK=1 (Env:PINFER_X) Excludes: --y"."""
    names, _, rest = re.sub(r",\s+-", ",-", head).partition(" ")
    value, _, default = re.split(r" ?\(Env:| ?Excludes:", rest)[0].partition("=")
    value = re.sub(r" \.\.\.$| REQUIRED$", "", value.strip())
    kind, _, check = value.partition(":")
    if check.startswith("{"):
        value = check.strip("{}").replace(",", "|")
    else:
        value = kind
    default = re.sub(r" \.\.\.$", "", default.strip())
    return tuple(names.split(",")), value, "" if default == "[]" else default


def parse_help(name: str, text: str) -> Command:
    """What CLI11 prints: a description, positionals, groups of options, a footer."""
    lines = text.split("\n")
    command = Command(name, lines[0])
    section, head = "", ""
    for line in lines[1:]:
        indented = line.startswith("  ")
        if re.fullmatch(r"\S.*:", line):
            section = line[:-1]
        elif line and not indented and not line.startswith("Usage:"):
            command.footer += line + " "
        elif indented and section == "Positionals" and line[2] != " ":
            command.positionals.append(line.split()[0])
        elif indented and section not in ("Positionals", "Subcommands", ""):
            if line.startswith("  -"):
                head, _, help_text = re.sub(r"^  ", "", line).partition("  ")
            else:
                help_text = line
            if help_text.strip():
                option = Option(*parse_head(head), help_text.strip())
                command.groups.setdefault(section, []).append(option)
    return command


def read_commands(program: Path) -> list[Command]:
    def help_of(*arguments: str) -> str:
        return subprocess.run(
            [program, *arguments, "--help"], capture_output=True, text=True, check=True
        ).stdout

    listed = help_of().split("Subcommands:\n")[1]
    names = re.findall(r"^  (\S+) ", listed, re.M)
    return [parse_help(name, help_of(name)) for name in names]


# ---- troff ----


def escape(text: str) -> str:
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.M)


def bold(text: str) -> str:
    return f"\\fB{escape(text)}\\fR"


def option_text(option: Option) -> str:
    head = ", ".join(bold(name) for name in option.names)
    if option.value:
        head += f" \\fI{escape(option.value)}\\fR"
    text = option.text
    if option.default and "default" not in text:
        text += f" (default: {option.default})"
    return f".TP\n{head}\n{escape(text)}\n"


def section(title: str, body: str) -> str:
    return f".SH {title}\n{body}"


def paragraphs(*texts: str) -> str:
    return "\n.PP\n".join(texts) + "\n"


def title(name: str) -> str:
    return (
        f'.\\" Written by packaging/man_pages.py.\n'
        f'.TH {name.upper()} 1 "" "pinfer @PROJECT_VERSION@" "User Commands"\n'
    )


def command_text(command: Command) -> str:
    text = f".SS {bold(f'pinfer {command.name}')}"
    text += "".join(f" \\fI{name.upper()}\\fR" for name in command.positionals)
    text += f" [\\fIOPTIONS\\fR]\n{escape(command.description)}.\n"
    own = {name: group for name, group in command.groups.items() if name not in SHARED_GROUPS}
    for group in own.values():
        for option in group:
            if "--help" not in option.names:
                text += option_text(option)
    if command.footer:
        text += f".PP\n{escape(command.footer.strip())}\n"
    shared = [name.split(" ")[0].lower() for name in SHARED_GROUPS if name in command.groups]
    if shared:
        text += f".PP\nAlso the options of {' and '.join(shared)} below.\n"
    return text


def shared_text(group: str, commands: list[Command]) -> str:
    """Every option once, with the defaults of commands that have another."""
    users = [command for command in commands if group in command.groups]
    first: dict[tuple[str, ...], Option] = {}
    defaults: dict[tuple[str, ...], dict[str, list[str]]] = {}
    for user in users:
        for option in user.groups[group]:
            first.setdefault(option.names, option)
            by_default = defaults.setdefault(option.names, {})
            by_default.setdefault(option.default, []).append(user.name)
    text = f"Of {', '.join(bold(user.name) for user in users)}.\n"
    for names, option in first.items():
        if len(defaults[names]) > 1:
            each = "; ".join(f"{value} in {', '.join(of)}" for value, of in defaults[names].items())
            option = Option(names, option.value, "", f"{option.text} (default: {each})")
        text += option_text(option)
    return text


def pinfer_page(commands: list[Command]) -> str:
    page = title("pinfer")
    page += section("NAME", "pinfer \\- language models compiled ahead of time\n")
    page += section(
        "SYNOPSIS",
        f"{bold('pinfer')} \\fICOMMAND\\fR \\fIBUNDLE\\fR [\\fIOPTIONS\\fR]\n.br\n"
        f"{bold('pinfer --help')} | {bold('--version')}\n.br\n"
        f"{bold('pinfer')} \\fICOMMAND\\fR {bold('--help')}\n",
    )
    page += section(
        "DESCRIPTION",
        paragraphs(
            "Runs language models that \\fBpinfer\\-export\\fR(1) has compiled into a bundle,"
            "\nand serves them over the OpenAI protocol. A \\fIBUNDLE\\fR is a directory, or a"
            "\nfile that carries one (pinfer\\-export \\-\\-standalone); such a file is a program"
            "\nof its own, which takes the same commands without a bundle.",
            "Commands that read JSON lines answer every line of their input, in order; an answer"
            '\nmay be {"error": ...}.',
        ),
    )
    page += section("COMMANDS", "".join(command_text(command) for command in commands))
    for group in SHARED_GROUPS:
        page += section(f"{group.split(' ')[0].upper()} OPTIONS", shared_text(group, commands))
    page += section(
        "ENVIRONMENT",
        paragraphs(
            "Every option has a variable: PINFER_ and its name in capitals, as PINFER_MAX_NUM_SEQS"
            "\nfor \\-\\-max\\-num\\-seqs. An option beats its variable.",
            "OMP_NUM_THREADS: as \\-\\-threads, where that is not given. PINFER_TORCH_LIB: where"
            "\nlibtorch lies, for \\-\\-provider torch. NOTIFY_SOCKET: where \\fBpinfer serve\\fR"
            "\nsays that it is ready or stops, see \\fBsd_notify\\fR(3).",
        ),
    )
    page += section(
        "FILES",
        ".TP\n/var/lib/pinfer/\\fINAME\\fR, /etc/pinfer/\\fINAME\\fR.env\n"
        "Bundle and settings of the systemd unit pinfer@\\fINAME\\fR.\n"
        ".TP\nlibonig.so.5\n"
        "Opened for the few tokenizers with an unusual splitting pattern: beside the program,"
        "\nin ../lib from there, or on the system.\n",
    )
    page += section(
        "EXIT STATUS",
        "0: done. 1: refused or failed; the last line on standard error says why. 2: usage.\n",
    )
    page += section(
        "EXAMPLES",
        '.nf\npinfer run bundle \\-p "Once upon a time" \\-n 32\n'
        'pinfer run bundle \\-\\-chat \\-p "What is the capital of France?"\n'
        "pinfer serve bundle \\-\\-port 8000\n.fi\n",
    )
    return page + section("SEE ALSO", "\\fBpinfer\\-export\\fR(1)\n")


def click_value(option: click.Option) -> str:
    if option.is_flag:
        return ""
    if isinstance(option.type, click.Choice):
        return "|".join(option.type.choices)
    return option.type.name.split(" ")[0].upper()


def export_page() -> str:
    options = ""
    context = click.Context(export_command, **export_command.context_settings)
    for option in export_command.get_params(context):
        if isinstance(option, click.Option):
            has_default = not option.is_flag and isinstance(option.default, str)
            default = option.default if has_default else ""
            text = option.help or ""
            names = tuple(sorted(option.opts, key=len))
            options += option_text(Option(names, click_value(option), default, text))
    page = title("pinfer-export")
    page += section("NAME", "pinfer\\-export \\- compile a language model for pinfer\n")
    page += section(
        "SYNOPSIS",
        f"{bold('pinfer-export')} \\fIMODEL\\fR {bold('-o')} \\fIBUNDLE\\fR [\\fIOPTIONS\\fR]\n",
    )
    about = " ".join((export_command.help or "").split())
    page += section(
        "DESCRIPTION",
        f"{escape(about)}\nThe bundle is what \\fBpinfer\\fR(1) runs; it needs neither Python nor"
        "\nthe checkpoint. A bundle appears whole or not at all.\n",
    )
    page += section("OPTIONS", options)
    page += section(
        "ENVIRONMENT",
        paragraphs(
            "Every option has a variable: PINFER_ and its name in capitals, as PINFER_CPU_ISA for"
            "\n\\-\\-cpu\\-isa. An option beats its variable.",
            "PINFER_CACHE_DIR: where compiled parts are kept (default: ~/.cache/pinfer).",
        ),
    )
    page += section(
        "EXIT STATUS",
        "0: done. 1: refused or failed; the last line on standard error says why. 2: usage.\n",
    )
    page += section(
        "EXAMPLES", ".nf\npinfer\\-export model/ \\-o bundle/ \\-\\-quantize int8\n.fi\n"
    )
    return page + section("SEE ALSO", "\\fBpinfer\\fR(1)\n")


def main() -> None:
    parser = argparse.ArgumentParser(description="writes the manual pages")
    parser.add_argument("program", type=Path, help="the program pinfer")
    parser.add_argument("--check", action="store_true", help="only say what would change")
    arguments = parser.parse_args()
    pages = {
        "pinfer": pinfer_page(read_commands(arguments.program)),
        "pinfer-export": export_page(),
    }
    stale = []
    for name, text in pages.items():
        path = PAGES / f"{name}.1.in"
        if path.exists() and path.read_text() == text:
            continue
        stale.append(str(path))
        if not arguments.check:
            path.write_text(text)
    if arguments.check and stale:
        sys.exit(f"{', '.join(stale)}: write again with packaging/man_pages.py")


if __name__ == "__main__":
    main()
