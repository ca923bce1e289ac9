"""The numbers of sentence-transformers itself, from the directories that it reads."""

import embedding_models
import numpy as np
import pytest

import pinfer

pytestmark = pytest.mark.slow
TOLERANCE = 1e-5
TEXTS = ["a", "hello", "  white space \n", "héllo wörld", "x" * 15, "z" * 90, "tab\tbetween"]
# The tokenizers of the others' classes are not built from tokenizer.json alone by transformers.
MODELS = ("last", "mean", "window")


@pytest.mark.parametrize("name", MODELS)
def test_vectors(name, tmp_path):
    package = pytest.importorskip(
        "sentence_transformers", reason="needs sentence-transformers (pyproject's extra slow)"
    )
    _, bundle = embedding_models.make_bundle(name, tmp_path)
    theirs = package.SentenceTransformer(str(tmp_path / name), device="cpu")
    with pinfer.Engine(bundle, threads=2) as engine:
        for prompt in ("", *embedding_models.PROMPTS):
            expected = theirs.encode(TEXTS, prompt_name=prompt or None)
            found = np.array(engine.embed(TEXTS, prompt_name=prompt))
            assert np.abs(found - expected).max() < TOLERANCE, prompt
