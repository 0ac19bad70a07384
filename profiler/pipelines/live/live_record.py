"""The record of a live pipeline: the cost as predicted, with what was watched in its place."""

from __future__ import annotations

from typing import Any

from swinmr_profiling.profiler.pipelines.defined.cost_records import PipelineCost
from swinmr_profiling.profiler.pipelines.defined.json_records import LiveRecord, WatchedRecord
from swinmr_profiling.profiler.pipelines.live.anatomy import Anatomy, module_device, module_dtype
from swinmr_profiling.profiler.pipelines.live.live_count import NetworkCount, count_run
from swinmr_profiling.profiler.pipelines.live.recorder import RecordedRun
from swinmr_profiling.profiler.pipelines.output.figures import seconds_text
from swinmr_profiling.profiler.pipelines.output.record import (
    cost_record,
    mac_figures,
    size_figures,
    summary_record,
)
from swinmr_profiling.profiler.pipelines.peak_rates import device_peak_tflops


def live_record(
    pipe: Any,
    anatomy: Anatomy,
    cost: PipelineCost,
    run: RecordedRun | None,
    model_id: str | None,
    inference_time_seconds: float | None = None,
) -> LiveRecord:
    """`cost_record` of the pipeline; with a watched run its calls, MACs, times and achieved TFLOP/s."""
    predicted, networks = cost_record(cost), anatomy.all
    seconds = inference_time_seconds
    watched: WatchedRecord = {}
    if run is not None:
        seconds = run.seconds if seconds is None else seconds
        watched = _watched(cost, anatomy, count_run(run, list(networks)))
    device, dtype = module_device(anatomy.denoiser), module_dtype(anatomy.denoiser)
    peak = device_peak_tflops(device, dtype)
    total_flops = watched.get("total_flops", predicted["total_flops"])
    achieved = total_flops / seconds / 1e12 if seconds else None
    return {
        **predicted,
        "model_id": model_id,
        "model_component": anatomy.denoiser_name,
        **size_figures(sum(p.numel() for p in anatomy.denoiser.parameters())),
        "pipeline_params": sum(p.numel() for module in networks.values() for p in module.parameters()),
        **watched,
        "inference_time_seconds": seconds,
        "inference_time_str": seconds_text(seconds),
        "inference_time_seconds_str": seconds_text(seconds),
        "throughput_tflops": achieved,
        "device": str(device),
        "device_peak_tflops": peak,
        "share_of_peak": achieved / peak if achieved is not None and peak else None,
    }


def _watched(cost: PipelineCost, anatomy: Anatomy, counted: dict[str, NetworkCount]) -> WatchedRecord:
    denoiser = counted[anatomy.denoiser_name]
    total = sum(network.macs for network in counted.values())
    timesteps = cost.timesteps
    # Time steps are the scheduler's; a run that was interrupted, or of other steps, has its calls alone.
    is_whole = denoiser.calls in (timesteps, 2 * timesteps)
    step = denoiser.macs // timesteps if is_whole else denoiser.macs // max(denoiser.calls, 1)
    text = sum(counted[name].macs for name in anatomy.text_encoders)
    vae = counted[anatomy.decoder_name].macs
    reasons = {name: network.reason for name, network in counted.items() if network.reason}
    return {
        "source": "measured",
        **mac_figures(step, total),
        "macs_per_image": total / cost.request.batch,
        "denoiser_calls": denoiser.calls,
        "unet_macs_per_step": step,
        "vae_macs": vae,
        "text_encoder_macs": text,
        "predicted_total_macs": cost.macs,
        "by_kind": {kind: sum(n.by_kind[kind] for n in counted.values()) for kind in denoiser.by_kind},
        "softmax_macs": sum(network.softmax_macs for network in counted.values()),
        "components_measured": [
            {
                "name": name,
                "calls": network.calls,
                "macs": network.macs,
                "softmax_macs": network.softmax_macs,
                "seconds": network.seconds,
                "tflops_per_second": 2 * network.macs / network.seconds / 1e12 if network.seconds else None,
                "enabled": network.reason is None,
                "reason": network.reason,
            }
            for name, network in counted.items()
        ],
        "seconds_per_denoiser_call": denoiser.seconds_per_call,
        "incomplete": reasons,
        "summary": summary_record(step, text, vae, total, cost.request.steps),
    }
