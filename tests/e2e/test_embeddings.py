"""Embedding models: the numbers are those of sentence-transformers, whatever runs beside an input
and however it is cut into steps."""

import json
import math
import random
import subprocess

import embedding_models
import family_models
import gguf_checkpoints
import numpy as np
import pytest
import tiny_models
from json_lines import json_lines

import pinfer as binding
from pinfer.runtime.bundle.manifest import read_manifest
from pinfer.runtime.core.engine_config import EngineConfig
from pinfer.runtime.engine.engine import Engine as ReferenceEngine

TOLERANCE = 1e-5
TEXTS = ["a", "", "hello", "  white space  \n", "héllo wörld", "x" * 15, "y" * 16, "z" * 90]
PROMPT = embedding_models.PROMPTS["query"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("embedding")


@pytest.fixture(scope="module", params=sorted(embedding_models.MODELS))
def model(request, folder):
    """(name, reference, float32 bundle) of each model."""
    return request.param, *embedding_models.make_bundle(request.param, folder)


@pytest.fixture(scope="module")
def last(folder):
    return embedding_models.make_bundle("last", folder)


@pytest.fixture(scope="module")
def mean(folder):
    return embedding_models.make_bundle("mean", folder)


def open_engine(bundle, **options):
    return binding.Engine(bundle, threads=2, **options)


def inputs(count, longest=90, seed=0):
    generator = random.Random(seed)
    return [
        [generator.randrange(3, 259) for _ in range(generator.randint(1, longest))]
        for _ in range(count)
    ]


def run(pinfer, *arguments, lines=()):
    text = "\n".join(json.dumps(line) for line in lines)
    return subprocess.run(
        [pinfer, *map(str, arguments)], input=text, capture_output=True, text=True
    )


def embed_lines(pinfer, bundle, lines, *flags):
    result = run(pinfer, "embed", bundle, *flags, lines=lines)
    assert result.returncode == 0, result.stderr
    answers = json_lines(result.stdout)
    assert len(answers) == len(lines)
    return answers


def assert_close(found, expected):
    assert np.abs(np.array(found) - expected).max() <= TOLERANCE


def test_numbers_are_those_of_sentence_transformers(model, pinfer):
    _, reference, bundle = model
    answers = embed_lines(pinfer, bundle, [{"input": text} for text in TEXTS])
    for text, answer in zip(TEXTS, answers, strict=True):
        assert answer["num_prompt_tokens"] == len(reference.tokenize(text))
        assert_close(answer["embedding"], reference.embed(text))


def test_lists_ids_prompts_and_dimensions(last, pinfer):
    reference, bundle = last
    ids = inputs(1)[0]
    lines = [
        {"input": TEXTS},
        {"input": ids},
        {"input": " hello ", "prompt_name": "query"},
        {"input": "hello", "prompt_name": "document"},
        {"input": "hello", "prompt_name": ""},
        {"input": ids, "dimensions": 20},
    ]
    many, of_ids, query, document, bare, short = embed_lines(pinfer, bundle, lines)
    for text, found in zip(TEXTS, many["embeddings"], strict=True):
        assert_close(found, reference.embed(text))
    assert many["num_prompt_tokens"] == sum(len(reference.tokenize(text)) for text in TEXTS)
    assert_close(of_ids["embedding"], reference.embed_ids(ids))
    assert_close(query["embedding"], reference.embed(" hello ", PROMPT))
    assert document == bare
    assert_close(document["embedding"], reference.embed("hello"))
    assert len(short["embedding"]) == 20
    assert_close(short["embedding"], reference.embed_ids(ids, dimensions=20))
    flags = ("--prompt-name", "query", "--dimensions", "20")
    one = run(pinfer, "embed", bundle, "-p", "hello", *flags)
    assert one.returncode == 0, one.stderr
    expected = reference.embed_ids(reference.tokenize("hello", PROMPT), dimensions=20)
    assert_close(json.loads(one.stdout)["embedding"], expected)


def test_bad_lines_are_answered_in_their_place(last, pinfer):
    _, bundle = last
    lines = [
        {"input": "x" * 256},
        {"input": []},
        {"input": [5, 100_000]},
        {"input": ["a", 5]},
        {"input": "a", "dimensions": 65},
        {"input": "a", "prompt_name": "nothing"},
        {"input": "a", "temperature": 1},
        {"text": "a"},
        {"input": "x" * 255},
    ]
    answers = embed_lines(pinfer, bundle, lines)
    errors = [
        "context_length_exceeded: the input has 257 tokens, the context holds 256",
        "input: expected",
        "100000",
        "strings",
        "dimensions: expected 1 to 64",
        "no prompt nothing; it has document, query",
        "unknown field temperature",
        "unknown field text",
    ]
    for answer, part in zip(answers, errors, strict=False):
        assert part in answer["error"], answer
    assert len(answers[-1]["embedding"]) == 64  # as long as the context


def test_other_commands_say_what_to_use(last, pinfer):
    _, bundle = last
    for arguments in (["run", bundle, "-p", "x"], ["chat", bundle], ["batch", bundle],
                      ["score", bundle], ["bench", bundle]):  # fmt: skip
        result = run(pinfer, *arguments)
        assert result.returncode == 1
        assert "pinfer: error: " in result.stderr and "pinfer embed" in result.stderr, result.stderr
    shown = run(pinfer, "inspect", bundle).stdout
    assert "embed (last token, normalized)" in shown
    assert run(pinfer, "verify", bundle).returncode == 0


def test_a_model_that_generates_does_not_embed(tied_bundle, pinfer):
    result = run(pinfer, "embed", tied_bundle, "-p", "x")
    assert result.returncode == 1 and "task generate" in result.stderr
    with open_engine(tied_bundle) as engine:
        assert engine.info["task"] == "generate"
        for call in (lambda: engine.embed([[5, 6]]), lambda: engine.embed(["a"])):
            with pytest.raises(binding.Error, match="does not embed"):
                call()


def test_the_same_bits_in_any_company(model):
    """Alone; many at once; in chunks; with preemptions; with a warm prefix cache."""
    name, _, bundle = model
    cases = inputs(24, seed=1)
    cases += [[*case, 7] for case in cases[:8]]  # share prefixes
    with open_engine(bundle, enable_prefix_caching=False) as engine:
        alone = [engine.embed([case])[0] for case in cases]
    with open_engine(bundle) as engine:
        assert engine.embed(cases) == alone
        assert engine.embed(cases) == alone
        hits = engine.metrics()["prefix_cache_hits"]
        assert hits == 0 if "mean" in embedding_models.MODELS[name] else hits > 0
    small = {"max_num_batched_tokens": 24, "max_num_seqs": 8, "num_blocks": 18}
    small |= {"long_prefill_token_threshold": 5, "max_model_len": 128}
    with open_engine(bundle, **small) as engine:
        assert engine.embed(cases) == alone
        # Blocks that have left a window are free again.
        assert engine.metrics()["num_preemptions"] > 0 or name == "window"
        assert engine.metrics()["generation_tokens"] == 0


def test_the_reference_engine_agrees(model):
    _, _, bundle = model
    cases = inputs(6, seed=2)
    config = EngineConfig(
        max_model_len=128, num_blocks=18, max_num_batched_tokens=24, max_num_seqs=8
    )
    expected = ReferenceEngine(bundle, config).embed(cases, dimensions=30)
    with open_engine(bundle) as engine:
        for found, wanted in zip(engine.embed(cases, dimensions=30), expected, strict=True):
            assert_close(found, wanted)


def test_abort_leaves_the_others(mean):
    reference, bundle = mean
    cases = inputs(30, seed=3)
    with open_engine(bundle, max_num_batched_tokens=24, max_num_seqs=8) as engine:
        requests = [engine.submit_embedding(case) for case in cases]
        for request in requests[::2]:
            request.abort()
        for case, request, aborted in zip(cases, requests, [True, False] * 15, strict=True):
            output = request.wait()
            if output.finish_reason == "stop":
                assert_close(output.embedding, reference.embed_ids(case))
            else:
                assert aborted and output.finish_reason == "abort" and not output.embedding
        assert engine.drain(timeout=10)
        assert engine.metrics()["num_requests_running"] == 0


def test_what_is_no_generation(last):
    _, bundle = last
    with open_engine(bundle) as engine:
        info = engine.info
        assert info["task"] == "embed" and info["pooling"]["mode"] == "last"
        assert info["pooling"]["prompts"] == embedding_models.PROMPTS
        with pytest.raises(binding.Error, match="generates no text") as refused:
            engine.generate([5, 6])
        assert refused.value.status == "failed_precondition"
        with pytest.raises(binding.Error, match="no tokens"):
            engine.embed([[]])
        found = engine.embed(["a"])[0]
        assert math.isclose(sum(value * value for value in found), 1, abs_tol=1e-6)


def test_default_prompt_and_longest_input(folder, pinfer):
    checkpoint = embedding_models.make_checkpoint("last", folder)
    config = checkpoint / "config_sentence_transformers.json"
    before = config.read_text()
    settings = checkpoint / "sentence_bert_config.json"
    bundle = folder / "default-prompt-bundle"
    try:
        settings.write_text(json.dumps({"max_seq_length": 64, "do_lower_case": False}))
        config.write_text(json.dumps({**json.loads(before), "default_prompt_name": "query"}))
        tiny_models.export(checkpoint, bundle, "--dtype", "float32")
    finally:
        config.write_text(before)
        settings.unlink()
    assert read_manifest(bundle)["model"]["max_model_len"] == 64
    reference = embedding_models.Reference("last", checkpoint)
    lines = [{"input": "hello"}, {"input": "hello", "prompt_name": ""}]
    prompted, bare = embed_lines(pinfer, bundle, lines)
    assert_close(prompted["embedding"], reference.embed("hello", PROMPT))
    assert_close(bare["embedding"], reference.embed("hello"))


def test_task_embed_of_a_model_that_generates(tied_checkpoint, folder, pinfer):
    """Last token, normalised; the head's weights are left out."""
    bundle = folder / "tied-embed"
    tiny_models.export(tied_checkpoint, bundle, "--dtype", "bfloat16", "--task", "embed")
    manifest = read_manifest(bundle)
    assert manifest["task"] == "embed" and "head" not in manifest
    assert manifest["pooling"] == {
        "mode": "last", "normalize": True, "prompts": {}, "default_prompt_name": None,
    }  # fmt: skip
    model = tiny_models.reference(tied_checkpoint).model
    reference = embedding_models.Reference("last", embedding_models.make_checkpoint("last", folder))
    reference._model = model
    (answer,) = embed_lines(pinfer, bundle, [{"input": list(range(3, 60))}])
    expected = reference.embed_ids(list(range(3, 60)))
    assert float(np.dot(answer["embedding"], expected)) > 0.999


@pytest.mark.parametrize(("pooling_type", "mode"), [(3, "last"), (1, "mean")])
def test_a_gguf_file_says_that_it_embeds(pooling_type, mode, folder, pinfer):
    """Its vectors are normalised, and those of the same numbers in a directory."""
    checkpoint = family_models.make_checkpoint("qwen3", "plain", folder / "sources")
    path = gguf_checkpoints.write_gguf(
        checkpoint, folder / f"{mode}.gguf", metadata={"pooling_type": pooling_type}
    )
    bundle = folder / f"{mode}-gguf-bundle"
    tiny_models.export(path, bundle, "--dtype", "float32")
    assert read_manifest(bundle)["pooling"] == {
        "mode": mode, "normalize": True, "prompts": {}, "default_prompt_name": None,
    }  # fmt: skip
    (answer,) = embed_lines(pinfer, bundle, [{"input": list(range(3, 60))}])
    reference, _ = embedding_models.make_bundle("last", folder)
    reference._mode = mode.replace("last", "lasttoken")
    assert_close(answer["embedding"], reference.embed_ids(list(range(3, 60))))
