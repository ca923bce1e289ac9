"""Decode time against batch and context, by `pinfer bench`: a CSV file and a figure of it.

Usage: growth.py PINFER LABEL=BUNDLE... [--batches 1,2,4] [--contexts 32,64] [--output NAME]
       growth.py --draw NAME

Two sweeps of each bundle: batches behind the shortest context, contexts with the smallest batch.
Writes NAME.csv and NAME.png (default docs/figures/growth). The figure needs matplotlib (the extra
`bench`); --draw makes it from a CSV file that is there.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
from pathlib import Path

from machine_state import MachineState

REPOSITORY = Path(__file__).parents[2]
PROMPT_TOKENS = 16  # computed in each run; the context before it is computed once
FIELDS = ("model", "sweep", "batch", "context", "ms_per_step", "ms_per_token", "stddev_percent")


def measure(options: argparse.Namespace, bundle: str, batches: list, contexts: list) -> list[dict]:
    """Every batch with every context."""
    command = [options.pinfer, "bench", bundle, "--json", "--repetitions", str(options.repetitions),
               "--threads", str(options.threads), "--batch", ",".join(map(str, batches)),
               "--prompt-tokens", str(PROMPT_TOKENS), "--depth",
               ",".join(str(context - PROMPT_TOKENS) for context in contexts),
               "--output-tokens", str(options.output_tokens)]  # fmt: skip
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    return [
        {
            "batch": result["batch"],
            "context": result["depth"] + PROMPT_TOKENS,
            "ms_per_step": round(1000 * result["batch"] / result["tokens_per_s"], 4),
            "ms_per_token": round(1000 / result["tokens_per_s"], 4),
            "stddev_percent": round(100 * result["stddev"] / result["tokens_per_s"], 1),
        }
        for result in json.loads(output)
        if result["test"] == "decode"
    ]


def draw(rows: list[dict], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(10, 4), layout="constrained")
    sweeps = (("batch", "ms_per_token", "per token"), ("batch", "ms_per_step", "per step"),
              ("context", "ms_per_token", ""))  # fmt: skip
    for sweep, field, note in sweeps:
        panel = axes[0] if sweep == "batch" else axes[1]
        for i, model in enumerate(dict.fromkeys(row["model"] for row in rows)):
            points = [row for row in rows if (row["model"], row["sweep"]) == (model, sweep)]
            panel.plot(
                [int(row[sweep]) for row in points],
                [float(row[field]) for row in points],
                color=f"C{i}",
                marker="o",
                linestyle="--" if field == "ms_per_step" else "-",
                label=f"{model} {note}",
            )
    for panel, label in zip(axes, ("requests at once", "tokens of context"), strict=True):
        panel.set_xscale("log", base=2)
        panel.set_yscale("log")
        panel.set_xlabel(label)
        panel.set_ylabel("decode time, ms")
        panel.grid(visible=True, which="both", alpha=0.3)
        panel.legend()
    figure.savefig(path, dpi=120)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pinfer", nargs="?")
    parser.add_argument("bundles", nargs="*", metavar="LABEL=BUNDLE")
    parser.add_argument("--batches", default="1,2,4,8,16,32,64")
    parser.add_argument("--contexts", default="32,64,128,256,512,1024,2048,4096,8128")
    parser.add_argument("--output-tokens", type=int, default=64)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--output", type=Path, default=REPOSITORY / "docs/figures/growth")
    parser.add_argument("--draw", type=Path)
    options = parser.parse_args(arguments)
    table = (options.draw or options.output).with_suffix(".csv")
    if options.draw is None:
        batches, contexts = (
            [int(word) for word in text.split(",")] for text in (options.batches, options.contexts)
        )
        if not options.bundles or min(contexts) <= PROMPT_TOKENS:
            parser.error(f"expected bundles, and contexts of more than {PROMPT_TOKENS} tokens")
        state = MachineState()
        rows = []
        for text in options.bundles:
            model, _, bundle = text.partition("=")
            for sweep, points in (
                ("batch", measure(options, bundle, batches, contexts[:1])),
                ("context", measure(options, bundle, batches[:1], contexts)),
            ):
                rows += [{"model": model, "sweep": sweep, **point} for point in points]
        table.parent.mkdir(parents=True, exist_ok=True)
        with table.open("w", newline="") as file:
            writer = csv.DictWriter(file, FIELDS)
            writer.writeheader()
            writer.writerows(rows)
        print(f"{table}: {len(rows)} points, {state.text()}")
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    try:
        draw(rows, table.with_suffix(".png"))
    except ModuleNotFoundError as error:
        sys.exit(f"growth.py: no figure: {error.name} is missing (the extra `bench` names it)")
    print(table.with_suffix(".png"))


if __name__ == "__main__":
    main()
