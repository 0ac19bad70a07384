"""The record of a live pipeline: of the run that was watched, whatever pipeline it is, or as predicted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from swinmr_profiling.profiler.counting import KINDS
from swinmr_profiling.profiler.pipelines.defined.cost_records import PipelineCost
from swinmr_profiling.profiler.pipelines.defined.json_records import (
    DeviceFigures,
    LivePrediction,
    PredictedRecord,
    WatchedRecord,
)
from swinmr_profiling.profiler.pipelines.live.anatomy import Anatomy, module_device, module_dtype
from swinmr_profiling.profiler.pipelines.live.timed_run import TimedRun, device_peak_tflops
from swinmr_profiling.profiler.pipelines.live.watched_run import PlainValue, WatchedRun
from swinmr_profiling.profiler.pipelines.output.figures import seconds_text
from swinmr_profiling.profiler.pipelines.output.record import cost_record, summary_record, work_figures


def watched_record(
    run: WatchedRun,
    anatomy: Anatomy,
    input_shape: Sequence[int],
    num_inference_steps: int,
    model_id: str | None,
    guidance_scale: float,
    prediction: LivePrediction,
    timed: TimedRun,
) -> WatchedRecord:
    """What was counted. The steps, the guidance and the batch are those of the call where it told them."""
    calls = max(len(run.calls), 1)
    told = run.calls[-1].arguments if run.calls else {}
    steps = _number(told, "num_inference_steps", num_inference_steps)
    batch = _batch(told, input_shape)
    networks = {name: count for name, count in run.networks.items() if name in anatomy.all}
    denoisers = [networks[name] for name in anatomy.denoisers if name in networks]
    denoiser_calls = sum(count.calls for count in denoisers)
    # What the scheduler stepped, in all calls; where it was not seen to, the denoiser's calls.
    times = run.scheduler_steps or denoiser_calls
    step = sum(count.macs for count in denoisers) // max(times, 1)
    text = sum(networks[name].macs for name in anatomy.text_encoders if name in networks)
    vae = sum(networks[name].macs for name in anatomy.decoders if name in networks)
    total = run.macs
    achieved = _tflops(2 * total / calls, timed)
    return {
        "enabled": True,
        "source": "measured",
        "model_id": model_id,
        "pipeline": anatomy.pipeline_class,
        "pipeline_class": anatomy.pipeline_class,
        "model_component": " + ".join(anatomy.denoisers) or "-",
        "pipeline_params": _parameters(anatomy.all.values()),
        **work_figures(_parameters(anatomy.denoisers.values()), step, total),
        "pipeline_calls": len(run.calls),
        "macs_per_call": total / calls,
        "macs_per_image": total / (calls * batch),
        "by_kind": {kind: sum(n.by_kind[kind] for n in run.networks.values()) for kind in KINDS},
        "by_operator": run.by_operator,
        "softmax_macs": sum(network.softmax_macs for network in run.networks.values()),
        "num_inference_steps": steps,
        "scheduler": type(run.pipe.scheduler).__name__ if hasattr(run.pipe, "scheduler") else None,
        "denoiser_steps": times,
        "denoiser_calls": denoiser_calls,
        "guidance_scale": _number(told, "guidance_scale", guidance_scale),
        "batch": batch,
        "input_shape": list(input_shape),
        "latent_shape": _latent_shape(run, anatomy),
        "unet_macs_per_step": step,
        "vae_macs": vae,
        "text_encoder_macs": text,
        "inference_time_seconds": timed.seconds,
        "inference_time_str": seconds_text(timed.seconds),
        "throughput_tflops": achieved,
        **_device_figures(anatomy, achieved, timed),
        "cuda_peak_allocated_bytes": timed.peak_allocated_bytes,
        "cuda_peak_reserved_bytes": timed.peak_reserved_bytes,
        "components_measured": [
            {
                "name": count.name,
                "calls": count.calls,
                "macs": count.macs,
                "softmax_macs": count.softmax_macs,
                "by_kind": count.by_kind,
                "enabled": count.reason is None,
                "reason": count.reason,
                "note": count.note,
            }
            for count in run.networks.values()
        ],
        "never_called": run.never_called,
        "incomplete": run.incomplete,
        "partial": run.partial,
        "watched_seconds": run.seconds,
        "operators": run.operators,
        "counting_us_per_operator": run.counting_us,
        "prediction": prediction,
        "predicted_total_macs": prediction["total_macs"],
        "summary": summary_record(step, text / calls, vae / calls, total / calls, steps),
        "notes": _notes(run, num_inference_steps, steps, len(denoisers)),
    }


def predicted_record(
    cost: PipelineCost, anatomy: Anatomy, left_out: list[str], model_id: str | None, timed: TimedRun
) -> PredictedRecord:
    """`cost_record` of a live pipeline; `left_out`: its networks that the cost does not hold."""
    predicted = cost_record(cost)
    name, denoiser = anatomy.denoiser
    achieved = _tflops(predicted["total_flops"], timed)
    notes = predicted["notes"]
    if left_out:
        notes = [*notes, f"not costed: {', '.join(left_out)}; what they do is only seen in a watched run"]
    return {
        **predicted,
        "model_id": model_id,
        "model_component": name,
        **work_figures(_parameters([denoiser]), cost.macs_per_step, cost.macs),
        "pipeline_params": _parameters(anatomy.all.values()),
        "not_costed": left_out,
        "notes": notes,
        "inference_time_seconds": timed.seconds,
        "inference_time_str": seconds_text(timed.seconds),
        "throughput_tflops": achieved,
        **_device_figures(anatomy, achieved, timed),
    }


def _tflops(flops: float, timed: TimedRun) -> float | None:
    return flops / timed.seconds / 1e12 if timed.seconds else None


def _device_figures(anatomy: Anatomy, achieved: float | None, timed: TimedRun) -> DeviceFigures:
    network = next(iter((anatomy.denoisers or anatomy.all).values()), None)
    device = None if network is None else module_device(network)
    peak = None if network is None else device_peak_tflops(module_device(network), module_dtype(network))
    return {
        "inference_time_seconds_str": seconds_text(timed.seconds),
        "device": str(device or "-"),
        "device_peak_tflops": peak,
        "share_of_peak": achieved / peak if achieved is not None and peak else None,
    }


def _parameters(networks: Any) -> int:
    # A tensor of two networks is one: tied text encoders, a transformer used twice.
    return sum({id(p): p.numel() for network in networks for p in network.parameters()}.values())


def _number(told: Mapping[str, PlainValue], name: str, otherwise: Any) -> Any:
    value = told.get(name)
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else otherwise


def _batch(told: Mapping[str, PlainValue], input_shape: Sequence[int]) -> int:
    if not told:
        return int(input_shape[0])
    images = [told.get(f"num_{what}_per_prompt") for what in ("images", "videos", "waveforms")]
    return int(_number(told, "prompts", 1)) * next((n for n in images if isinstance(n, int)), 1)


def _latent_shape(run: WatchedRun, anatomy: Anatomy) -> list[int] | None:
    """What the decoder decoded last, of a pipeline with one."""
    parts = (f"{name}.{part}" for name in anatomy.decoders for part in ("post_quant_conv", "decoder"))
    return next((run.shapes[part] for part in parts if part in run.shapes), None)


def _notes(run: WatchedRun, asked: int, steps: int, denoisers: int) -> list[str]:
    notes = list(run.remarks)
    if run.partial:
        notes.append(f"partial: the run ended with {run.partial}; what had been counted until then is kept")
    if len(run.calls) > 1:
        notes.append(f"{len(run.calls)} calls of the pipeline were watched: totals are of all of them")
    if steps != asked:
        notes.append(f"the run was asked for {steps} steps, not for the {asked} that were named")
    if run.never_called:
        notes.append(f"never called: {', '.join(run.never_called)}")
    if not denoisers:
        notes.append("no network is known as the denoiser by its signature: no figure of a step")
    return notes
