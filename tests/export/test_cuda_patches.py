"""What is patched in torch and Triton to compile for CUDA without a GPU: enough, and all of it
needed. What fails runs in a process of its own."""

import multiprocessing
import os
import re
import struct

import pytest

pytest.importorskip("triton", reason="--device cuda needs triton")

import torch

from pinfer.export import cuda_parts, cuda_patches, cuda_sources, trace
from pinfer.runtime.cuda_weight_format import CudaWeightFormat
from pinfer.runtime.layers.layer_spec import LayerSpec

SPEC = LayerSpec(
    hidden_size=64, intermediate_size=96, num_heads=4, num_kv_heads=2, head_dim=16, norm_eps=1e-5,
    attention_scale=0.25, rotary_dim=16,
)  # fmt: skip


def compile_layer(archs, left_out):
    part = cuda_parts.decoder_layer(
        "decoder_layer", SPEC, 8, CudaWeightFormat("bfloat16"), torch.bfloat16, 16
    )
    return cuda_sources.generate(part, trace.trace(part), archs, left_out)


def in_child(left_out, results):
    os.close(2)  # what Inductor says of its failure
    try:
        sources = compile_layer((80, 90), left_out)
        results.put(len(sources.kernels))
    except BaseException as error:
        results.put(str(error))


def compiled_without(left_out):
    """Number of kernels, or why there are none."""
    context = multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    child = context.Process(target=in_child, args=(left_out, results))
    child.start()
    child.join(240)
    assert child.exitcode == 0
    return results.get()


@pytest.mark.slow
@pytest.mark.parametrize("name", [patch.__name__ for patch in cuda_patches.PATCHES])
def test_each_patch_is_needed(name):
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU: there most patches are not needed")
    found = compiled_without(name)
    assert isinstance(found, str), f"without {name} it compiles all the same: remove it"


def test_all_together_are_enough():
    """For each architecture, in one process, and nothing stays patched."""
    before = {name: getattr(torch.cuda, name) for name in ("is_available", "device_count")}
    sources = compile_layer((80, 90, 100), "")
    assert {tuple(codes) for codes in sources.kernels.values()} == {("80", "90a", "100a")}
    for codes in sources.kernels.values():
        assert all(code.startswith(b"\x7fELF") for code in codes.values())
        assert len(set(codes.values())) == 3
    assert {name: getattr(torch.cuda, name) for name in before} == before
    assert not torch.cuda.is_available() or torch.version.cuda


def num_parameters(code):
    """Of a compiled kernel: entries KPARAM_INFO of its section .nv.info.NAME."""
    header = struct.unpack_from("<16sHHIQQQIHHHHHH", code)
    begin, size, count, names = header[6], header[11], header[12], header[13]
    sections = [struct.unpack_from("<IIQQQQIIQQ", code, begin + i * size) for i in range(count)]
    for section in sections:
        name = code[sections[names][4] + section[0] :].split(b"\0")[0]
        if not name.startswith(b".nv.info."):
            continue
        at, end, found = section[4], section[4] + section[5], 0
        while at < end:
            form, kind, length = struct.unpack_from("<BBH", code, at)
            found += kind == 0x17
            at += 4 + (length if form == 4 else 0)
        return found
    raise AssertionError("no .nv.info")


def test_host_code_gives_each_kernel_all_of_its_parameters():
    sources = compile_layer((80, 90), "")
    for name, codes in sources.kernels.items():
        start = sources.wrapper.index(f"= loadKernel(__{name}_start")
        given = re.search(r"void\* kernel_args_\[\] = \{(.*?)\};", sources.wrapper[start:])[1]
        for code in codes.values():
            assert num_parameters(code) == given.count("&"), name


def test_sources_are_the_same_every_time():
    """In the wrapper no path of this machine, in kernels no line numbers."""
    first, second = (compile_layer((80,), "") for _ in range(2))
    assert first.kernels == second.kernels and first.wrapper == second.wrapper
    assert "/tmp/" not in first.wrapper
