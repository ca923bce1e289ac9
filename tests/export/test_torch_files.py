"""pytorch_model.bin: the same tensors as safetensors, and nothing of a pickle is ever run."""

import json
import os
import pickle
import shutil
import zipfile
from collections import OrderedDict

import pytest
import tiny_models
import torch
from bundle_tensors import bundle_tensors
from safetensors.torch import load_file, save_file

from pinfer.export.errors import ExportError
from pinfer.export.exporter import read_checkpoint
from pinfer.export.torch_file import TorchSource, read_torch_file
from pinfer.export.weight_files import open_directory
from pinfer.export.weights import WeightFormats
from pinfer.runtime.weight_format import FLOAT32

FORMATS = WeightFormats(FLOAT32, FLOAT32)
LM_HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return tiny_models.make_checkpoint("tied", tmp_path_factory.mktemp("torch-files"))


@pytest.fixture
def model(original, tmp_path):
    """A copy of a checkpoint without its weights."""
    return shutil.copytree(
        original, tmp_path / "model", ignore=shutil.ignore_patterns("*.safetensors")
    )


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], values) for name, values in expected.items())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_tensors_are_those_of_safetensors(original, model, dtype):
    tensors = {n: t.to(dtype) for n, t in load_file(original / "model.safetensors").items()}
    torch.save(OrderedDict(tensors), model / "pytorch_model.bin")
    found, name = bundle_tensors(model), read_checkpoint(model).dtype
    assert isinstance(open_directory(model), TorchSource)
    save_file(tensors, model / "model.safetensors")
    assert_same(found, bundle_tensors(model))
    assert name == read_checkpoint(model).dtype == str(dtype).removeprefix("torch.")


def test_shared_storages_and_views(original, model):
    """A head that is the embedding, parts of one storage, and a transposed view."""
    tensors = load_file(original / "model.safetensors")
    q, k = (f"model.layers.0.self_attn.{p}_proj.weight" for p in "qk")
    whole = torch.cat([tensors[q], tensors[k]])
    down = "model.layers.1.mlp.down_proj.weight"
    shared = {
        **tensors,
        LM_HEAD: tensors[EMBEDDING],
        q: whole[: len(tensors[q])],
        k: whole[len(tensors[q]) :],
        down: torch.nn.Parameter(tensors[down].T.contiguous()).T,
    }
    torch.save(shared, model / "pytorch_model.bin")
    assert (model / "pytorch_model.bin").stat().st_size < (
        original / "model.safetensors"
    ).stat().st_size + 20_000
    assert_same(bundle_tensors(model), bundle_tensors(original))


def test_safetensors_win(original, model):
    (model / "pytorch_model.bin").write_bytes(b"not read")
    shutil.copy(original / "model.safetensors", model)
    assert_same(bundle_tensors(model), bundle_tensors(original))


