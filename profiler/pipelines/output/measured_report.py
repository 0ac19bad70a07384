"""What is printed of a run: the figures, the networks that did the work, and whatever is missing."""

from __future__ import annotations

from swinmr_profiling.profiler.pipelines.defined.json_records import FailedRecord, LiveRecord, WatchedRecord
from swinmr_profiling.profiler.pipelines.output.figures import gib, macs_text
from swinmr_profiling.profiler.record.units import figure
from swinmr_profiling.profiler.reports.console.terminal import Console

LABEL_WIDTH = 15


def print_measured(console: Console, record: WatchedRecord | FailedRecord) -> None:
    """The run of `--measure`."""
    _print_run(console, record, "Measured: nothing", "Measured, one run counted and another one timed:")


def print_image_profile(console: Console, name: str, profile: LiveRecord | FailedRecord) -> None:
    """The figures of one generated image."""
    title = f"Compute profile of {name}:"
    _print_run(console, profile, f"{title} none", title)


def _print_run(console: Console, record: LiveRecord | FailedRecord, nothing: str, title: str) -> None:
    console.line()
    if not record["enabled"]:
        console.line(f"{nothing} ({record['reason']})")
        return
    console.line(title)
    print_figures(console, record)


def print_figures(console: Console, record: LiveRecord) -> None:
    """The figures of a live pipeline, watched or predicted."""
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
