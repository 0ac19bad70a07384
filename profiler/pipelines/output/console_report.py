"""What is printed of costs and of runs. Formats records and computes nothing."""

from __future__ import annotations

from collections.abc import Sequence

from swinmr_profiling.profiler.pipelines.defined.cost_records import (
    AnyPipeline,
    CostedPipeline,
    FailedPipeline,
    PipelineCost,
    RefusedSide,
    cheapest_first,
)
from swinmr_profiling.profiler.pipelines.defined.json_records import FailedRecord, LiveRecord, WatchedRecord
from swinmr_profiling.profiler.pipelines.output.figures import flops_text, gib, macs_text, parameters_text
from swinmr_profiling.profiler.record.units import figure
from swinmr_profiling.profiler.reports.console.terminal import Console

GUIDANCE_WORDS = {
    "doubled_batch": "one call of twice the batch",
    "two_calls": "two calls a step",
    "distilled": "an input of the distilled denoiser",
}
TERA, GIGA, MIB = 1e12, 1e9, 2**20
LABEL_WIDTH = 15


def print_cost(console: Console, pipeline: CostedPipeline) -> None:
    """One pipeline: what is run, its components, the sums, the memory."""
    cost = pipeline.cost
    request, geometry = cost.request, cost.geometry
    console.title(f"{cost.definition.title} ({cost.definition.name})")
    console.line(
        f"{geometry.width} x {geometry.height} px, batch {request.batch}, {request.steps} steps of "
        f"{cost.scheduler} = {cost.denoiser.calls} denoiser calls, {_guidance(cost)}, {request.precision}"
    )
    console.line(f"latent {' x '.join(map(str, cost.of_role('vae_decode')[0].input_shapes[0]))}")
    console.line()
    headings = [
        "component",
        "class",
        "params",
        "weights",
        "calls",
        "batch",
        "GMACs/call",
        "GFLOPs/call",
        "TMACs",
        "share",
    ]
    rows = [
        [
            part.name,
            part.class_name,
            parameters_text(part.parameters),
            f"{gib(part.weight_bytes):.2f} GiB",
            str(part.calls),
            str(part.call_batch),
            f"{part.macs_per_call / GIGA:,.2f}",
            f"{2 * part.macs_per_call / GIGA:,.2f}",
            f"{part.macs / TERA:.2f}",
            f"{part.macs / cost.macs:.2%}",
        ]
        for part in cost.components
    ]
    console.table(headings, rows, left=2)
    console.line()
    with_guidance = cost.macs_per_step_with_guidance
    shown = f", {macs_text(with_guidance)} with" if with_guidance is not None else ""
    console.line(
        f"Per denoising step: {macs_text(cost.macs_per_step_without_guidance)} without guidance{shown}"
    )
    whole = "image" if request.batch == 1 else f"batch of {request.batch} images"
    console.line(f"Total per {whole}: {macs_text(cost.macs)} = {flops_text(2 * cost.macs)} (2 x MACs)")
    if request.batch > 1:
        console.line(f"Per image: {macs_text(cost.macs / request.batch)}")
    kinds = ", ".join(
        f"{kind} {figure(macs / TERA)} ({macs / cost.macs:.1%})"
        for kind, macs in cost.by_kind.items()
        if macs
    )
    console.line(f"Of these TMACs: {kinds}")
    peak = cost.activation_peak
    console.line(
        f"Memory, predicted: {figure(gib(cost.weight_bytes))} GiB weights, "
        f"{peak.activation_peak_bytes / MIB:,.0f} MiB activations at their peak ({peak.name})"
    )
    for note in cost.notes:
        console.note(note, indent=2)
    _print_scaling(console, pipeline)


def print_comparison(console: Console, pipelines: Sequence[AnyPipeline]) -> None:
    """A line for each pipeline, the cheapest first; what failed at the end, with the reason."""
    console.title("PIPELINES COMPARED")
    headings = [
        "pipeline", "computed px", "params", "steps", "calls", "GMACs/step", "unguided", "VAE GMACs", "TMACs",
        "denoiser", "attention", "memory",
    ]  # fmt: skip
    done = cheapest_first(pipelines)
    rows = [
        [
            cost.definition.name,
            cost.size,
            parameters_text(cost.parameters),
            str(cost.request.steps),
            str(cost.denoiser.calls),
            f"{cost.macs_per_step / GIGA:,.1f}",
            f"{cost.macs_per_step_without_guidance / GIGA:,.1f}",
            f"{cost.macs_of('vae_decode') / GIGA:,.1f}",
            f"{cost.macs / TERA:.2f}",
            f"{cost.denoiser.macs / cost.macs:.1%}",
            f"{cost.by_kind['attention'] / cost.macs:.1%}",
            f"{gib(cost.memory_bytes):.1f} GiB",
        ]
        for cost in done
    ]
    console.table(headings, rows)
    console.note(
        "GMACs/step as run, with guidance where asked for; FLOPs are 2 x MACs; memory is predicted", 0
    )
    for cost in done:
        if cost.geometry.note:
            console.note(f"{cost.definition.name}: {cost.geometry.note}", 0)
    for one in pipelines:
        if isinstance(one, FailedPipeline):
            console.bad(f"{one.name}: {one.reason}", 0)


