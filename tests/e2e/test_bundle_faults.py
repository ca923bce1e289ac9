"""Damaged, edited and foreign bundles: one clear line and exit code 1, never a crash."""

import hashlib
import json
import random
import shutil
import subprocess

import pytest
import tiny_models

# Their hashes are checked by `verify` and `--verify` only: hashing them costs more than the start.
LARGE = ("weights.safetensors", "tokenizer.bin", "tokenizer.json")


@pytest.fixture(scope="module")
def whole(tied_checkpoint, tmp_path_factory):
    """A bundle with every kind of file."""
    folder = tmp_path_factory.mktemp("faults")
    checkpoint = shutil.copytree(tied_checkpoint, folder / "model")
    (checkpoint / "chat_template.jinja").write_text(
        "{% for m in messages %}{{ m.content }}{% endfor %}"
    )
    (checkpoint / "LICENSE").write_text("free")
    tiny_models.export(checkpoint, folder / "bundle", "--dtype", "float32")
    return folder / "bundle"


@pytest.fixture
def bundle(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "bundle")


def run(pinfer, bundle, *arguments):
    command = [pinfer, "run", bundle, "-p", "abc", "-n", "3", "--temperature", "0", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def verify(pinfer, bundle):
    return subprocess.run([pinfer, "verify", bundle], capture_output=True, text=True, timeout=60)


def expect_refused(result, *parts):
    assert result.returncode == 1, (result.returncode, result.stderr)
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("pinfer: error: "), result.stderr
    for part in parts:
        assert part in lines[0], lines[0]


def files(bundle):
    return sorted(str(p.relative_to(bundle)) for p in bundle.rglob("*") if p.is_file())


def edit_manifest(bundle, change):
    """Changes the manifest and makes its hash fit again: an attacker, or a bug of the exporter."""
    path = bundle / "manifest.json"
    manifest = json.loads(path.read_text())
    result = change(manifest)
    manifest = result if isinstance(result, list) else manifest
    data = json.dumps(manifest).encode()
    path.write_bytes(data)
    (bundle / "manifest.sha256").write_text(hashlib.sha256(data).hexdigest())


def test_a_whole_bundle_runs(pinfer, whole):
    assert run(pinfer, whole).returncode == 0
    assert run(pinfer, whole, "--verify").returncode == 0
    assert verify(pinfer, whole).returncode == 0
    assert len(files(whole)) == 9


def test_every_file_missing(pinfer, bundle):
    for name in files(bundle):
        data = (bundle / name).read_bytes()
        (bundle / name).unlink()
        expect_refused(run(pinfer, bundle), name.split("/")[-1])
        expect_refused(verify(pinfer, bundle), name.split("/")[-1])
        (bundle / name).write_bytes(data)
    assert verify(pinfer, bundle).returncode == 0


def test_every_file_cut_short_or_longer(pinfer, bundle):
    for name in files(bundle):
        data = (bundle / name).read_bytes()
        for damaged in (data[:-1], data[: len(data) // 2], b"", data + b"x"):
            (bundle / name).write_bytes(damaged)
            expect_refused(run(pinfer, bundle), "manifest" if "manifest" in name else name)
        (bundle / name).write_bytes(data)


def test_one_byte_flipped(pinfer, bundle):
    generator = random.Random(0)
    for name in files(bundle):
        original = (bundle / name).read_bytes()
        part = "manifest" if "manifest" in name else name
        for position in {0, len(original) - 1, generator.randrange(len(original))}:
            data = bytearray(original)
            data[position] ^= 1 << generator.randrange(8)
            (bundle / name).write_bytes(data)
            expect_refused(verify(pinfer, bundle), part)
            expect_refused(run(pinfer, bundle, "--verify"), part)
            if name not in LARGE:
                expect_refused(run(pinfer, bundle), part)
            else:  # may work or be refused, but never crash
                assert run(pinfer, bundle).returncode in (0, 1)
        (bundle / name).write_bytes(original)


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (lambda m: m.update(format_version=2), "format"),
        (lambda m: m.update(format_version="1"), "format_version"),
        (lambda m: m.pop("model"), "model"),
        (lambda m: m.update(parts=["model"]), "text"),
        (lambda m: m.update(parts=[]), "no text part"),
        (lambda m: m["model"].update(num_layers=3), "layers"),
        (lambda m: m["model"].update(num_layers=-1), "num_layers"),
        (lambda m: m["model"].update(hidden_size=63), "hidden_size|fit|differ"),
        (lambda m: m["model"].update(hidden_size=2**40), "hidden_size"),
        (lambda m: m["model"].update(vocab_size=7), "vocab_size|fit|differ"),
        (lambda m: m["model"].update(num_kv_heads=5), "num_kv_heads|fit|differ"),
        (lambda m: m["model"].update(head_dim=0), "head_dim"),
        (lambda m: m["model"].update(max_model_len=0), "max_model_len"),
        (lambda m: m["model"].update(dtype="float64"), "dtype"),
        (lambda m: m["embedding"]["format"].update(name="bfloat16"), "embedding.weight"),
        (lambda m: m["kv_cache"].update(dtype="bfloat16"), "fit|dtype"),
        (lambda m: m["kv_cache"].update(block_size=32), "block|fit"),
        (lambda m: m["target"].update(device="cuda"), "target.cuda_archs"),
        (lambda m: m["target"].update(device="tpu"), "device tpu"),
        (lambda m: m["target"].update(cpu_features=["avx2", "avx9000"]), "avx9000"),
        (lambda m: m.update(providers=["torch"]), "provider native"),
        (lambda m: m.update(providers=[]), "provider"),
        (lambda m: m["layers"][1].update(artifact="nothing"), "nothing"),
        (lambda m: m["layers"][1].update(artifact="head"), "fit|head"),
        (lambda m: m["layers"][0]["weights"].pop("qkv_weight"), "qkv_weight|constants"),
        (lambda m: m["layers"][0]["weights"].update(qkv_weight="no.such"), "no.such"),
        (
            lambda m: m["layers"][0]["weights"].update(qkv_weight="layers.0.down_weight"),
            "layers.0.down_weight",
        ),
        (lambda m: m["embedding"].update(weight="norm.weight"), "norm.weight"),
        (lambda m: m["artifacts"]["head"]["symbols"].append("aoti_torch_more"), "names|symbols"),
        (lambda m: m["artifacts"]["head"]["inputs"][0].update(dtype="int32"), "head"),
        (lambda m: m["artifacts"]["head"]["constants"].pop(), "head|constants"),
        (lambda m: m["files"].pop("weights.safetensors"), "weights.safetensors"),
        (lambda m: m["files"].update({"../outside": {"size": 1, "sha256": "0" * 64}}), "outside"),
        (lambda m: m["files"]["tokenizer.bin"].update(size=-1), "size"),
        (lambda m: m["text"].update(eos_token_ids=[2**40]), "eos_token_ids"),
        (lambda m: m["text"].update(eos_token_ids="2"), "eos_token_ids"),
        (lambda m: m["generation_defaults"].update(temperature="hot"), "temperature"),
        (lambda m: [], "object"),
    ],
)
def test_edited_manifest(pinfer, bundle, change, part):
    edit_manifest(bundle, change)
    result = run(pinfer, bundle)
    expect_refused(result)
    assert any(p in result.stderr for p in part.split("|")), result.stderr


def replace_file(bundle, name, data):
    """With a manifest that fits it again."""
    (bundle / name).write_bytes(data)
    entry = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    edit_manifest(bundle, lambda manifest: manifest["files"].update({name: entry}))


def test_artifacts_of_another_bundle(pinfer, bundle, tiny_folder, tmp_path):
    other = tmp_path / "other"
    tiny_models.export(
        tiny_models.make_checkpoint("gqa8_biases_odd", tiny_folder), other, "--dtype", "float32"
    )
    for name in ("artifacts/decoder_layer.so", "artifacts/head.so"):
        original = (bundle / name).read_bytes()
        replace_file(bundle, name, (other / name).read_bytes())
        expect_refused(run(pinfer, bundle), name)
        replace_file(bundle, name, original)
    original = (bundle / "weights.safetensors").read_bytes()
    replace_file(bundle, "weights.safetensors", (other / "weights.safetensors").read_bytes())
    expect_refused(run(pinfer, bundle), "weights.safetensors")
    replace_file(bundle, "weights.safetensors", original)
    assert run(pinfer, bundle).returncode == 0


def test_files_that_are_something_else(pinfer, bundle):
    """Hashes fit; what the files hold does not."""
    for name, data, parts in (
        ("artifacts/head.so", b"not a shared object", ["artifacts/head.so"]),
        ("artifacts/head.so", b"", ["artifacts/head.so"]),
        ("chat_template.json", b"{", ["chat_template.json"]),
        ("chat_template.json", b"[]", ["chat_template.json"]),
        ("tokenizer.bin", b"x" * 5000, ["tokenizer.bin"]),
        ("tokenizer.bin", b"", ["tokenizer.bin"]),
        ("weights.safetensors", b"", ["weights.safetensors"]),
        ("weights.safetensors", b"\xff" * 64, ["weights.safetensors"]),
        ("weights.safetensors", b"\x40" + bytes(7) + b" " * 64, ["weights.safetensors"]),
    ):
        original = (bundle / name).read_bytes()
        replace_file(bundle, name, data)
        expect_refused(run(pinfer, bundle), *parts)
        replace_file(bundle, name, original)


def test_random_bytes_in_every_file_never_crash(pinfer, bundle):
    """Also with hashes that fit: parsers meet what an attacker wrote."""
    generator = random.Random(1)
    for name in files(bundle):
        if name.startswith("manifest") or name.endswith(".so"):
            continue  # code is trusted once its hash fits
        original = (bundle / name).read_bytes()
        for _ in range(6):
            data = bytearray(original)
            for _ in range(generator.randint(1, 20)):
                data[generator.randrange(min(len(data), 4096))] = generator.randrange(256)
            replace_file(bundle, name, bytes(data))
            result = run(pinfer, bundle)
            assert result.returncode in (0, 1), (name, result.returncode, result.stderr)
        replace_file(bundle, name, original)


def test_a_directory_where_a_file_should_be(pinfer, bundle):
    (bundle / "tokenizer.bin").unlink()
    (bundle / "tokenizer.bin").mkdir()
    expect_refused(run(pinfer, bundle), "tokenizer.bin")
