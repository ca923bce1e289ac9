"""Expressions of a chat template as nodes of the engine's tree."""

from __future__ import annotations

from typing import Any, NoReturn

from jinja2 import nodes
from jinja2.idtracking import Symbols

from pinfer.export import template_names as names
from pinfer.export.errors import ExportError
from pinfer.export.template_environment import is_finite_constant

MAX_TREE_DEPTH = 600
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1

Tree = dict[str, Any]

_BINARY_OPERATORS: dict[type[nodes.Node], str] = {
    nodes.Add: "+",
    nodes.Sub: "-",
    nodes.Mul: "*",
    nodes.Div: "/",
    nodes.FloorDiv: "//",
    nodes.Mod: "%",
    nodes.Pow: "**",
}
_UNARY_OPERATORS: dict[type[nodes.Node], str] = {
    nodes.Not: "not",
    nodes.Neg: "neg",
    nodes.Pos: "pos",
}


def tree_depth(tree: Any) -> int:
    """Levels of objects in a tree, counted without recursion."""
    deepest, stack = 0, [(tree, 0)]
    while stack:
        item, depth = stack.pop()
        if isinstance(item, dict):
            depth += 1
            deepest = max(deepest, depth)
            stack.extend((child, depth) for child in item.values())
        elif isinstance(item, list):
            stack.extend((child, depth) for child in item)
    return deepest


class FunctionScope:
    """One activation record: the variables of one function that Jinja2 would generate.

    Jinja2 names a variable `l_<level>_<name>`; those at or above `first_level` live here, the
    others in an enclosing function.
    """

    def __init__(self, first_level: int) -> None:
        self.first_level = first_level
        self.slots: dict[str, int] = {}
        self.num_loops = 0  # loops of this function around the statement being compiled


