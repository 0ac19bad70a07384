"""An evaluation's summary in lines for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from swinmr_profiling.training.evaluation.evaluation_tiling import tiling_lines

LABELS = {"psnr_db": ("PSNR", "dB", 2), "ssim": ("SSIM", "", 4), "nmse": ("NMSE", "", 5)}
PERCEPTUAL_LABELS = {"lpips": ("LPIPS", "", 4), "st_lpips": ("ST-LPIPS", "", 4)}
ASKED_AS = {"psnr": "psnr_db", "ssim": "ssim", "nmse": "nmse"}


def summary_lines(summary: dict[str, Any], shown: Sequence[str]) -> Iterator[str]:
    """Lines for standard output.

    shown: `evaluation.metrics`, which says what is printed (the files hold all). LPIPS, or why there is none,
    is printed where it is asked for or was computed.
    """
    data, metrics = summary["data"], summary["metrics"]
    fractions = data["sampled_fraction"]
    yield (
        f"{data['evaluated_slices']} slices of {data['evaluated_volumes']} volumes ({data['split']}); "
        f"{data['kspace']}; mask {data['mask']}"
        + ("" if fractions is None else f", sampled fraction {fractions['mean']:.3f}")
    )
    if data.get("mask_note") is not None:
        yield data["mask_note"]
    for line in summary["checkpoint"]["differences"]:
        yield f"note: {line}"
    for convention, words in (("volume", "fastMRI, by volume"), ("slice", "slice by slice")):
        block = metrics[convention]
        yield f"{words} (range: {block['data_range']}):"
        for name in (ASKED_AS[asked] for asked in shown if asked in ASKED_AS):
            yield f"  {_figures(*LABELS[name], block[name])}"
    perceptual = metrics["perceptual"]
    for name, label in PERCEPTUAL_LABELS.items():
        if perceptual[name] is not None:
            yield f"  {_figures(*label, perceptual[name])}"
    if perceptual["reason"] is not None and (perceptual["st_lpips"] is None or "lpips" in shown):
        yield f"LPIPS: null ({perceptual['reason']})"
    if summary["tiling"] is not None:
        yield from tiling_lines(summary["tiling"])
    if summary["sampling"] is not None:
        yield from _sampling_lines(summary["sampling"])
    yield f"intervals: {'; '.join(summary['bootstrap']['notes'])}"
    latency = summary["latency"]
    if latency is not None:
        shape = " x ".join(map(str, latency["input_shape"]))
        yield (
            f"latency: median {latency['median_ms']:.4g} ms for {shape} on {summary['environment']['device']}, "
            f"{latency['num_runs']} runs after {latency['warmup_runs']} of warm-up"
        )
    if summary["pictures"]["reason"] is not None:
        yield f"no pictures: {summary['pictures']['reason']}"


def _sampling_lines(sampling: dict[str, Any]) -> Iterator[str]:
    yield (
        f"sampling: {sampling['sampler']}, {sampling['sampling_steps']} steps, guidance {sampling['guidance']:g}, "
        f"{sampling['samples_per_slice']} samples a slice of {sampling['denoiser_calls_per_sample']} calls each, "
        f"seed {sampling['seed']}; data consistency {'at every step' if sampling['data_consistency'] else 'off'}"
    )
    if sampling.get("spacing") is not None:
        yield f"  time steps {sampling['spacing']}"
    error = sampling["sampled_kspace_error"]
    means = [error[name]["mean"] for name in ("reconstruction", "zero_filled")]
    if None not in means:
        yield f"  k-space error at sampled points {means[0]:.2e}; zero-filled {means[1]:.2e}"
    if sampling["sample_psnr_db"] is not None:
        alone, deviation = sampling["sample_psnr_db"], sampling["pixel_std"]
        yield (
            f"  PSNR of single samples {alone['mean']:.2f} ± {alone['std']:.2f} dB; standard deviation of a pixel "
            f"{deviation['mean']:.2%} of the slice's maximum"
        )


def _figures(label: str, unit: str, digits: int, block: dict[str, Any]) -> str:
    def number(value: float | None, sign: str = "") -> str:
        return "-" if value is None else f"{value:{sign}.{digits}f}"

    def with_interval(name: str, sign: str = "") -> str:
        interval = block[name]["interval_95"]
        text = number(block[name]["mean"], sign)
        if interval is None:
            return text
        return f"{text} [{number(interval[0], sign)}, {number(interval[1], sign)}]"

    counts = [block[name]["count"] for name in ("reconstruction", "zero_filled", "gain")]
    missing = "" if len(set(counts)) == 1 else f"; defined in {', '.join(map(str, counts))}"
    unit = f" {unit}" if unit else ""
    return (
        f"{label:8} {with_interval('reconstruction')}{unit}; zero-filled {with_interval('zero_filled')}{unit}; "
        f"difference {with_interval('gain', '+')}{unit}{missing}"
    )
