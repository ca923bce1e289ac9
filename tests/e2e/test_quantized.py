"""Bundles with int8 and int4 weights, and with a cache of another dtype than the weights."""

import dataclasses
import hashlib
import json
import random
import shutil
import subprocess
from dataclasses import dataclass

import numpy as np
import pytest
import tiny_models
import torch

import pinfer as binding
from pinfer.runtime.core.engine_config import EngineConfig
from pinfer.runtime.core.sampling_params import SamplingParams
from pinfer.runtime.engine.engine import Engine

FIRST_TOKEN, END_TOKEN = 3, 259  # ids that have a text
# Compiled loops round in another order than eager ones; where a row is rounded to 8 bits, a last
# bit of float32 may become one of 255 steps. This is several times what comes of it.
LOGPROB_TOLERANCE = 0.1
MAX_DIFFERING = 2  # requests of 12 in which such a bit may tip a token


@dataclass(frozen=True)
class Case:
    """One export and what its manifest must say."""

    variant: str
    options: str
    weights: tuple[str, int]  # name and group size
    embedding: tuple[str, int]
    cache: str
    correlation: float  # of log-probabilities with those of the float32 model, at least
    is_slow: bool = False


CASES = {
    "int8": Case("tied", "--quantize int8", ("int8", 0), ("int8", 0), "float32", 0.99),
    "int4_32": Case(
        "gqa3_untied_head_dim",
        "--quantize int4 --group-size 32 --quantize-embedding int4 --kv-dtype int8",
        ("int4", 32), ("int4", 32), "int8", 0.85,
    ),
    "float32_cache_int8": Case(
        "tied",
        "--dtype float32 --kv-dtype int8",
        ("float32", 0), ("float32", 0), "int8", 0.999, is_slow=True,
    ),
    "int4_128": Case(
        "gqa8_biases_odd",
        "--quantize int4 --group-size 128 --quantize-embedding none",
        ("int4", 128), ("float32", 0), "float32", 0.85, is_slow=True,
    ),
    "bfloat16_cache_float32": Case(
        "odd_hidden_llama3_rope",
        "--dtype bfloat16 --kv-dtype float32",
        ("bfloat16", 0), ("bfloat16", 0), "float32", 0.999, is_slow=True,
    ),
    "float32_cache_bfloat16": Case(
        "tied",
        "--dtype float32 --kv-dtype bfloat16",
        ("float32", 0), ("float32", 0), "bfloat16", 0.999, is_slow=True,
    ),
    "int8_untied": Case(
        "gqa3_untied_head_dim",
        "--quantize int8 --quantize-embedding none --kv-dtype bfloat16",
        ("int8", 0), ("float32", 0), "bfloat16", 0.99, is_slow=True,
    ),
    "int8_odd": Case(
        "gqa8_biases_odd",
        "--quantize int8 --dtype bfloat16",
        ("int8", 0), ("int8", 0), "bfloat16", 0.99, is_slow=True,
    ),
    "int4_64_tied": Case(
        "tied",
        "--quantize int4 --group-size 64 --dtype bfloat16 --kv-dtype float32",
        ("int4", 64), ("int8", 0), "float32", 0.85, is_slow=True,
    ),
    "int4_128_embedding": Case(
        "odd_hidden_llama3_rope",
        "--quantize int4 --group-size 128 --quantize-embedding int4",
        ("int4", 128), ("int4", 128), "float32", 0.85, is_slow=True,
    ),
}  # fmt: skip


def case_params(names):
    return [
        pytest.param(name, marks=[pytest.mark.slow] if CASES[name].is_slow else [])
        for name in names
    ]


def bundle_of(name, folder):
    """The case's bundle, exported once."""
    bundle = folder / f"quantized-{name}"
    if not bundle.exists():
        checkpoint = tiny_models.make_checkpoint(CASES[name].variant, folder)
        tiny_models.export(checkpoint, bundle, *CASES[name].options.split())
    return bundle


