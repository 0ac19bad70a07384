"""The block of figures that is printed for every generated image."""

from __future__ import annotations

from swinmr_profiling.profiler.pipelines.defined.json_records import FailedRecord, LiveRecord
from swinmr_profiling.profiler.pipelines.output.figures import macs_text
from swinmr_profiling.profiler.record.units import figure
from swinmr_profiling.profiler.reports.console.terminal import Console


def print_image_profile(console: Console, name: str, profile: LiveRecord | FailedRecord) -> None:
    """Figures of one image; where there are none, why."""
    console.line()
    if not profile["enabled"]:
        console.line(f"Compute profile of {name}: none ({profile['reason']})")
        return
    console.line(f"Compute profile of {name}:")
    rows = [
        ("Parameters", f"{profile['params_str']} ({profile['model_component']})"),
        ("FLOPs (total)", profile["total_flops_str"]),
        ("MACs (total)", profile["total_macs_str"]),
        ("FLOPs/step", profile["flops_per_step_str"]),
        ("MACs/step", profile["macs_per_step_str"]),
        ("Steps", f"{profile['num_inference_steps']} ({profile['denoiser_calls']} denoiser calls)"),
        ("Time", profile["inference_time_str"] or "-"),
    ]
    if profile["throughput_tflops"] is not None:
        share = profile["share_of_peak"]
        of_peak = "" if share is None else f", {share:.1%} of the device's peak"
        rows.append(("Achieved", f"{profile['throughput_tflops']:.3f} TFLOP/s{of_peak}"))
    for label, text in rows:
        console.line(f"   {label + ':':<15}{text}")
    for part in profile.get("components_measured", ()):
        if part["calls"]:
            text = f"{part['calls']} calls, {macs_text(part['macs'])}, {figure(part['seconds'])}s"
            console.line(f"   {part['name'] + ':':<15}{text}")
    for reason in profile.get("incomplete", {}).values():
        console.line(f"   incomplete: {reason}")
