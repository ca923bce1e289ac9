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
from pinfer.export.template_content import detect_content_parts
from pinfer.export.template_environment import make_environment
from pinfer.export.template_expressions import MAX_TREE_DEPTH, tree_depth
from pinfer.export.template_statements import StatementCompiler

FORMAT_VERSION = 1
DEFAULT_NAME = "default"


def compile_chat_template(
    templates: str | Sequence[Mapping[str, str]], *, special_tokens: Mapping[str, str]
) -> dict[str, Any]:
    """The content of chat_template.json, ready for `json.dumps`.

    `templates` is one source text, or the list of `{"name", "template"}` of a tokenizer_config.
    Raises ExportError that names the construct, the template and the line if the engine's evaluator
    cannot run one of them.
    """
    named = _named_templates(templates)
    for token, text in special_tokens.items():
        if not isinstance(text, str):
            raise ExportError(f"chat template: {token}: expected text, found {text!r}")
    return {
        "format_version": FORMAT_VERSION,
        "special_tokens": dict(special_tokens),
        "templates": [
            {
                "name": name,
                "source": source,
                "content_parts": detect_content_parts(source, special_tokens),
                "root": compile_source(source, name),
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


def _named_templates(templates: str | Sequence[Mapping[str, str]]) -> list[tuple[str, str]]:
    if isinstance(templates, str):
        return [(DEFAULT_NAME, templates)]
    named: dict[str, str] = {}
    for index, entry in enumerate(templates):
        name, source = entry.get("name"), entry.get("template")
        if not isinstance(name, str) or not isinstance(source, str):
            raise ExportError(
                f"chat_template[{index}]: expected text fields 'name' and 'template',"
                f" found {sorted(entry)}"
            )
        if name in named:
            raise ExportError(f"chat_template[{index}]: the name {name!r} occurs twice")
        named[name] = source
    if not named:
        raise ExportError("chat_template: the list is empty")
    return list(named.items())