def split_in_two(original, model):
    tensors = load_file(original / "model.safetensors")
    names = sorted(tensors)
    shards = {"pytorch_model-00001-of-00002.bin": names[::2],
              "pytorch_model-00002-of-00002.bin": names[1::2]}  # fmt: skip
    for shard, part in shards.items():
        torch.save({n: tensors[n] for n in part}, model / shard)
    index = {"weight_map": {n: shard for shard, part in shards.items() for n in part}}
    (model / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    return model / "pytorch_model-00002-of-00002.bin"


def test_shards(original, model):
    shard = split_in_two(original, model)
    assert_same(bundle_tensors(model), bundle_tensors(original))
    contents = torch.load(shard, weights_only=True)
    name = next(iter(contents))
    torch.save({n: t for n, t in contents.items() if n != name}, shard)
    with pytest.raises(ExportError, match=rf"{shard.name}: tensor '{name}' of the index is"):
        read_checkpoint(model)
    other = next(n for n in load_file(original / "model.safetensors") if n not in contents)
    torch.save({**contents, other: torch.ones(64)}, shard)
    with pytest.raises(ExportError, match=rf"tensor '{other}' stands in .* too"):
        read_checkpoint(model)
    shard.unlink()
    with pytest.raises(ExportError, match=rf"{shard.name}: file not found, though .*index\.json"):
        read_checkpoint(model)


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"


@pytest.mark.parametrize("kept", [0, 7, 100, 5_000, -1, -4_096, "longer", "pointer"])
def test_a_damaged_file(original, model, kept):
    path = model / "pytorch_model.bin"
    torch.save(load_file(original / "model.safetensors"), path)
    whole = path.read_bytes()
    other = {"longer": whole + bytes(100), "pointer": POINTER}
    path.write_bytes(other[kept] if kept in other else whole[:kept])
    with pytest.raises(ExportError, match=r"pytorch_model\.bin: .*incomplete download\?"):
        read_checkpoint(model)


def test_no_weights(model):
    with pytest.raises(ExportError, match=r"no weights: expected model\.safetensors or pytorch_"):
        read_checkpoint(model)


# ---- what a pickle might ask for ----


class Runs:
    """Calls `function` when it is unpickled by the ordinary module."""

    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


def hostile(mark):
    return {
        "system": Runs(os.system, f"touch {mark}"),
        "open": Runs(open, str(mark), "w"),
        "eval": Runs(eval, f"open({str(mark)!r}, 'w')"),
        "exec": Runs(exec, f"open({str(mark)!r}, 'w')"),
        "torch.save": Runs(torch.save, 1, str(mark)),
        "torch.load": Runs(torch.load, str(mark)),
    }


@pytest.mark.parametrize("kind", hostile("x"))
@pytest.mark.parametrize("where", ["whole", "value", "key"])
def test_a_hostile_pickle_is_refused(tmp_path, kind, where):
    mark = tmp_path / "mark"
    thing = hostile(mark)[kind]
    contents = {"whole": thing, "value": {"a": torch.ones(2), "b": thing}, "key": {thing: 1}}[where]
    path = tmp_path / "pytorch_model.bin"
    torch.save(contents, path)
    with pytest.raises(ExportError, match=r"pytorch_model\.bin: refused, nothing of it was run"):
        read_torch_file(path)
    assert sorted(tmp_path.iterdir()) == [path]


def test_the_hostile_pickle_would_have_run(tmp_path):
    """So that the test above means something."""
    mark = tmp_path / "mark"
    torch.save(hostile(mark)["open"], tmp_path / "x.bin")
    torch.load(tmp_path / "x.bin", weights_only=False)
    assert mark.exists()


def test_an_allowed_environment_changes_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    torch.save(hostile(tmp_path / "mark")["open"], tmp_path / "x.bin")
    with pytest.raises(ExportError, match="refused"):
        read_torch_file(tmp_path / "x.bin")
    assert not (tmp_path / "mark").exists()


def test_a_plain_pickle_and_the_old_format(tmp_path):
    path = tmp_path / "x.bin"
    path.write_bytes(pickle.dumps(hostile(tmp_path / "mark")["open"]))
    with pytest.raises(ExportError, match=r"not a file of torch\.save since version 1\.6"):
        read_torch_file(path)
    torch.save({"a": torch.ones(2)}, path, _use_new_zipfile_serialization=False)
    with pytest.raises(ExportError, match=r"not a file of torch\.save since version 1\.6"):
        read_torch_file(path)
    assert sorted(tmp_path.iterdir()) == [path]


def test_a_program_of_torchscript(tmp_path):
    torch.jit.script(torch.nn.Linear(2, 2)).save(tmp_path / "x.bin")
    with pytest.raises(ExportError, match=r"x\.bin: (cannot be read|compressed)"):
        read_torch_file(tmp_path / "x.bin")


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        ([torch.ones(2)], "expected tensors by name, found list"),
        (torch.ones(2), "expected tensors by name, found Tensor"),
        ({"a": {"b": torch.ones(2)}}, "'a': expected a tensor, found dict"),
        ({"a": 3}, "'a': expected a tensor, found int"),
        ({3: torch.ones(2)}, "3: expected a tensor"),
        ({"a": torch.eye(2).to_sparse()}, "tensor 'a': torch.sparse_coo"),
        ({"a": torch.ones(2, dtype=torch.complex64)}, "tensor 'a': .*complex64"),
    ],
)
def test_other_contents(tmp_path, contents, message):
    torch.save(contents, tmp_path / "x.bin")
    with pytest.raises(ExportError, match=rf"x\.bin: {message}"):
        read_torch_file(tmp_path / "x.bin")


def rewritten(source, target, change, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", compression) as new:
        for info in old.infolist():
            new.writestr(info.filename, change(info.filename, old.read(info)))


def test_records_that_are_too_small(tmp_path):
    """The storage would go on into what follows in the file."""
    torch.save({"a": torch.ones(64), "b": torch.ones(64)}, tmp_path / "x.bin")
    bad = tmp_path / "bad.bin"
    rewritten(
        tmp_path / "x.bin", bad, lambda name, data: data[:8] if name.endswith("data/0") else data
    )
    with pytest.raises(ExportError, match="a tensor of 256 bytes has no record of that size"):
        read_torch_file(bad)
    rewritten(tmp_path / "x.bin", bad, lambda _, data: data, zipfile.ZIP_DEFLATED)
    with pytest.raises(ExportError, match="compressed records"):
        read_torch_file(bad)
