"""Bundles to serve, and servers over them, once a session."""

import sys
from pathlib import Path

import pytest
import successor_model
import tiny_models

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from server_process import ServerProcess  # noqa: E402

CHAT_TEMPLATE = (
    "{% for m in messages %}<s>{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if tools %}{{ tools | tojson }}{% endif %}"
    "{% if add_generation_prompt %}<s>assistant:{% endif %}"
)


@pytest.fixture(scope="session")
def bundles(tmp_path_factory):
    """Makes bundles of successor and fixed-logits models."""
    return successor_model.BundleMaker(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="session")
def chat_bundle(tmp_path_factory):
    """A random model of two layers, context 256, with a chat template."""
    folder = tmp_path_factory.mktemp("chat")
    checkpoint = tiny_models.make_checkpoint("tied", folder)
    (checkpoint / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    tiny_models.export(checkpoint, folder / "bundle", "--dtype", "float32")
    return folder / "bundle"


@pytest.fixture(scope="session")
def serve(pinfer):
    """serve(bundle, *flags) starts a server."""
    return lambda bundle, *flags, **options: ServerProcess(pinfer, bundle, *flags, **options)


@pytest.fixture(scope="session")
def server(serve, chat_bundle):
    with serve(chat_bundle) as started:
        yield started