@pytest.fixture(scope="module", params=case_params(CASES))
def case(request):
    return request.param


@pytest.fixture(scope="module")
def bundle(case, tiny_folder):
    return bundle_of(case, tiny_folder)


@pytest.fixture(scope="module")
def int8_bundle(tiny_folder):
    return bundle_of("int8", tiny_folder)


def prompts(lengths, seed):
    generator = random.Random(seed)
    return [[generator.randrange(FIRST_TOKEN, END_TOKEN) for _ in range(n)] for n in lengths]


def read_manifest(bundle):
    return json.loads((bundle / "manifest.json").read_text())


# ---- what is written ----


def test_manifest_says_what_was_asked_for(case, bundle):
    wanted, manifest = CASES[case], read_manifest(bundle)

    def entry(format):
        return {"name": format[0], "group_size": format[1]}

    assert manifest["model"]["weight_format"] == entry(wanted.weights)
    assert manifest["embedding"]["format"] == entry(wanted.embedding)
    assert manifest["kv_cache"]["dtype"] == wanted.cache
    inputs = {i["name"]: i["dtype"] for i in manifest["artifacts"]["decoder_layer"]["inputs"]}
    assert inputs["k_cache"] == inputs["v_cache"] == wanted.cache
    is_tied = tiny_models.VARIANTS[wanted.variant].get("tie_word_embeddings", True)
    head, embedding = manifest["head"]["weights"]["linear_weight"], manifest["embedding"]["weight"]
    assert (head == embedding) == is_tied


def test_artifacts_take_the_weights_as_they_are_stored(case, bundle):
    """Every packed weight of a layer in one format, that of the head as the embedding's."""
    stored = {"int8": "int8", "int4": "uint8"}
    artifacts = read_manifest(bundle)["artifacts"]
    for part, (format, _) in (
        ("decoder_layer", CASES[case].weights),
        ("head", CASES[case].embedding),
    ):
        dtypes = {c["dtype"] for c in artifacts[part]["constants"] if len(c["shape"]) > 1}
        assert dtypes == {stored.get(format, format)}, part


