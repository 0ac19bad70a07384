"""Prints how good and how fast the memory prediction is, as far as a machine without a GPU can show.

    python scripts/benchmark_memory.py [--config configs/train_config_large.json]
    python scripts/benchmark_memory.py --ranks 1,2,4 --output build/ranks.jsonl --resume

Nothing is asserted; the tests do that.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY / "src"))

import swinmr_profiling.command  # noqa: E402 - takes this folder off sys.path
from swinmr_profiling.configs import load_config  # noqa: E402
from swinmr_profiling.models.registry import build_model  # noqa: E402
from swinmr_profiling.profiler.allocator.workspaces import workspaces_for  # noqa: E402
from swinmr_profiling.profiler.options.option_types import OneLineParser, parse_options, positive_int  # noqa: E402
from swinmr_profiling.profiler.prediction.replay import live_peak, replay  # noqa: E402
from swinmr_profiling.profiler.prediction.settings import UNTESTED_RULES  # noqa: E402
from swinmr_profiling.profiler.prediction.trace.affine_trace import align  # noqa: E402
from swinmr_profiling.profiler.prediction.trace.traced_step import trace_training  # noqa: E402

MIB = 2**20
SYNTHESISED = (4, 8, 16, 64)
CHECKED = 5


def peak_resident_mib() -> float:
    """Of this process so far; Linux counts in KiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def tracing(config, torch_version: str) -> None:
    """Time and memory of the setting that the config trains in, and what comes out."""
    before = peak_resident_mib()
    start = time.perf_counter()
    built = build_model(config)
    traces = {batch_size: trace_training(built, config, batch_size) for batch_size in (1, 2, 3)}
    traced_s = time.perf_counter() - start
    affine = align(traces[2], traces[3])
    print(f"tracing batches of 1, 2 and 3: {traced_s:.1f} s (at most 20)")
    print(f"peak resident memory: {peak_resident_mib():.0f} MiB (at most 1907), {before:.0f} before")
    checked = trace_training(built, config, CHECKED)
    same = affine.explains(checked) and live_peak(affine.at(CHECKED)) == live_peak(checked)
    print(f"synthesised batch of {CHECKED} is the traced one to the byte: {'yes' if same else 'NO'}")
    workspaces = workspaces_for(torch_version, "8.6")
    print(
        f"\n{'batch':>6} {'live':>10} {'allocated':>10} {'reserved':>10} {'expandable':>10}   MiB, RTX 3090"
    )
    start = time.perf_counter()
    for batch_size in SYNTHESISED:
        trace = affine.at(batch_size)
        result = replay(trace, workspaces=workspaces)
        expandable = replay(trace, workspaces=workspaces, expandable=True)
        figures = (
            result.training.live_bytes,
            result.training.allocated_bytes,
            result.peak_reserved_bytes,
            expandable.peak_reserved_bytes,
        )
        print(f"{batch_size:>6} " + " ".join(f"{figure / MIB:>10.1f}" for figure in figures))
    print(f"replays: {(time.perf_counter() - start) / len(SYNTHESISED) / 2:.2f} s each")


def tests(file: str, prefix: str) -> None:
    """Runs a test file and prints the lines with a prefix, and the summary."""
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-n", "0", f"tests/profiler/prediction/{file}"]
    run = subprocess.run(command, cwd=REPOSITORY, capture_output=True, encoding="utf-8", errors="replace")
    lines = run.stdout.splitlines()
    for line in lines:
        if prefix in line:
            print(line[line.index(prefix) + len(prefix) :].strip())
    print(lines[-1] if lines else run.stderr.strip())


def counts_of_ranks(text: str) -> list[int]:
    """ "1,2,4" as numbers."""
    return [positive_int(size) for size in text.split(",")]


def ranks(sizes: list[int], networks: list[str], output: Path | None, resume: bool) -> None:
    """Predicted against measured live bytes of a rank, each in its own line; share: activations and buffers."""
    from swinmr_profiling.profiler.ranks.compared_rows import STRATEGIES, compared_rows, earlier_rows, key_of

    keys = [
        key_of(network, strategy, size) for size in sizes for network in networks for strategy in STRATEGIES
    ]
    known = earlier_rows(output) if output is not None and resume else {}
    for key in keys:
        if key in known:
            print(known[key].line())
    with open(os.devnull if output is None else output, "w", encoding="utf-8") as stream:
        # Written anew, so that nothing is appended to a line that was cut short.
        stream.writelines(row.model_dump_json() + "\n" for row in known.values())
        stream.flush()
        for row in compared_rows([key for key in keys if key not in known]):
            stream.write(row.model_dump_json() + "\n")
            stream.flush()
            print(row.line(), flush=True)


@swinmr_profiling.command.entry_point
def main(arguments: list[str]) -> int:
    import torch

    from swinmr_profiling.profiler.ranks.compared_rows import NETWORKS

    parser = OneLineParser(description=__doc__.split("\n")[0])
    options = parse_options(
        parser,
        arguments,
        {
            "--config": dict(type=Path, default=REPOSITORY / "configs/train_config_large.json"),
            "--ranks": dict(
                type=counts_of_ranks, metavar="N[,N]", help="only ranks, between so many processes: 1,2,4"
            ),
            "--networks": dict(metavar="NAME[,NAME]", help="of --ranks: SwinMR, U-Net, DiT, timm ViT"),
            "--output": dict(type=Path, metavar="FILE", help="also write the rows of ranks, as JSON lines"),
            "--resume": dict(action="store_true", help="leave out what the output file holds already"),
        },
    )
    names = options.networks.split(",") if options.networks else list(NETWORKS)
    unknown = [name for name in names if name not in NETWORKS]
    if unknown:
        parser.error(f"--networks: {unknown[0]!r} is none of {', '.join(NETWORKS)}")
    if options.resume and options.output is None:
        parser.error("--resume: name the file with --output")
    if options.ranks:
        ranks(options.ranks, names, options.output, options.resume)
        return 0
    config = load_config(options.config).config
    print(f"== {options.config.name}, torch {torch.__version__}")
    tracing(config, torch.__version__)
    print(
        "\n== Live bytes: a trace without data over a real run on the CPU (1 +- 0.002), over MemTracker (1 +- 0.01)"
    )
    tests("test_tracker_accuracy.py", "ratio:")
    print("\n== Published measurements of GPUs: predicted, published")
    tests("test_public_records.py", "record:")
    print("\n== Live bytes of a rank: predicted over measured between processes of the CPU (1 +- 0.005)")
    ranks([1, 2, 4], names, options.output, options.resume)
    print("\n== Not tested without a GPU")
    for rule in UNTESTED_RULES:
        print(f"- {rule}")
    return 0


if __name__ == "__main__":
    swinmr_profiling.command.run(main)