class ExpressionCompiler:
    """Turns Jinja2's expression nodes into trees; knows where each variable lives."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._functions: list[FunctionScope] = []

    def fail(self, what: str, node: nodes.Node) -> NoReturn:
        self.reject(f"{what} is not supported", node)

    def reject(self, message: str, node: nodes.Node) -> NoReturn:
        lines = (item.lineno for item in (node, *node.find_all(nodes.Node)) if item.lineno)
        raise ExportError(f"{self._where}, line {next(lines, 1)}: {message}")

    def locate(self, identifier: str) -> tuple[int, int]:
        """(functions outwards, slot) of one of Jinja2's variables."""
        level = int(identifier.split("_", 2)[1])
        for hops, function in enumerate(reversed(self._functions)):
            if level >= function.first_level:
                return hops, function.slots.setdefault(identifier, len(function.slots))
        raise AssertionError(f"variable {identifier} belongs to no function")

    def variable(self, name: str, symbols: Symbols) -> Tree:
        hops, slot = self.locate(symbols.ref(name))
        return {"name": name, "hops": hops, "slot": slot}

    # -- Expressions

    def expression(self, node: nodes.Node, symbols: Symbols) -> Tree:
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        if method is None:
            if type(node) in _BINARY_OPERATORS:
                return self._binary(node, symbols)
            if type(node) in _UNARY_OPERATORS:
                operator = _UNARY_OPERATORS[type(node)]
                return {
                    "kind": operator,
                    "line": node.lineno,
                    "node": self.expression(node.node, symbols),
                }
            self.fail(f"the expression {type(node).__name__}", node)
        tree = method(node, symbols)
        tree["line"] = node.lineno
        return tree

    def optional(self, node: nodes.Node | None, symbols: Symbols) -> Tree | None:
        return None if node is None else self.expression(node, symbols)

    def expressions(self, items: list[nodes.Expr], symbols: Symbols) -> list[Tree]:
        return [self.expression(item, symbols) for item in items]

    def _name(self, node: nodes.Name, symbols: Symbols) -> Tree:
        if node.name in names.REFUSED_GLOBALS:
            self.fail(f"the function {node.name!r}", node)
        return {"kind": "name", **self.variable(node.name, symbols)}

    def _const(self, node: nodes.Const, symbols: Symbols) -> Tree:
        value = node.value
        if isinstance(value, int) and not INT64_MIN <= value <= INT64_MAX:
            self.fail(f"the integer {value} (more than 64 bits)", node)
        is_scalar = value is None or isinstance(value, bool | int | float | str)
        if not is_scalar or not is_finite_constant(value):
            self.fail(f"the constant {value!r}", node)
        if isinstance(value, str):
            self._check_text(value, node)
        return {"kind": "const", "value": value}

    def _templatedata(self, node: nodes.TemplateData, symbols: Symbols) -> Tree:
        return {"kind": "const", "value": node.data}

    def _check_text(self, text: str, node: nodes.Node) -> None:
        try:
            text.encode()
        except UnicodeEncodeError:
            self.fail(f"the text {text!r} (not valid Unicode)", node)

    def _tuple(self, node: nodes.Tuple, symbols: Symbols) -> Tree:
        return {"kind": "tuple", "items": self.expressions(node.items, symbols)}

    def _list(self, node: nodes.List, symbols: Symbols) -> Tree:
        return {"kind": "list", "items": self.expressions(node.items, symbols)}

    def _dict(self, node: nodes.Dict, symbols: Symbols) -> Tree:
        pairs = [
            {
                "key": self.expression(pair.key, symbols),
                "value": self.expression(pair.value, symbols),
            }
            for pair in node.items
        ]
        return {"kind": "dict", "items": pairs}

    def _condexpr(self, node: nodes.CondExpr, symbols: Symbols) -> Tree:
        return {
            "kind": "cond",
            "test": self.expression(node.test, symbols),
            "then": self.expression(node.expr1, symbols),
            "else": self.optional(node.expr2, symbols),
        }

    def _binary(self, node: nodes.BinExpr, symbols: Symbols) -> Tree:
        return {
            "kind": "binary",
            "line": node.lineno,
            "operator": _BINARY_OPERATORS[type(node)],
            "left": self.expression(node.left, symbols),
            "right": self.expression(node.right, symbols),
        }

    def _and(self, node: nodes.And, symbols: Symbols) -> Tree:
        return self._logical("and", node, symbols)

    def _or(self, node: nodes.Or, symbols: Symbols) -> Tree:
        return self._logical("or", node, symbols)

    def _logical(self, kind: str, node: nodes.BinExpr, symbols: Symbols) -> Tree:
        left, right = self.expression(node.left, symbols), self.expression(node.right, symbols)
        return {"kind": kind, "left": left, "right": right}

    def _concat(self, node: nodes.Concat, symbols: Symbols) -> Tree:
        return {"kind": "concat", "items": self.expressions(node.nodes, symbols)}

    def _compare(self, node: nodes.Compare, symbols: Symbols) -> Tree:
        operands = [
            {"operator": operand.op, "node": self.expression(operand.expr, symbols)}
            for operand in node.ops
        ]
        return {
            "kind": "compare",
            "node": self.expression(node.expr, symbols),
            "operands": operands,
        }

    def _getattr(self, node: nodes.Getattr, symbols: Symbols) -> Tree:
        return {"kind": "getattr", "node": self.expression(node.node, symbols), "name": node.attr}

    def _getitem(self, node: nodes.Getitem, symbols: Symbols) -> Tree:
        target = self.expression(node.node, symbols)
        if isinstance(node.arg, nodes.Slice):
            return {
                "kind": "slice",
                "node": target,
                "start": self.optional(node.arg.start, symbols),
                "stop": self.optional(node.arg.stop, symbols),
                "step": self.optional(node.arg.step, symbols),
            }
        return {"kind": "getitem", "node": target, "index": self.expression(node.arg, symbols)}

    # -- Calls

    def arguments(self, node: nodes.Call | nodes.Filter | nodes.Test, symbols: Symbols) -> Tree:
        keywords = [
            {"name": keyword.key, "value": self.expression(keyword.value, symbols)}
            for keyword in node.kwargs
        ]
        return {
            "args": self.expressions(node.args, symbols),
            "kwargs": keywords,
            "dyn_args": self.optional(node.dyn_args, symbols),
            "dyn_kwargs": self.optional(node.dyn_kwargs, symbols),
        }

    def _call(self, node: nodes.Call, symbols: Symbols) -> Tree:
        if isinstance(node.node, nodes.Getattr) and node.node.attr in names.REFUSED_METHODS:
            self.fail(f"the method {node.node.attr!r}", node)
        callee = self.expression(node.node, symbols)
        return {"kind": "call", "node": callee, **self.arguments(node, symbols)}

    def _filter(self, node: nodes.Filter, symbols: Symbols) -> Tree:
        self._check_filter(node.name, node)
        self._check_named_argument(node)
        return {
            "kind": "filter",
            "name": node.name,
            "node": self.optional(node.node, symbols),
            **self.arguments(node, symbols),
        }

    def _test(self, node: nodes.Test, symbols: Symbols) -> Tree:
        self._check_test(node.name, node)
        return {
            "kind": "test",
            "name": node.name,
            "node": self.expression(node.node, symbols),
            **self.arguments(node, symbols),
        }

    def _check_filter(self, name: str, node: nodes.Node) -> None:
        if name not in names.FILTERS:
            self.fail(f"the filter {name!r}", node)

    def _check_test(self, name: str, node: nodes.Node) -> None:
        if name not in names.TESTS:
            self.fail(f"the test {name!r}", node)

    def _check_named_argument(self, node: nodes.Filter) -> None:
        """map("name") and select("name") are checked here if the name is written out."""
        for table, check in (
            (names.FILTERS_NAMING_FILTERS, self._check_filter),
            (names.FILTERS_NAMING_TESTS, self._check_test),
        ):
            position = table.get(node.name)
            if position is None or len(node.args) <= position:
                continue
            argument = node.args[position]
            if isinstance(argument, nodes.Const) and isinstance(argument.value, str):
                check(argument.value, node)