def files(bundle):
    return {
        str(path.relative_to(bundle)): path.read_bytes()
        for path in bundle.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize(
    "arguments", [[], pytest.param(["--no-cache"], marks=pytest.mark.slow)], ids=" ".join
)
@pytest.mark.parametrize(
    "name",
    ["int8", *(pytest.param(n, marks=pytest.mark.slow) for n in ("int4_32", "int4_128"))],
)
def test_two_exports_are_identical(tiny_folder, tmp_path, name, arguments):
    first = bundle_of(name, tiny_folder)
    checkpoint = tiny_models.make_checkpoint(CASES[name].variant, tiny_folder)
    options = CASES[name].options.split()
    tiny_models.export(checkpoint, tmp_path / "again", *options, *arguments)
    assert files(tmp_path / "again") == files(first)


# ---- what is computed ----


def reference_requests():
    generator = random.Random(1)
    for i in range(12):
        greedy = i % 2 == 0
        prompt = [generator.randrange(3, 259) for _ in range(generator.randint(1, 90))]
        params = {
            "max_tokens": generator.randint(1, 40),
            "temperature": 0.0 if greedy else 1.2,
            "top_k": 0 if i % 3 else 50,
            "ignore_eos": i % 3 == 0,
            "logprobs": 2,
        }
        yield prompt, params if greedy else {**params, "seed": i}


def check_excused(wanted, answer, step, is_greedy):
    """The first token that differs: both engines have found nearly the same probabilities."""
    ours, theirs = dict(answer.logprobs[step].top), dict(wanted.logprobs[step].top)
    shared = set(ours) & set(theirs)
    assert shared and all(abs(ours[i] - theirs[i]) < LOGPROB_TOLERANCE for i in shared)
    if is_greedy:
        best, second = sorted(theirs.values(), reverse=True)
        assert best - second < LOGPROB_TOLERANCE


def test_reference_engine_gives_the_same_ids(bundle):
    """Greedy and with seeds, while prompts are chunked and requests preempted."""
    cases = list(reference_requests())
    limits = {"max_model_len": 160, "num_blocks": 24, "max_num_batched_tokens": 48,
              "max_num_seqs": 6}  # fmt: skip
    no_token = range(END_TOKEN, read_manifest(bundle)["model"]["vocab_size"])
    reference = Engine(bundle, EngineConfig(**limits), no_token)
    expected = reference.generate([p for p, _ in cases], [SamplingParams(**o) for _, o in cases])
    with binding.Engine(bundle, **limits) as engine:
        running = [engine.submit(prompt, **options) for prompt, options in cases]
        found = [generation.wait() for generation in running]
    assert len({tuple(answer.token_ids) for answer in found}) == len(cases)
    num_differing = 0
    for (_, options), wanted, answer in zip(cases, expected, found, strict=True):
        for step, (theirs, ours) in enumerate(
            zip(wanted.token_ids, answer.token_ids, strict=False)
        ):
            if theirs != ours:
                check_excused(wanted, answer, step, options["temperature"] == 0)
                num_differing += 1
                break
            difference = answer.logprobs[step].logprob - wanted.logprobs[step].chosen
            assert abs(difference) < LOGPROB_TOLERANCE
        else:
            assert answer.token_ids == wanted.token_ids
            assert answer.finish_reason == wanted.finish_reason
    assert num_differing <= MAX_DIFFERING


def mixed_requests():
    """16 requests of many lengths, greedy and with seeds."""
    lengths = [1, 2, 7, 15, 16, 17, 31, 32, 33, 48, 50, 64, 77, 90, 100, 130]
    for i, prompt in enumerate(prompts(lengths, seed=2)):
        options = {"max_tokens": 8 + i, "logprobs": 3, "ignore_eos": i % 3 == 0}
        if i % 2:
            yield prompt, {**options, "temperature": 0.0}
        else:
            yield prompt, {**options, "temperature": 1.2, "seed": i, "top_p": 0.95}


def results(output):
    """All that a request got, but for how much of its prompt was found in the cache."""
    return dataclasses.replace(output, num_cached_tokens=0)


@pytest.fixture(scope="module")
def alone(bundle):
    """One after another, in an engine that keeps nothing between them."""
    with binding.Engine(bundle, threads=1, num_blocks=100, enable_prefix_caching=False) as engine:
        return [results(engine.generate(p, **options)) for p, options in mixed_requests()]


ENGINES = {
    "one_thread": {"threads": 1},
    "two_threads": {"threads": 2},
    "three_threads": {"threads": 3},
    "chunks": {"threads": 2, "max_num_batched_tokens": 16, "max_num_seqs": 16},
    "torch": {"threads": 2, "provider": "torch"},
}


@pytest.mark.parametrize("name", ENGINES)
def test_together_as_alone(bundle, alone, name):
    """Rows are rounded each on its own: ids and log-probabilities are the same, bit for bit."""
    with binding.Engine(bundle, num_blocks=160, **ENGINES[name]) as engine:
        assert engine.info["provider"] == ENGINES[name].get("provider", "native")
        running = [engine.submit(prompt, **options) for prompt, options in mixed_requests()]
        found = [results(generation.wait()) for generation in running]
    assert len({tuple(output.token_ids) for output in found}) == len(found)
    for i, (output, expected) in enumerate(zip(found, alone, strict=True)):
        assert output == expected, i


def test_log_probabilities_are_close_to_float32(case, bundle, tiny_folder):
    """Of every token of four prompts. Scales of other rows or groups would leave no likeness."""
    variant = CASES[case].variant
    model = tiny_models.reference(tiny_models.make_checkpoint(variant, tiny_folder))
    expected, found = [], []
    with binding.Engine(bundle, threads=2, num_blocks=100) as engine:
        for prompt in prompts([100] * 4, seed=3):
            with torch.no_grad():
                logits = model(torch.tensor([prompt])).logits[0].double()
            logits[:, END_TOKEN:] = -torch.inf
            logprobs = logits.log_softmax(1)[:-1]
            expected += logprobs.gather(1, torch.tensor(prompt[1:])[:, None]).flatten().tolist()
            output = engine.generate(prompt, max_tokens=1, temperature=0.0, prompt_logprobs=1)
            found += [entry.logprob for entry in output.prompt_logprobs]
    correlation = np.corrcoef(expected, found)[0, 1]
    assert correlation > CASES[case].correlation
    assert np.std(expected) > 1  # which is what they are like


# ---- what is refused ----


def set_format(**fields):
    def change(manifest):
        manifest["embedding"]["format"] = fields

    return change


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (set_format(name="float32", group_size=0), "embedding.weight"),
        (set_format(name="bfloat16", group_size=0), "embedding.weight"),
        (set_format(name="int4", group_size=32), "embedding.weight"),
        (set_format(name="int4", group_size=128), "embedding.weight"),
        (set_format(name="int4", group_size=0), "group_size"),
        (set_format(name="int4", group_size=48), "group_size"),
        (set_format(name="int4", group_size=-32), "group_size"),
        (set_format(name="int4", group_size=8192), "group_size"),
        (set_format(name="int4", group_size=2**62), "group_size"),
        (set_format(name="int4", group_size="32"), "group_size"),
        (set_format(name="int4"), "group_size"),
        (set_format(name="int9", group_size=0), "int9|embedding.format.name"),
        (set_format(name="int32", group_size=0), "embedding.format.name"),
        (set_format(name="uint8", group_size=0), "embedding.format.name"),
        (set_format(name=8, group_size=0), "name"),
        (set_format(group_size=0), "name"),
        (lambda m: m["embedding"].pop("format"), "format"),
        (lambda m: m["embedding"].update(format="int8"), "format"),
        (lambda m: m["embedding"].update(format=[]), "format"),
        (lambda m: m["kv_cache"].update(dtype="bfloat16"), "fit|dtype"),
        (lambda m: m["kv_cache"].update(dtype="int8"), "fit|dtype"),
        (lambda m: m["kv_cache"].update(dtype="int32"), "dtype"),
        (
            lambda m: m["layers"][0]["weights"].update(down_weight="layers.0.qkv_weight"),
            "layers.0.qkv_weight",
        ),
        (
            lambda m: m["layers"][1]["weights"].update(qkv_weight="head.norm_weight"),
            "head.norm_weight",
        ),
    ],
)  # fmt: skip
def test_edited_manifest(pinfer, int8_bundle, tmp_path, change, part):
    """With a hash that fits: kernels would read past the end of what another format needs."""
    bundle = shutil.copytree(int8_bundle, tmp_path / "bundle")
    manifest = read_manifest(bundle)
    change(manifest)
    data = json.dumps(manifest).encode()
    (bundle / "manifest.json").write_bytes(data)
    (bundle / "manifest.sha256").write_text(hashlib.sha256(data).hexdigest())
    command = [pinfer, "run", bundle, "-p", "abc", "-n", "3", "--temperature", "0"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.returncode == 1, (result.returncode, result.stderr)
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("pinfer: error: "), result.stderr
    assert any(p in lines[0] for p in part.split("|")), lines[0]


@pytest.mark.parametrize(
    "options",
    [
        ["--quantize", "int2"],
        ["--quantize", "int4", "--group-size", "48"],
        ["--quantize", "int8", "--quantize-embedding", "float32"],
        ["--kv-dtype", "int4"],
    ],
)
def test_options_that_do_not_exist(tied_checkpoint, tmp_path, options):
    with pytest.raises(AssertionError, match=f"error: Invalid value for '{options[-2]}'"):
        tiny_models.export(tied_checkpoint, tmp_path / "bundle", *options)
    assert not (tmp_path / "bundle").exists()
