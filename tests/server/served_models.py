"""Bundles that several files serve; each is exported once a session."""

from pathlib import Path

from successor_model import BundleMaker, byte_level, make_fixed_logits

from pinfer.export.config import ExportConfig
from pinfer.export.exporter import export

CHAT_TEMPLATE = (
    "{% for m in messages %}<s>{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant:{% endif %}"
)
A, B, C = 100, 101, 102  # tokens of one visible character each
LONG_CONTEXT = 65536
# Thousands of tokens a second: this many run for longer than any test waits.
ENDLESS = {"prompt": "a", "max_tokens": 60000, "ignore_eos": True, "logit_bias": {str(A): 100}}


def exported(bundles: BundleMaker, name: str, make) -> Path:
    """make(bundles, name), unless it has been made already."""
    found = bundles.folder / f"{name}-bundle"
    return found if found.exists() else make(bundles, name)


def long_model(bundles: BundleMaker) -> Path:
    """Constant logits (A 5, B 4, C 3) and a context in which answers take long."""

    def make(maker: BundleMaker, name: str) -> Path:
        checkpoint = make_fixed_logits(
            maker.folder / name,
            byte_level(),
            {A: 5.0, B: 4.0, C: 3.0},
            chat_template=CHAT_TEMPLATE,
            config={"max_position_embeddings": LONG_CONTEXT},
        )
        output = checkpoint.with_name(f"{name}-bundle")
        # A shape of its own: what is checked once stays in the cache.
        export(ExportConfig(model=checkpoint, output=output, verify=True), lambda *_: None)
        return output

    return exported(bundles, "long", make)


def fixed_model(bundles: BundleMaker) -> Path:
    """Constant logits (A 5, B 4, C 3, D -1), context 256."""
    return exported(
        bundles,
        "fixed",
        lambda maker, name: maker.fixed_logits(
            name, byte_level(), {A: 5.0, B: 4.0, C: 3.0, 103: -1.0}, chat_template=CHAT_TEMPLATE
        ),
    )


def broken_model(bundles: BundleMaker) -> Path:
    """Logits that overflow to infinity."""
    return exported(
        bundles, "broken", lambda maker, name: maker.fixed_logits(name, byte_level(), {A: 5e38})
    )
