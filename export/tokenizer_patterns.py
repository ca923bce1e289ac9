"""Splitting patterns compiled to small match programs that the engine runs.

The parser reads the regular-expression dialect of `tokenizers` (Oniguruma's Ruby syntax) as far as
published tokenizers use it. Character classes are not interpreted here: their text is evaluated
over all code points by the wheel itself (tokenizer_unicode.CharClasses), so the engine's classes
are exactly the reference's. What the parser does not know raises `UnsupportedPattern`; the caller
then leaves the pattern to Oniguruma at run time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from pinfer.export.tokenizer_unicode import CharClasses

INFINITE = 0xFFFFFFFF
_QUANTIFIER_STARTS = "*+?{"
_ESCAPED_CONTROLS = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v", "a": "\a", "e": "\x1b"}
_CLASS_ESCAPES = "sSdDwWhH"


class UnsupportedPattern(Exception):
    """A construct outside the subset that match programs cover."""


class NodeKind(IntEnum):
    """Kinds of program nodes; engine_cpp/tokenizer/pattern.h has the same numbers."""

    END = 0
    CLASS = 1  # class bit, min, max, mode, next
    ALTERNATIVES = 2  # nodes, tried in order
    LOOKAHEAD = 3  # node, negate, next
    ATOMIC = 4  # node, next
    BEGIN_LINE = 5  # next
    END_LINE = 6
    BEGIN_TEXT = 7
    END_TEXT = 8
    WORD_BOUNDARY = 9  # class bit, negate, next
    CLASS_SEQUENCE = 10  # [class bits], min, max, mode, next
    LITERAL = 11  # text, next


class LoopMode(IntEnum):
    """How a loop gives characters back."""

    GREEDY = 0
    LAZY = 1
    POSSESSIVE = 2


@dataclass
class _Atom:
    """One class or character with its quantifier."""

    text: str  # class text for the wheel, or the character
    is_literal: bool
    ignore_case: bool
    low: int = 1
    high: int = 1
    mode: LoopMode = LoopMode.GREEDY


@dataclass
class _Group:
    """Alternatives in brackets with their quantifier."""

    branches: list[list[Any]]
    kind: str = "group"  # group, ahead, not_ahead, atomic
    low: int = 1
    high: int = 1
    mode: LoopMode = LoopMode.GREEDY


@dataclass
class _Assertion:
    kind: NodeKind
    negate: bool = False


@dataclass
class _Parser:
    """Recursive descent over the pattern's text."""

    pattern: str
    position: int = 0
    flags: list[bool] = field(default_factory=lambda: [False])  # ignore-case, per open group

    def peek(self) -> str:
        return self.pattern[self.position] if self.position < len(self.pattern) else ""

    def take(self) -> str:
        char = self.peek()
        if not char:
            raise UnsupportedPattern("the pattern ends too early")
        self.position += 1
        return char

    def accept(self, text: str) -> bool:
        if self.pattern.startswith(text, self.position):
            self.position += len(text)
            return True
        return False

    def parse_alternatives(self) -> list[list[Any]]:
        branches: list[list[Any]] = [[]]
        while self.peek() and self.peek() != ")":
            if self.accept("|"):
                branches.append([])
                continue
            item = self.parse_item()
            if item is not None:
                branches[-1].append(item)
            elif branches != [[]]:  # there '(?i)' would bind the alternatives that follow, too
                raise UnsupportedPattern("'(?i)' in the middle of a group")
        return branches

    def parse_item(self) -> Any:
        char = self.take()
        item: Any
        if char == "(":
            item = self.parse_group()
            if item is None:
                return None
        elif char == "[":
            item = _Atom(self.class_text(), False, self.flags[-1])
        elif char == ".":
            item = _Atom(".", False, False)
        elif char == "^":
            return _Assertion(NodeKind.BEGIN_LINE)
        elif char == "$":
            return _Assertion(NodeKind.END_LINE)
        elif char == "\\":
            item = self.parse_escape()
            if isinstance(item, _Assertion):
                return item
        elif char in _QUANTIFIER_STARTS and char != "{":
            raise UnsupportedPattern(f"quantifier {char!r} without an operand")
        else:
            item = _Atom(char, True, self.flags[-1])
        return self.parse_quantifiers(item)

    def parse_group(self) -> _Group | None:
        kind = "group"
        ignore_case = self.flags[-1]
        if self.accept("?"):
            if self.accept("="):
                kind = "ahead"
            elif self.accept("!"):
                kind = "not_ahead"
            elif self.accept(">"):
                kind = "atomic"
            elif not self.accept(":"):
                ignore_case, closed = self.parse_flags()
                if closed:  # (?i) holds to the end of the enclosing group
                    self.flags[-1] = ignore_case
                    return None
        self.flags.append(ignore_case)
        branches = self.parse_alternatives()
        self.flags.pop()
        if not self.accept(")"):
            raise UnsupportedPattern("a bracket is not closed")
        return _Group(branches, kind)

    def parse_flags(self) -> tuple[bool, bool]:
        """(ignore case, whether the group was only flags)."""
        value, ignore_case = True, self.flags[-1]
        while True:
            char = self.take()
            if char == "-":
                value = False
            elif char == "i":
                ignore_case = value
            elif char == ":":
                return ignore_case, False
            elif char == ")":
                return ignore_case, True
            else:
                raise UnsupportedPattern(f"group '(?{char}'")

    def class_text(self) -> str:
        """The text of a bracket class, '[' already taken; nested classes included."""
        start, depth = self.position - 1, 1
        first = True
        while depth:
            char = self.take()
            if char == "\\":
                self.take()
            elif char == "[":
                depth += 1
            elif char == "]" and not first:
                depth -= 1
            first = first and char == "^"
        return self.pattern[start : self.position]

    def parse_escape(self) -> _Atom | _Assertion:
        start = self.position - 1
        char = self.take()
        if char in "pP":
            if self.peek() != "{":
                raise UnsupportedPattern(f"escape '\\{char}' without a property")
            end = self.pattern.find("}", self.position)
            if end < 0:
                raise UnsupportedPattern("a property is not closed")
            self.position = end + 1
            return _Atom(self.pattern[start : self.position], False, False)
        if char in _CLASS_ESCAPES:
            return _Atom(f"\\{char}", False, False)
        if char in "bB":
            return _Assertion(NodeKind.WORD_BOUNDARY, negate=char == "B")
        if char == "A":
            return _Assertion(NodeKind.BEGIN_TEXT)
        if char == "z":
            return _Assertion(NodeKind.END_TEXT)
        if char in _ESCAPED_CONTROLS:
            return _Atom(_ESCAPED_CONTROLS[char], True, self.flags[-1])
        if char == "x":
            return _Atom(self.parse_hex(), True, self.flags[-1])
        if char == "u":
            digits = self.pattern[self.position : self.position + 4]
            self.position += 4
            return _Atom(self.code_point(digits), True, self.flags[-1])
        if char.isalnum():
            raise UnsupportedPattern(f"escape '\\{char}'")
        return _Atom(char, True, self.flags[-1])

    def parse_hex(self) -> str:
        if self.accept("{"):
            end = self.pattern.find("}", self.position)
            digits = self.pattern[self.position : end]
            self.position = end + 1
        else:
            digits = self.pattern[self.position : self.position + 2]
            self.position += 2
            if int(digits, 16) >= 0x80:
                raise UnsupportedPattern("a raw byte escape above 7F")
        return self.code_point(digits)

    @staticmethod
    def code_point(digits: str) -> str:
        try:
            return chr(int(digits, 16))
        except ValueError as error:
            raise UnsupportedPattern(f"code point '{digits}'") from error

    def parse_quantifiers(self, item: Any) -> Any:
        quantified = False
        while True:
            bounds = self.parse_bounds()
            if bounds is None:
                return item
            low, high, is_interval = bounds
            mode = LoopMode.GREEDY
            if self.accept("?"):
                if is_interval and low == high:
                    raise UnsupportedPattern("a lazy interval of one length")
                mode = LoopMode.LAZY
            # In this dialect '{n,m}+' is a loop around a loop, not a possessive one.
            elif not is_interval and self.accept("+"):
                mode = LoopMode.POSSESSIVE
            if quantified:
                item = self.loop_around(item, low, high, mode)
            elif isinstance(item, _Group) and item.kind in ("ahead", "not_ahead"):
                raise UnsupportedPattern("a quantifier on a lookahead")
            else:
                item.low, item.high, item.mode = low, high, mode
            quantified = True

    @staticmethod
    def loop_around(item: Any, low: int, high: int, mode: LoopMode) -> Any:
        """'X{1,3}+' and the like: the same as 'X+' where every count can be reached."""
        greedy = item.mode is LoopMode.GREEDY and mode is LoopMode.GREEDY
        if not (isinstance(item, _Atom) and greedy and item.low <= 1 and high == INFINITE):
            raise UnsupportedPattern("a quantifier on a quantifier")
        item.low, item.high = min(item.low, low), INFINITE
        return item

    def parse_bounds(self) -> tuple[int, int, bool] | None:
        if self.accept("*"):
            return 0, INFINITE, False
        if self.accept("+"):
            return 1, INFINITE, False
        if self.accept("?"):
            return 0, 1, False
        if self.peek() != "{":
            return None
        end = self.pattern.find("}", self.position)
        low, comma, high = self.pattern[self.position + 1 : max(end, 0)].partition(",")
        numbers = [part for part in (low, high) if part]
        if end < 0 or not numbers or not all(part.isdecimal() for part in numbers):
            raise UnsupportedPattern("'{' that is not an interval")
        self.position = end + 1
        minimum = int(low) if low else 0
        maximum = (int(high) if high else INFINITE) if comma else minimum
        if minimum > maximum:
            raise UnsupportedPattern("an interval with its bounds exchanged")
        return minimum, maximum, True


