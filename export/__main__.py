"""pinfer-export: the command line."""

from __future__ import annotations

import signal
import sys
import time
from importlib.metadata import version
from pathlib import Path

import click
from rich.console import Console

from pinfer.export.config import (
    BACKENDS,
    CPU_ISAS,
    CUDA_ARCHS,
    DEFAULT_CUDA_ARCHS,
    DEVICES,
    DTYPES,
    EMBEDDING_FORMATS,
    GROUP_SIZES,
    KV_DTYPES,
    PARTS,
    PROVIDERS,
    QUANTIZATIONS,
    TASKS,
    ExportConfig,
)
from pinfer.export.errors import ExportError

PROGRAM = "pinfer-export"
LOG_LEVELS = ("debug", "info", "warning", "error")


class StageReport:
    """Prints each stage with its time, on stderr."""

    def __init__(self, console: Console, log_level: str) -> None:
        self._console = console
        self._least = LOG_LEVELS.index(log_level)
        self._stage: str | None = None
        self._started = 0.0

    def __call__(self, stage: str, done: int, total: int) -> None:
        if total == 0:
            self.print("warning", stage)
        elif stage != self._stage:
            self.finish()
            self._stage, self._started = stage, time.monotonic()

    def finish(self) -> None:
        if self._stage is not None:
            seconds = time.monotonic() - self._started
            self.print("info", f"{self._stage:<8} {seconds:6.1f} s")
        self._stage = None

    def print(self, level: str, line: str) -> None:
        if LOG_LEVELS.index(level) >= self._least:
            self._console.print(f"{PROGRAM}: {line}", markup=False, highlight=False)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("model", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path),
              help="The bundle directory to write; with --standalone a file.")  # fmt: skip
@click.option("--dtype", type=click.Choice(DTYPES),
              help="Of weights and cache; default: the checkpoint's.")  # fmt: skip
@click.option("--quantize", type=click.Choice(QUANTIZATIONS),
              help="The layers' weights in integers, which multiply rows in int8.")  # fmt: skip
@click.option("--group-size", type=click.Choice([str(size) for size in GROUP_SIZES]),
              help="Numbers of int4 that share a scale; default: as a quantised checkpoint has it,"
                   " else 32.")  # fmt: skip
@click.option("--quantize-embedding", type=click.Choice(EMBEDDING_FORMATS), default="int8",
              show_default=True, help="The same of embedding and head.")  # fmt: skip
@click.option("--calibrate", type=click.Path(path_type=Path),
              help="Round int4 weights for what this text makes of them: slower, closer to the"
                   " model.")  # fmt: skip
@click.option("--kv-dtype", type=click.Choice(KV_DTYPES),
              help="Of the KV cache; default: that of --dtype.")  # fmt: skip
@click.option("--eval", "evaluate", type=click.Path(path_type=Path),
              help="Measure perplexity and KL against float32 on this text.")  # fmt: skip
@click.option("--device", type=click.Choice(DEVICES), default="cpu", show_default=True,
              help="What the bundle is compiled for; cuda needs no GPU here.")  # fmt: skip
@click.option("--cuda-arch", "cuda_archs", default=",".join(map(str, DEFAULT_CUDA_ARCHS)),
              show_default=True, callback=lambda *arguments: _cuda_archs(*arguments),
              help="Compute capabilities (times 10) that kernels are compiled for; those of 8.x run"
                   " on later 8.x, others on their own alone.")  # fmt: skip
@click.option("--backend", type=click.Choice(BACKENDS), default="inductor", show_default=True,
              help="What compiles the layers.")  # fmt: skip
@click.option("--plan", is_flag=True,
              help="Print how --backend tensorrt would divide layers; writes nothing.")  # fmt: skip
@click.option("--cpu-isa", type=click.Choice(CPU_ISAS), default="x86-64-v3", show_default=True,
              help="Instruction set that the bundle is compiled for.")  # fmt: skip
@click.option("--task", type=click.Choice(TASKS),
              help="What the model is for; default: embed where sentence-transformers' files"
                   " (modules.json) say how, else generate.")  # fmt: skip
@click.option("--max-model-len", type=click.IntRange(min=2),
              help="Longest context; default: the model's.")  # fmt: skip
@click.option("--standalone", is_flag=True,
              help="Write one executable file with engine and bundle in it.")  # fmt: skip
@click.option("--force", is_flag=True, help="Replace an existing bundle or executable.")
@click.option("--provider", type=click.Choice(PROVIDERS),
              help="Fail unless this provider can serve the bundle.")  # fmt: skip
