"""The tables on the terminal. Formats records and computes nothing."""

from __future__ import annotations

from typing import Any

from swinmr_profiling.profiler.pipelines.output.figures import gib, macs_text, parameters_text
from swinmr_profiling.profiler.record.units import figure
from swinmr_profiling.profiler.reports.console.terminal import Console

GUIDANCE_WORDS = {
    "doubled_batch": "one call of twice the batch",
    "two_calls": "two calls a step",
    "distilled": "an input of the distilled denoiser",
}
TERA, GIGA, MIB = 1e12, 1e9, 2**20


def print_cost(console: Console, record: dict[str, Any]) -> None:
    """One pipeline: what is run, its components, the sums, the memory."""
    height, width = record["input_shape"][2:]
    console.title(f"{record['title']} ({record['pipeline']})")
    console.line(
        f"{width} x {height} px, batch {record['batch']}, {record['num_inference_steps']} steps of "
        f"{record['scheduler']} = {record['denoiser_calls']} denoiser calls, {_guidance(record)}, {record['precision']}"
    )
    console.line(f"latent {' x '.join(map(str, record['latent_shape']))}")
    console.line()
    console.line(
        f"{'component':<16}{'class':<29}{'params':>9}{'weights':>9}{'calls':>7}{'batch':>6}"
        f"{'GMACs/call':>13}{'GFLOPs/call':>13}{'TMACs':>9}{'share':>8}"
    )
    for part in record["components"]:
        console.line(
            f"{part['name']:<16}{part['class'][:28]:<29}{parameters_text(part['parameters']):>9}"
            f"{gib(part['weight_bytes']):>5.2f} GiB{part['calls']:>7}{part['call_batch']:>6}"
            f"{part['macs_per_call'] / GIGA:>13,.2f}{part['flops_per_call'] / GIGA:>13,.2f}"
            f"{part['macs'] / TERA:>9.2f}{part['share']:>8.2%}"
        )
    console.line()
    with_guidance = record["macs_per_step_with_guidance"]
    shown = f", {macs_text(with_guidance)} with" if with_guidance is not None else ""
    console.line(
        f"Per denoising step: {macs_text(record['macs_per_step_without_guidance'])} without guidance{shown}"
    )
    whole = "image" if record["batch"] == 1 else f"batch of {record['batch']} images"
    console.line(f"Total per {whole}: {record['total_macs_str']} = {record['total_flops_str']} (2 x MACs)")
    if record["batch"] > 1:
        console.line(f"Per image: {macs_text(record['macs_per_image'])}")
    kinds = ", ".join(
        f"{kind} {figure(macs / TERA)} ({macs / record['total_macs']:.1%})"
        for kind, macs in record["by_kind"].items()
        if macs
    )
    console.line(f"Of these TMACs: {kinds}")
    memory = record["memory"]
    console.line(
        f"Memory, predicted: {figure(gib(memory['weight_bytes']))} GiB weights, "
        f"{memory['activation_peak_bytes'] / MIB:,.0f} MiB activations at their peak "
        f"({memory['activation_peak_component']})"
    )
    for note in record["notes"]:
        console.note(note, indent=2)
    for block in ("step_scaling", "resolution_scaling"):
        if block in record:
            _SCALING_PRINTERS[block](console, record[block])


def print_comparison(console: Console, records: list[dict[str, Any]]) -> None:
    """A line for each pipeline, the cheapest first; what failed at the end, with the reason."""
    console.title("PIPELINES COMPARED")
    console.line(
        f"{'pipeline':<20}{'computed px':>12}{'params':>9}{'steps':>6}{'calls':>6}"
        f"{'GMACs/step':>12}{'unguided':>11}{'VAE GMACs':>11}{'TMACs':>9}{'denoiser':>9}{'attention':>10}{'memory':>10}"
    )
    done = sorted((r for r in records if r["enabled"]), key=lambda record: record["total_macs"])
    for record in done:
        height, width = record["computed_shape"][2:]
        denoiser = next(part for part in record["components"] if part["role"] == "denoiser")
        console.line(
            f"{record['pipeline']:<20}{f'{width}x{height}':>12}{parameters_text(record['pipeline_params']):>9}"
            f"{record['num_inference_steps']:>6}{record['denoiser_calls']:>6}"
            f"{record['macs_per_step'] / GIGA:>12,.1f}{record['macs_per_step_without_guidance'] / GIGA:>11,.1f}"
            f"{record['vae_macs'] / GIGA:>11,.1f}{record['total_macs'] / TERA:>9.2f}{denoiser['share']:>9.1%}"
            f"{record['by_kind']['attention'] / record['total_macs']:>10.1%}"
            f"{gib(record['memory']['total_bytes']):>6.1f} GiB"
        )
    console.note(
        "GMACs/step as run, with guidance where asked for; FLOPs are 2 x MACs; memory is predicted", 0
    )
    for record in done:
        if record["computed_shape"] != record["input_shape"]:
            console.note(f"{record['pipeline']}: {record['notes'][0]}", 0)
    for record in records:
        if not record["enabled"]:
            console.bad(f"{record['pipeline']}: {record['reason']}", 0)


def _guidance(record: dict[str, Any]) -> str:
    scale = f"guidance {record['guidance_scale']:g}"
    if record["guidance_mode"] == "distilled":
        twice = "two calls a step" if record["is_guided"] else GUIDANCE_WORDS["distilled"]
        return f"{scale} ({twice})"
    return f"{scale} ({GUIDANCE_WORDS[record['guidance_mode']]})" if record["is_guided"] else "no guidance"


def _print_step_scaling(console: Console, points: list[dict[str, Any]]) -> None:
    console.line()
    console.line("Steps      denoiser calls     TMACs   relative")
    for point in points:
        console.line(
            f"{point['steps']:>5}{point['denoiser_calls']:>20}{point['total_macs'] / TERA:>10.2f}"
            f"{point['relative']:>10.2f}x"
        )


def _print_resolution_scaling(console: Console, points: list[dict[str, Any]]) -> None:
    console.line()
    console.line(" Side    computed  GMACs/step     TMACs   relative   attention in denoiser")
    for point in points:
        if "reason" in point:
            console.line(f"{point['side_px']:>5}  {point['reason']}")
            continue
        height, width = point["computed_px"]
        console.line(
            f"{point['side_px']:>5}{f'{width}x{height}':>12}{point['macs_per_step'] / GIGA:>12,.1f}"
            f"{point['total_macs'] / TERA:>10.2f}{point['relative']:>10.2f}x{point['denoiser_attention_share']:>23.1%}"
        )


_SCALING_PRINTERS = {"step_scaling": _print_step_scaling, "resolution_scaling": _print_resolution_scaling}