class _Compiler:
    """Turns the tree into nodes; every node refers only to nodes before it."""

    def __init__(self, classes: CharClasses) -> None:
        self.classes = classes
        self.nodes: list[list[Any]] = [[int(NodeKind.END)]]

    def add(self, *node: Any) -> int:
        self.nodes.append(list(node))
        return len(self.nodes) - 1

    def branches(self, branches: list[list[Any]], following: int) -> int:
        starts = [self.sequence(branch, following) for branch in branches]
        return starts[0] if len(starts) == 1 else self.add(int(NodeKind.ALTERNATIVES), starts)

    def sequence(self, items: list[Any], following: int) -> int:
        index = len(items)
        while index:
            index -= 1
            item = items[index]
            if isinstance(item, _Atom) and self.is_plain(item):
                text = item.text
                while index and self.is_plain(items[index - 1]):
                    index -= 1
                    text = items[index].text + text
                following = self.add(int(NodeKind.LITERAL), text, following)
            else:
                following = self.item(item, following)
        return following

    @staticmethod
    def is_plain(item: Any) -> bool:
        return (
            isinstance(item, _Atom)
            and item.is_literal
            and item.low == item.high == 1
            and not (item.ignore_case and item.text.lower() != item.text.upper())
        )

    def item(self, item: Any, following: int) -> int:
        if isinstance(item, _Atom):
            bit = self.class_bit(item)
            loop = [item.low, item.high, int(item.mode)]
            return self.add(int(NodeKind.CLASS), bit, *loop, following)
        if isinstance(item, _Assertion):
            if item.kind is NodeKind.WORD_BOUNDARY:
                bit = self.classes.regex(r"\w")
                return self.add(int(item.kind), bit, int(item.negate), following)
            return self.add(int(item.kind), following)
        return self.group(item, following)

    def class_bit(self, atom: _Atom) -> int:
        if not atom.is_literal:
            text = f"(?i:{atom.text})" if atom.ignore_case else atom.text
            return self.classes.regex(text)
        if not atom.ignore_case:
            return self.classes.characters(atom.text)
        return self.classes.regex(f"(?i:{escape(atom.text)})")

    def group(self, group: _Group, following: int) -> int:
        if group.kind in ("ahead", "not_ahead"):
            inner = self.branches(group.branches, 0)
            negate = int(group.kind == "not_ahead")
            return self.add(int(NodeKind.LOOKAHEAD), inner, negate, following)
        if group.high > 1:
            return self.class_sequence(group, following)
        atomic = group.kind == "atomic" or group.mode is LoopMode.POSSESSIVE
        if group.low == 0 and group.high == 0:
            return following
        if atomic:
            inner = self.branches(group.branches, 0)
            inner = self.add(int(NodeKind.ATOMIC), inner, following)
        else:
            inner = self.branches(group.branches, following)
        if group.low == 1:
            return inner
        options = [following, inner] if group.mode is LoopMode.LAZY else [inner, following]
        return self.add(int(NodeKind.ALTERNATIVES), options)

    def class_sequence(self, group: _Group, following: int) -> int:
        """A loop over a fixed number of classes, such as '(?:\\d{3})*'."""
        bits: list[int] = []
        for item in group.branches[0]:
            if not isinstance(item, _Atom) or item.low != item.high or item.high > 64:
                raise UnsupportedPattern("a loop over a group of varying length")
            bits += [self.class_bit(item)] * item.low
        if len(group.branches) > 1 or not bits or group.kind == "atomic":
            raise UnsupportedPattern("a loop over alternatives")
        loop = [group.low, group.high, int(group.mode)]
        return self.add(int(NodeKind.CLASS_SEQUENCE), bits, *loop, following)


