"""Compiles chat templates to the tree that the engine evaluates (chat_template.json).

Jinja2's own parser and its own symbol analysis decide what a template means: every variable becomes
a slot of an activation record, as in the Python code that Jinja2 would generate. The engine only
evaluates nodes. Format: docs/bundle_format.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jinja2

from pinfer.export.errors import ExportError
from pinfer.export.template_bounded import bounded_reference
from pinfer.export.template_environment import make_environment
from pinfer.export.template_expressions import MAX_TREE_DEPTH, tree_depth
from pinfer.export.template_statements import StatementCompiler

FORMAT_VERSION = 1
DEFAULT_NAME = "default"


def compile_chat_template(
    templates: str | Sequence[Mapping[str, str]] | Mapping[str, str],
    *,
    special_tokens: Mapping[str, str],
) -> dict[str, Any]:
    """The content of chat_template.json, ready for `json.dumps`.

    `templates` is one source text, or what a tokenizer_config has for several (named_templates).
    Raises ExportError that names the construct, the template and the line if the engine's evaluator
    cannot run one of them.
    """
    named = named_templates(templates)
    for token, text in special_tokens.items():
        if not isinstance(text, str):
            raise ExportError(f"chat template: {token}: expected text, found {text!r}")
    roots = {name: compile_source(source, name) for name, source in named}
    reference = bounded_reference()
    return {
        "format_version": FORMAT_VERSION,
        "special_tokens": dict(special_tokens),
        "templates": [
            {
                "name": name,
                "source": source,
                "content_parts": reference.content_parts(name, source, special_tokens),
                "root": roots[name],
            }
            for name, source in named
        ],
    }


def compile_source(source: str, name: str = DEFAULT_NAME) -> dict[str, Any]:
    """The root function of one template.

    Nothing of the template is run, not even on constants: it may be hostile.
    """
    where = f"chat template {name!r}"
    try:
        source.encode()
    except UnicodeEncodeError as error:
        raise ExportError(f"{where}: the source is not valid Unicode: {error}") from error
    environment = make_environment()
    try:
        root = StatementCompiler(where).compile_root(environment.parse(source))
    except jinja2.TemplateSyntaxError as error:
        raise ExportError(f"{where}, line {error.lineno}: {error.message}") from error
    except RecursionError as error:
        raise ExportError(f"{where}: nested too deeply for Jinja2") from error
    depth = tree_depth(root)
    if depth > MAX_TREE_DEPTH:
        raise ExportError(
            f"{where}: nested {depth} levels deep, the engine evaluates {MAX_TREE_DEPTH}"
        )
    return root


def named_templates(templates: Any, where: str = "chat_template") -> list[tuple[str, str]]:
    """(name, source) of each template: of one text, of a list of `{"name", "template"}`, or of an
    object of texts by name. ExportError that begins with `where` for anything else."""
    if isinstance(templates, str):
        return [(DEFAULT_NAME, templates)]
    if isinstance(templates, Mapping):
        entries = [(f"{where}.{name}", name, source) for name, source in templates.items()]
    elif isinstance(templates, list | tuple):
        entries = [
            (f"{where}[{index}]", *_name_and_source(entry, f"{where}[{index}]"))
            for index, entry in enumerate(templates)
        ]
    else:
        raise ExportError(
            f"{where}: expected text, a list of named templates or an object of them,"
            f" found {templates!r}"
        )
    named: dict[str, str] = {}
    for place, name, source in entries:
        if not isinstance(name, str) or not isinstance(source, str):
            raise ExportError(f"{place}: expected a template's text, found {source!r}")
        if name in named:
            raise ExportError(f"{place}: the name {name!r} occurs twice")
        named[name] = source
    if not named:
        raise ExportError(f"{where}: the list is empty")
    return list(named.items())


def _name_and_source(entry: Any, where: str) -> tuple[str, str]:
    fields = entry if isinstance(entry, Mapping) else {}
    name, source = fields.get("name"), fields.get("template")
    if not isinstance(name, str) or not isinstance(source, str):
        found = sorted(fields) if fields else entry
        raise ExportError(
            f"{where}: expected an object with text fields 'name' and 'template', found {found}"
        )
    return name, source
