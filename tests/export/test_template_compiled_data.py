"""Keeps the compiled templates that the C++ tests read in step with the compiler.

After a change of the format, run this test once with PINFER_UPDATE_DATA=1.
"""

import json
import os

from template_engine import TEMPLATE_DATA

from pinfer.export.template_tree import FORMAT_VERSION, compile_source

COMPILED = TEMPLATE_DATA / "hostile_compiled.json"


def test_compiled_hostile_templates_are_current():
    cases = json.loads((TEMPLATE_DATA / "hostile.json").read_text())
    # Not compile_chat_template: it would render them in Jinja2, which has no bounds.
    compiled = {
        "format_version": FORMAT_VERSION,
        "special_tokens": {"bos_token": "<bos>"},
        "templates": [
            {
                "name": case["name"],
                "source": "",
                "content_parts": {"user": False},
                "root": compile_source(case["template"], case["name"]),
            }
            for case in cases
        ],
    }
    text = json.dumps(compiled, ensure_ascii=False, separators=(",", ":")) + "\n"
    if os.environ.get("PINFER_UPDATE_DATA"):
        COMPILED.write_text(text)
    assert COMPILED.read_text() == text