@click.option("--no-cache", is_flag=True, help="Compile even what the artifact cache holds.")
@click.option("--no-verify", is_flag=True,
              help="Do not compare compiled parts and text with their references.")  # fmt: skip
@click.option("--only", type=click.Choice(PARTS),
              help="Export this part alone: tokenizer and chat template.")  # fmt: skip
@click.option("--log-level", type=click.Choice(LOG_LEVELS), default="info", show_default=True,
              help="Stages are info.")  # fmt: skip
@click.option("--list-models", is_flag=True, is_eager=True, expose_value=False,
              callback=lambda context, _, wanted: _list_models(context) if wanted else None,
              help="Print the architectures that can be exported, and exit.")  # fmt: skip
@click.version_option(version("pinfer"), prog_name=PROGRAM)
def command(
    model: Path,
    output: Path | None,
    dtype: str | None,
    quantize: str | None,
    group_size: str | None,
    quantize_embedding: str,
    calibrate: Path | None,
    kv_dtype: str | None,
    evaluate: Path | None,
    device: str,
    cuda_archs: tuple[int, ...],
    backend: str,
    plan: bool,
    cpu_isa: str,
    task: str | None,
    max_model_len: int | None,
    standalone: bool,
    force: bool,
    provider: str | None,
    no_cache: bool,
    no_verify: bool,
    only: str | None,
    log_level: str,
) -> None:
    """Compile MODEL (a Hugging Face directory or a GGUF file) into a bundle."""
    context = click.get_current_context()
    if plan and backend != "tensorrt":
        raise click.UsageError(f"--plan is for --backend tensorrt, and it is {backend}", context)
    if output is None and not plan:
        raise click.UsageError("Missing option '-o' / '--output'.", context)
    # torch takes seconds to import: --help and usage errors should not wait for it.
    from pinfer.export.evaluation import Evaluation
    from pinfer.export.exporter import export

    config = ExportConfig(
        model=model,
        output=output or Path(),
        dtype=dtype,
        quantize=quantize,
        group_size=None if group_size is None else int(group_size),
        quantize_embedding=quantize_embedding,
        calibrate=calibrate,
        kv_dtype=kv_dtype,
        evaluate=evaluate,
        device=device,
        cuda_archs=cuda_archs,
        backend=backend,
        cpu_isa=cpu_isa,
        task=task,
        max_model_len=max_model_len,
        standalone=standalone,
        force=force,
        provider=provider,
        use_cache=not no_cache,
        verify=not no_verify,
        only=only,
    )
    if plan:
        from pinfer.export.tensorrt_partition import print_partition

        print_partition(config)
        return
    report = StageReport(Console(stderr=True, soft_wrap=True), log_level)
    started = time.monotonic()
    if standalone:
        from pinfer.export.standalone import export_standalone

        manifest = export_standalone(config, lambda inner: export(inner, report))
    else:
        manifest = export(config, report)
    report.finish()
    if evaluate is not None and "evaluation" in manifest:
        report.print("info", str(Evaluation(**manifest["evaluation"])))
    report.print("info", f"wrote {output} in {time.monotonic() - started:.1f} s")


def _cuda_archs(_: click.Context, __: click.Parameter, text: str) -> tuple[int, ...]:
    known = {str(arch): arch for arch in CUDA_ARCHS}
    names = [name.strip() for name in text.split(",")]
    if unknown := [name for name in names if name not in known]:
        raise click.BadParameter(f"{unknown[0]!r} is none of {', '.join(known)}")
    return tuple(sorted({known[name] for name in names}))


def _list_models(context: click.Context) -> None:
    from pinfer.export.models.listing import models_text

    click.echo(models_text())
    context.exit()


def main() -> None:
    """Exit codes: 0 done, 1 refused or failed, 2 usage."""
    # As an exception, so that temporary directories are removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        command.main(prog_name=PROGRAM, standalone_mode=False, auto_envvar_prefix="PINFER")
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except click.UsageError as error:
        if error.ctx is not None:
            print(error.ctx.get_usage(), file=sys.stderr)
        print(f"{PROGRAM}: error: {error.format_message()}", file=sys.stderr)
        sys.exit(2)
    except (ExportError, click.ClickException, OSError) as error:
        print(f"{PROGRAM}: error: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(1)
    except (KeyboardInterrupt, click.Abort):
        print(f"{PROGRAM}: error: interrupted", file=sys.stderr)
        sys.exit(1)
    except Exception as error:  # input that no check has foreseen must not end in a traceback
        kind = type(error).__name__
        print(f"{PROGRAM}: error: {kind}: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
