"""The exporter's own reference equals transformers' apply_chat_template."""

from collections.abc import Callable

import pytest
import tokenizers
import transformers
from template_engine import SPECIAL_TOKENS, TEMPLATE_DATA

from pinfer.export.template_corpus import make_requests
from pinfer.export.template_environment import render_reference

pytestmark = pytest.mark.slow

# strftime_now reads the clock, which differs between the two calls.
CONSTRUCTS = sorted(
    path for path in (TEMPLATE_DATA / "constructs").glob("*.jinja") if path.stem != "strftime_now"
)


@pytest.fixture(scope="module")
def hugging_face():
    """A tokenizer that serves only for its chat templates."""
    vocabulary = {"<bos>": 0, "<eos>": 1}
    model = tokenizers.models.WordLevel(vocabulary, unk_token="<eos>")
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer(model), **SPECIAL_TOKENS
    )


def outcome(render: Callable[..., str], **arguments) -> str:
    try:
        return "text: " + render(**arguments)
    except Exception as error:  # templates raise whatever they like
        return "error: " + type(error).__name__


@pytest.mark.parametrize("path", CONSTRUCTS, ids=lambda path: path.stem)
def test_reference(path, hugging_face):
    source = path.read_bytes().decode()
    for request in make_requests(40, seed=5):
        options = {
            "tools": request.get("tools"),
            "documents": request.get("documents"),
            "add_generation_prompt": request.get("add_generation_prompt", False),
            "continue_final_message": request.get("continue_final_message", False),
        }
        kwargs = request["chat_template_kwargs"]
        expected = outcome(
            hugging_face.apply_chat_template,
            conversation=request["messages"],
            chat_template=source,
            tokenize=False,
            **options,
            **kwargs,
        )
        found = outcome(
            render_reference,
            source=source,
            messages=request["messages"],
            special_tokens=SPECIAL_TOKENS,
            chat_template_kwargs=kwargs,
            **options,
        )
        assert found == expected