def _guidance(cost: PipelineCost) -> str:
    scale, mode = f"guidance {cost.request.guidance_scale:g}", cost.definition.guidance
    if mode == "distilled":
        return f"{scale} ({'two calls a step' if cost.is_guided else GUIDANCE_WORDS[mode]})"
    return f"{scale} ({GUIDANCE_WORDS[mode]})" if cost.is_guided else "no guidance"


def _print_scaling(console: Console, pipeline: CostedPipeline) -> None:
    if pipeline.step_scaling is not None:
        console.line()
        console.table(
            ["steps", "denoiser calls", "TMACs", "relative"],
            [
                [
                    str(point.steps),
                    str(point.denoiser_calls),
                    f"{point.total_macs / TERA:.2f}",
                    f"{point.relative:.2f}x",
                ]
                for point in pipeline.step_scaling
            ],
        )
    if pipeline.resolution_scaling is not None:
        console.line()
        console.table(
            ["side", "computed", "GMACs/step", "TMACs", "relative", "attention in denoiser"],
            [
                [
                    str(point.side_px),
                    f"{point.computed_px[1]}x{point.computed_px[0]}",
                    f"{point.macs_per_step / GIGA:,.1f}",
                    f"{point.total_macs / TERA:.2f}",
                    f"{point.relative:.2f}x",
                    f"{point.denoiser_attention_share:.1%}",
                ]
                for point in pipeline.resolution_scaling
                if not isinstance(point, RefusedSide)
            ],
        )
        for point in pipeline.resolution_scaling:
            if isinstance(point, RefusedSide):
                console.line(f"{point.side_px}  {point.reason}")


def print_measured(console: Console, record: WatchedRecord | FailedRecord) -> None:
    """The run of `--measure`."""
    _print_run(console, record, "Measured: nothing", "Measured, one run counted and another one timed:")


def print_image_profile(console: Console, name: str, profile: LiveRecord | FailedRecord) -> None:
    """The figures of one generated image."""
    title = f"Compute profile of {name}:"
    _print_run(console, profile, f"{title} none", title)


def _print_run(console: Console, record: LiveRecord | FailedRecord, nothing: str, title: str) -> None:
    """The figures of a live pipeline, watched or predicted."""
    console.line()
    if not record["enabled"]:
        console.line(f"{nothing} ({record['reason']})")
        return
    console.line(title)
    rows = [
        ("Parameters", f"{record['params_str']} ({record['model_component']})"),
        ("FLOPs (total)", record["total_flops_str"]),
        ("MACs (total)", record["total_macs_str"]),
        ("FLOPs/step", record["flops_per_step_str"]),
        ("MACs/step", record["macs_per_step_str"]),
        ("Steps", f"{record['num_inference_steps']} ({record['denoiser_calls']} denoiser calls)"),
    ]
    if record["inference_time_str"]:
        rows.append(("Time", record["inference_time_str"]))
    if record["throughput_tflops"] is not None:
        share = record["share_of_peak"]
        of_peak = "" if share is None else f", {share:.1%} of the device's peak"
        rows.append(("Achieved", f"{record['throughput_tflops']:.3f} TFLOP/s{of_peak}"))
    for label, text in rows:
        _row(console, label, text)
    if record["source"] == "measured":
        _print_watched(console, record)  # type: ignore[arg-type]


def _print_watched(console: Console, record: WatchedRecord) -> None:
    allocated, reserved = record["cuda_peak_allocated_bytes"], record["cuda_peak_reserved_bytes"]
    if allocated is not None and reserved is not None:
        _row(console, "CUDA memory", f"{gib(allocated):.2f} GiB allocated, {gib(reserved):.2f} GiB reserved")
    for part in record["components_measured"]:
        if part["calls"]:
            _row(console, part["name"], f"{part['calls']} calls, {macs_text(part['macs'])}")
        if part["note"]:
            console.line(f"   note: {part['note']}")
    cost = record["counting_us_per_operator"]
    each = "" if cost is None else f", {figure(cost)} us each"
    _row(console, "Counted", f"{record['operators']:,} operators{each}")
    prediction = record["prediction"]
    if prediction["enabled"] and prediction["total_macs"] is not None:
        _row(console, "Predicted", macs_text(prediction["total_macs"]))
        if prediction["not_costed"]:
            console.line(f"   not in the prediction: {', '.join(prediction['not_costed'])}")
    for reason in record["incomplete"].values():
        console.line(f"   incomplete: {reason}")
    for note in record["notes"]:
        console.line(f"   note: {note}")


def _row(console: Console, label: str, text: str) -> None:
    console.line(f"   {label + ':':<{LABEL_WIDTH}}{text}")
