"""Runs a program within what the systemd unit allows, as far as that needs no systemd.

Usage: confined.py UNIT [--root DIR --user ID] -- PROGRAM ARGUMENTS...

Applied: no new privileges; SystemCallFilter with SystemCallErrorNumber, RestrictAddressFamilies,
MemoryDenyWriteExecute and RestrictNamespaces (clone3 is unknown, no new namespaces) as a seccomp
filter. With --root (as root): DIR is the root directory, read-only (ProtectSystem=strict) but for a
/tmp of its own (PrivateTmp), with /proc; an empty CapabilityBoundingSet; the user ID.
Not applied, for it needs a service manager: DynamicUser's name, PrivateUsers, PrivateDevices.
Linux on x86-64, standard library only.
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import os
import re
import struct
import subprocess
import sys
from pathlib import Path

UNISTD = "/usr/include/x86_64-linux-gnu/asm/unistd_64.h"
PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP = 24, 38, 22
SECCOMP_MODE_FILTER = 2
AUDIT_ARCH_X86_64 = 0xC000003E
ALLOW, ERRNO, KILL = 0x7FFF0000, 0x00050000, 0x80000000
LOAD, JUMP_EQUAL, JUMP_ALWAYS, AND, RETURN = 0x20, 0x15, 0x05, 0x54, 0x06
PROT_WRITE, PROT_EXEC = 2, 4
CLONE_NEWNS = 0x00020000
NAMESPACE_FLAGS = 0x7E020080  # every CLONE_NEW...
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = (
    1, 2, 4, 32, 4096, 16384, 1 << 18,
)  # fmt: skip
FAMILIES = {"AF_UNIX": 1, "AF_INET": 2, "AF_INET6": 10}

libc = ctypes.CDLL(None, use_errno=True)


def check(result: int, what: str) -> None:
    if result != 0:
        sys.exit(f"confined: {what}: {os.strerror(ctypes.get_errno())}")


# ---- what the unit says ----


def unit_settings(unit: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in unit.read_text().splitlines():
        if "=" in line and not line.startswith("#"):
            name, value = line.split("=", 1)
            found.setdefault(name, []).append(value)
    return found


def call_group(name: str) -> set[str]:
    """The calls of a group like @system-service, as systemd has it."""
    text = subprocess.run(
        ["systemd-analyze", "syscall-filter", name], capture_output=True, text=True, check=True
    ).stdout
    calls: set[str] = set()
    for word in re.findall(r"^    (@?\w[\w-]*|@[\w-]+)$", text, re.M):
        calls |= call_group(word) if word.startswith("@") else {word}
    return calls


def allowed_calls(settings: dict[str, list[str]]) -> set[str]:
    calls: set[str] = set()
    for line in settings["SystemCallFilter"]:
        removes = line.startswith("~")
        for word in line.lstrip("~").split():
            members = call_group(word) if word.startswith("@") else {word}
            calls = calls - members if removes else calls | members
    # What starts a program is always there.
    return calls | call_group("@default") | {"execve"}


def call_numbers() -> dict[str, int]:
    text = Path(UNISTD).read_text()
    return {name: int(number) for name, number in re.findall(r"#define __NR_(\w+) (\d+)", text)}


# ---- the filter ----


class Filter:
    """A program of the classic Berkeley packet filter over struct seccomp_data."""

    def __init__(self) -> None:
        self.code: list[tuple[int, int, int, int]] = []

    def add(self, operation: int, value: int, if_true: int = 0, if_false: int = 0) -> None:
        self.code.append((operation, if_true, if_false, value))

    def load_number(self) -> None:
        self.add(LOAD, 0)

    def when(self, number: int, body: list[tuple[int, int, int, int]]) -> None:
        """Runs body, which must load the number again or return, if it is this call."""
        self.add(JUMP_EQUAL, number, 0, len(body))
        self.code += body

    def bytes(self) -> bytes:
        return b"".join(struct.pack("<HBBI", *instruction) for instruction in self.code)


def refuse(error: int) -> tuple[int, int, int, int]:
    return (RETURN, 0, 0, ERRNO | error)


def load_argument(index: int) -> tuple[int, int, int, int]:
    return (LOAD, 0, 0, 16 + 8 * index)  # the lower half


LOAD_NUMBER = (LOAD, 0, 0, 0)


def refuse_masked(index: int, mask: int, wanted: int, error: int) -> list:
    """Refuses if argument & mask == wanted."""
    return [
        load_argument(index),
        (AND, 0, 0, mask),
        (JUMP_EQUAL, 0, 1, wanted),
        refuse(error),
        LOAD_NUMBER,
    ]


def make_filter(settings: dict[str, list[str]]) -> Filter:
    numbers = call_numbers()
    made = Filter()
    made.add(LOAD, 4)
    made.add(JUMP_EQUAL, AUDIT_ARCH_X86_64, 1, 0)
    made.add(RETURN, KILL)
    made.load_number()
    if settings["MemoryDenyWriteExecute"] == ["yes"]:
        both = PROT_WRITE | PROT_EXEC
        made.when(numbers["mmap"], refuse_masked(2, both, both, errno.EPERM))
        for name in ("mprotect", "pkey_mprotect"):
            made.when(numbers[name], refuse_masked(2, PROT_EXEC, PROT_EXEC, errno.EPERM))
    [families] = settings["RestrictAddressFamilies"]
    checks = [load_argument(0)]
    names = families.split()
    for index, name in enumerate(names):
        checks.append((JUMP_EQUAL, len(names) - index, 0, FAMILIES[name]))
    made.when(numbers["socket"], [*checks, refuse(errno.EAFNOSUPPORT), LOAD_NUMBER])
    if settings["RestrictNamespaces"] == ["yes"]:
        made.when(numbers["clone3"], [refuse(errno.ENOSYS)])  # its flags cannot be looked at
        no_new = [
            load_argument(0),
            (AND, 0, 0, NAMESPACE_FLAGS),
            (JUMP_EQUAL, 1, 0, 0),
            refuse(errno.EPERM),
            LOAD_NUMBER,
        ]
        for name in ("clone", "unshare", "setns"):
            made.when(numbers[name], no_new)
    for name in sorted(allowed_calls(settings)):
        if name in numbers:
            made.when(numbers[name], [(RETURN, 0, 0, ALLOW)])
    assert settings["SystemCallErrorNumber"] == ["EPERM"]
    made.add(RETURN, ERRNO | errno.EPERM)
    return made


def confine_calls(made: Filter) -> None:
    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))

    program = Program(len(made.code), made.bytes())
    check(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no new privileges")
    check(libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0), "seccomp")


# ---- the root directory and the user ----


def mount(source: str, target: str, kind: str | None, flags: int) -> None:
    encoded = None if kind is None else kind.encode()
    check(libc.mount(source.encode(), target.encode(), encoded, flags, None), f"mount {target}")


def enter_root(root: Path) -> None:
    """In a mount namespace of its own: read-only, with a /tmp and /proc."""
    check(libc.unshare(CLONE_NEWNS), "mount namespace")
    mount("none", "/", None, MS_REC | MS_PRIVATE)
    mount(str(root), str(root), None, MS_BIND | MS_REC)
    mount(str(root), str(root), None, MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV)
    for name, kind in (("tmp", "tmpfs"), ("proc", "proc")):
        if (root / name).is_dir():
            mount(kind, str(root / name), kind, MS_NOSUID | MS_NODEV)
    os.chroot(root)
    os.chdir("/")


def become(user: int, last_capability: int) -> None:
    for capability in range(last_capability + 1):
        check(libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0), "capabilities")
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def main() -> None:
    parser = argparse.ArgumentParser(description="runs a program within what a unit allows")
    parser.add_argument("unit", type=Path)
    parser.add_argument("--root", type=Path)
    parser.add_argument("--user", type=int)
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()
    # Reads files that the root does not have.
    made = make_filter(unit_settings(arguments.unit))
    last_capability = int(Path("/proc/sys/kernel/cap_last_cap").read_text())
    if arguments.root is not None:
        enter_root(arguments.root.resolve())
    if arguments.user is not None:
        become(arguments.user, last_capability)
    confine_calls(made)
    os.execv(arguments.command[0], arguments.command)


if __name__ == "__main__":
    main()
