import os
from collections import Counter

import torch


def compile(exported_program, inputs=None, *, arg_inputs=None, dryrun=False, **settings):
    assert isinstance(exported_program, torch.export.ExportedProgram)
    assert inputs is None and dryrun is True and not settings
    if message := os.environ.get("FAKE_TENSORRT_FAILS"):
        raise RuntimeError(message)
    graph = exported_program.graph
    values = {node.name: node.meta["val"] for node in graph.find_nodes(op="placeholder")}
    names = exported_program.graph_signature.user_inputs
    assert [each.name for each in arg_inputs] == list(names)
    for each in arg_inputs:
        value = values[each.name]
        assert each.dtype == value.dtype
        for i, size in enumerate(value.shape):
            low, opt, high = (each.shape[f"{kind}_shape"][i] for kind in ("min", "opt", "max"))
            if isinstance(size, int):
                assert low == opt == high == size, each.name
            else:
                assert low < opt < high and size.node.hint == opt, each.name
    engines, outside = [0], Counter()
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        if isinstance(node.target, torch._ops.OpOverload) and node.target.namespace == "aten":
            engines[-1] += 1
        else:
            outside[str(node.target)] += 1
            if engines[-1]:
                engines.append(0)
    engines = [count for count in engines if count]
    print("++++ Dry-Run Results for Graph ++++\n")
    total = sum(engines) + outside.total()
    print(f"The graph consists of {total} Total Operators, of which {sum(engines)} operators are"
          " supported\n")  # fmt: skip
    for name, count in outside.items():
        print(f"{name}: {count}")
    for i, count in enumerate(engines):
        print(f"TRT Engine #{i + 1}\n Number of Operators in Engine: {count}")
