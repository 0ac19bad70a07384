"""Energy and data loading in words, where a profile has them."""

from __future__ import annotations

from swinmr_profiling.profiler.record.blocks.energy import DataLoading, Energy
from swinmr_profiling.profiler.record.units import figure

READERS = {"nvml": "NVML's energy counter", "rapl": "RAPL"}


def energy_rows(energy: Energy | None, loading: DataLoading | None) -> tuple[tuple[str, str], ...]:
    """Names and values, one a line; () where neither was asked for."""
    found: list[tuple[str, str]] = []
    for one in () if energy is None else energy.figures:
        runs = f"{one.num_runs} runs in {figure(one.duration_s)} s, {figure(one.mean_watts)} W"
        image = f"{figure(one.joules_per_image)} J per image"
        if one.joules_per_step is None:
            found.append((f"inference, batch {one.batch_size}", f"{image} ({runs})"))
        else:
            step = f"{figure(one.joules_per_step)} J per step of {one.images_per_step}"
            found.append((f"training, batch {one.batch_size}", f"{step}, {image} ({runs})"))
    if energy is not None:
        untried = "; untried: no such machine has run this code" if energy.untried else ""
        found.append(("energy counter", f"{READERS[energy.reader]}: {energy.covers}{untried}"))
    if loading is not None:
        rate = f"{figure(loading.images_per_second)} images/s, {loading.num_workers} workers, {loading.data_source}"
        found.append((f"data loader, batch {loading.batch_size}", rate))
        if loading.step_ms is not None:
            waits = "training waits for its data" if loading.waits else "the loader keeps up"
            median = (
                f"a batch every {figure(loading.median_ms)} ms, a step takes {figure(loading.step_ms)} ms"
            )
            found.append(("loader beside the step", f"{median}: {waits}"))
    return tuple(found)
