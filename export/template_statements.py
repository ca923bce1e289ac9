"""Statements of a chat template as nodes of the engine's tree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from jinja2 import nodes
from jinja2.compiler import find_undeclared
from jinja2.idtracking import (
    VAR_LOAD_ALIAS,
    VAR_LOAD_PARAMETER,
    VAR_LOAD_RESOLVE,
    VAR_LOAD_UNDEFINED,
    Symbols,
)

from pinfer.export.template_environment import GenerationExtension
from pinfer.export.template_expressions import ExpressionCompiler, FunctionScope, Tree

_SPECIAL_MACRO_NAMES = ("caller", "kwargs", "varargs")


class StatementCompiler(ExpressionCompiler):
    """Walks a template as Jinja2's code generator does, scope by scope."""

    def compile_root(self, template: nodes.Template) -> Tree:
        for special in ("self", "super"):
            if special in find_undeclared(template.body, (special,)):
                self.fail(f"the variable {special!r}", template)
        symbols = Symbols()
        symbols.analyze_node(template)
        with self._function(symbols.level) as function:
            enter = self._enter(symbols)
            body = self.statements(template.body, symbols)
        return {"slots": len(function.slots), "enter": enter, "body": body}

    @contextmanager
    def _function(self, level: int) -> Iterator[FunctionScope]:
        function = FunctionScope(level)
        self._functions.append(function)
        try:
            yield function
        finally:
            self._functions.pop()

    def _enter(self, symbols: Symbols) -> list[Tree]:
        """What happens to a scope's variables when it is entered."""
        loads: list[Tree] = []
        for identifier, (action, parameter) in symbols.loads.items():
            _, slot = self.locate(identifier)
            if action == VAR_LOAD_PARAMETER:
                loads.append({"load": "parameter", "slot": slot})
            elif action == VAR_LOAD_UNDEFINED:
                loads.append({"load": "undefined", "slot": slot})
            elif action == VAR_LOAD_RESOLVE:
                loads.append({"load": "resolve", "slot": slot, "name": parameter})
            elif action == VAR_LOAD_ALIAS:
                hops, source = self.locate(parameter)
                loads.append({"load": "alias", "slot": slot, "hops": hops, "source": source})
            else:
                raise AssertionError(f"unknown load {action}")
        return loads

    def statements(self, body: Iterable[nodes.Node], symbols: Symbols) -> list[Tree]:
        return [self.statement(node, symbols) for node in body]

    def statement(self, node: nodes.Node, symbols: Symbols) -> Tree:
        method = getattr(self, f"_{type(node).__name__.lower()}_statement", None)
        if method is None:
            self.fail(f"the statement {type(node).__name__.lower()!r}", node)
        tree = method(node, symbols)
        tree["line"] = node.lineno
        return tree

    def _output_statement(self, node: nodes.Output, symbols: Symbols) -> Tree:
        return {"kind": "output", "nodes": self.expressions(node.nodes, symbols)}

    def _if_statement(self, node: nodes.If, symbols: Symbols) -> Tree:
        branches = [
            {
                "test": self.expression(branch.test, symbols),
                "body": self.statements(branch.body, symbols),
            }
            for branch in (node, *node.elif_)
        ]
        return {"kind": "if", "branches": branches, "else": self.statements(node.else_, symbols)}

    def _break_statement(self, node: nodes.Break, symbols: Symbols) -> Tree:
        return self._flow("break", node)

    def _continue_statement(self, node: nodes.Continue, symbols: Symbols) -> Tree:
        return self._flow("continue", node)

    def _flow(self, kind: str, node: nodes.Node) -> Tree:
        if self._functions[-1].num_loops == 0:
            self.reject(f"{kind} stands outside a loop", node)
        return {"kind": kind}

    # -- Loops

    def _for_statement(self, node: nodes.For, symbols: Symbols) -> Tree:
        tree: Tree = {
            "kind": "for",
            "iter": self.expression(node.iter, symbols),
            "filter": None if node.test is None else self._loop_filter(node, symbols),
            "recursive": None,
        }
        if not node.recursive:
            tree.update(self._loop_body(node, symbols))
            return tree
        with self._function(symbols.level + 1) as function:
            tree.update(self._loop_body(node, symbols))
        tree["recursive"] = {"slots": len(function.slots)}
        return tree

    def _loop_body(self, node: nodes.For, symbols: Symbols) -> Tree:
        loop_symbols, else_symbols = Symbols(parent=symbols), Symbols(parent=symbols)
        loop = None
        if node.recursive or "loop" in find_undeclared(node.body, ("loop",)):
            _, loop = self.locate(loop_symbols.declare_parameter("loop"))
        loop_symbols.analyze_node(node, for_branch="body")
        if node.else_:
            else_symbols.analyze_node(node, for_branch="else")
        for name in node.find_all(nodes.Name):
            if name.ctx == "store" and name.name == "loop":
                self.reject("the special variable 'loop' is assigned in a loop", name)
        target = self.target(node.target, loop_symbols)
        enter = self._enter(loop_symbols)
        self._functions[-1].num_loops += 1
        body = self.statements(node.body, loop_symbols)
        self._functions[-1].num_loops -= 1
        return {
            "target": target,
            "loop": loop,
            "enter": enter,
            "body": body,
            "else_enter": self._enter(else_symbols),
            "else": self.statements(node.else_, else_symbols),
        }

    def _loop_filter(self, node: nodes.For, symbols: Symbols) -> Tree:
        test_symbols = Symbols(parent=symbols)
        test_symbols.analyze_node(node, for_branch="test")
        with self._function(test_symbols.level) as function:
            enter = self._enter(test_symbols)
            target = self.target(node.target, test_symbols)
            test = self.expression(node.test, test_symbols)
        return {"slots": len(function.slots), "enter": enter, "target": target, "test": test}

    # -- Assignments

    def target(self, node: nodes.Node, symbols: Symbols) -> Tree:
        if isinstance(node, nodes.Name):
            return {"kind": "name", **self.variable(node.name, symbols)}
        if isinstance(node, nodes.NSRef):
            return {
                "kind": "attribute",
                "attribute": node.attr,
                **self.variable(node.name, symbols),
            }
        if isinstance(node, nodes.Tuple):
            return {"kind": "tuple", "items": [self.target(item, symbols) for item in node.items]}
        self.fail(f"assignment to {type(node).__name__}", node)

    def _assign_statement(self, node: nodes.Assign, symbols: Symbols) -> Tree:
        return {
            "kind": "set",
            "target": self.target(node.target, symbols),
            "value": self.expression(node.node, symbols),
        }

    def _assignblock_statement(self, node: nodes.AssignBlock, symbols: Symbols) -> Tree:
        inner = Symbols(parent=symbols)
        inner.analyze_node(node)
        return {
            "kind": "set_block",
            "target": self.target(node.target, symbols),
            "enter": self._enter(inner),
            "body": self.statements(node.body, inner),
            "filter": self.optional(node.filter, inner),
        }

    def _with_statement(self, node: nodes.With, symbols: Symbols) -> Tree:
        inner = Symbols(parent=symbols)
        inner.analyze_node(node)
        assignments = [
            {"target": self.target(target, inner), "value": self.expression(value, symbols)}
            for target, value in zip(node.targets, node.values, strict=True)
        ]
        return {
            "kind": "with",
            "enter": self._enter(inner),
            "assignments": assignments,
            "body": self.statements(node.body, inner),
        }

    def _filterblock_statement(self, node: nodes.FilterBlock, symbols: Symbols) -> Tree:
        inner = Symbols(parent=symbols)
        inner.analyze_node(node)
        return {
            "kind": "filter_block",
            "enter": self._enter(inner),
            "body": self.statements(node.body, inner),
            "filter": self.expression(node.filter, inner),
        }

    # -- Macros

    def _macro_statement(self, node: nodes.Macro, symbols: Symbols) -> Tree:
        hops, slot = self.locate(symbols.ref(node.name))
        return {
            "kind": "macro",
            "hops": hops,
            "slot": slot,
            "macro": self._macro(node, node.name, symbols),
        }

    def _callblock_statement(self, node: nodes.CallBlock, symbols: Symbols) -> Tree:
        macro = self._macro(node, None, symbols)
        callee = node.call.node
        if isinstance(callee, nodes.ExtensionAttribute):
            if callee.identifier != GenerationExtension.identifier:
                self.fail(f"the extension {callee.identifier!r}", node)
            return {"kind": "generation", "macro": macro}
        return {"kind": "call_block", "macro": macro, "call": self.expression(node.call, symbols)}

    def _macro(
        self, node: nodes.Macro | nodes.CallBlock, name: str | None, symbols: Symbols
    ) -> Tree:
        inner = Symbols(parent=symbols)
        inner.analyze_node(node)
        parameters = [argument.name for argument in node.args]
        if len(set(parameters)) != len(parameters):
            self.reject("a macro has two parameters of one name", node)
        undeclared = find_undeclared(node.body, _SPECIAL_MACRO_NAMES)
        if "caller" in undeclared and "caller" in parameters[: -len(node.defaults) or None]:
            self.reject("the parameter 'caller' of a macro needs a default", node)
        with self._function(inner.level) as function:
            special: dict[str, Any] = {}
            for special_name in _SPECIAL_MACRO_NAMES:
                wanted = special_name in undeclared and special_name not in parameters
                identifier = inner.declare_parameter(special_name) if wanted else None
                special[special_name] = None if identifier is None else self.locate(identifier)[1]
            inner.analyze_node(node)
            enter = self._enter(inner)
            first_default = len(parameters) - len(node.defaults)
            arguments = [
                {
                    "name": parameter,
                    "slot": self.locate(inner.ref(parameter))[1],
                    "default": None
                    if index < first_default
                    else self.expression(node.defaults[index - first_default], inner),
                }
                for index, parameter in enumerate(parameters)
            ]
            body = self.statements(node.body, inner)
        return {
            "name": name,
            "slots": len(function.slots),
            "enter": enter,
            "parameters": arguments,
            **special,
            "body": body,
        }
