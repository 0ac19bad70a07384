"""The list of known GPUs on the terminal."""

from __future__ import annotations

from swinmr_profiling.profiler.batch_size.gpus import known_gpus
from swinmr_profiling.profiler.reports.console.terminal import Console


def print_gpus(console: Console) -> None:
    """For `--list-gpus`: name, memory as CUDA reports it, memory as sold, compute capability."""
    rows = [
        [gpu.name, gpu.memory_gib, f"{gpu.nominal_memory_gb} GB", gpu.compute_capability]
        for gpu in known_gpus()
    ]
    console.table(["name", "CUDA reports", "sold as", "capability"], rows)