def escape(text: str) -> str:
    """`text` as a pattern that matches just it."""
    return "".join(f"\\x{{{ord(char):x}}}" for char in text)


def _check_case_folding(branches: list[list[Any]], classes: CharClasses) -> None:
    """Refuses literals that a single other character stands for, such as (?i:ss)."""
    for branch in branches:
        run = ""
        for item in [*branch, None]:
            if isinstance(item, _Atom) and item.is_literal and item.ignore_case:
                run += item.text
                continue
            if len(run) > 1 and classes.matches_any(f"(?i:{escape(run)})"):
                raise UnsupportedPattern(f"case folding of '{run}' to one character")
            run = ""
            if isinstance(item, _Group):
                _check_case_folding(item.branches, classes)


def compile_pattern(pattern: str, classes: CharClasses) -> dict[str, Any]:
    """The match program {"nodes", "start"}; raises UnsupportedPattern."""
    parser = _Parser(pattern)
    branches = parser.parse_alternatives()
    if parser.peek():
        raise UnsupportedPattern("a bracket closes nothing")
    _check_case_folding(branches, classes)
    compiler = _Compiler(classes)
    start = compiler.branches(branches, 0)
    return {"nodes": compiler.nodes, "start": start}


def literal_program(text: str) -> dict[str, Any]:
    """A program that matches `text`; an empty one matches everywhere."""
    if not text:
        return {"nodes": [[int(NodeKind.END)]], "start": 0}
    return {"nodes": [[int(NodeKind.END)], [int(NodeKind.LITERAL), text, 0]], "start": 1}


def class_program(bit: int, low: int = 1, high: int = 1) -> dict[str, Any]:
    """A program that matches `low` to `high` characters of a class."""
    node = [int(NodeKind.CLASS), bit, low, high, int(LoopMode.GREEDY), 0]
    return {"nodes": [[int(NodeKind.END)], node], "start": 1}


def runs_program(bits: list[int]) -> dict[str, Any]:
    """A program that matches a run of characters of one of the classes."""
    loops = [[int(NodeKind.CLASS), bit, 1, INFINITE, int(LoopMode.GREEDY), 0] for bit in bits]
    starts = list(range(1, len(bits) + 1))
    choice = [int(NodeKind.ALTERNATIVES), starts]
    return {"nodes": [[int(NodeKind.END)], *loops, choice], "start": len(bits) + 1}
