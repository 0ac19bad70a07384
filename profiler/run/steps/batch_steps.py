"""Steps 4 and 5: one image, then the batch sizes from small to large."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from tqdm import tqdm

from swinmr_profiling.profiler.batch_size.inference_recommendation import recommend_inference
from swinmr_profiling.profiler.isolation.worker_process import Progress, WorkerError
from swinmr_profiling.profiler.measure.machine.machine_state import StealTime, gpu_warnings
from swinmr_profiling.profiler.measure.measurement_blocks import (
    batch_block,
    measurement_warnings,
    perceptual_metric_block,
)
from swinmr_profiling.profiler.measure.timing.latency import PROCESSES, TARGET_HALF_WIDTH, LatencyPolicy
from swinmr_profiling.profiler.record.blocks.batch import Batch, Expected, FailedBatch, MeasuredBatch
from swinmr_profiling.profiler.record.failures import is_answer
from swinmr_profiling.profiler.record.reconstruction_cost import add_latency
from swinmr_profiling.profiler.record.units import figure
from swinmr_profiling.profiler.record.warnings import ProfileWarning
from swinmr_profiling.profiler.reports.console.steps import (
    print_batch,
    print_perceptual_metric,
    print_single_image,
)
from swinmr_profiling.profiler.run.context import RunContext
from swinmr_profiling.profiler.run.steps.prediction_steps import predicted_block
from swinmr_profiling.profiler.run.steps.sweep import DEFAULT_SWEEP_LIMIT_S, SizeResult, Sweep
from swinmr_profiling.profiler.run.steps.training_steps import is_final

# Warnings of other work on the machine.
DISTURBED_CODES = ("machine_busy", "time_stolen", "gpu_shared")


def measure_batches(context: RunContext, sizes: list[int]) -> None:
    """Fills `single_image`, `batch_profiling` and `recommendation`, saved after each size."""
    profile, console = context.profile, context.console
    sweep = _open_sweep(context)
    console.step(4, "Profiling single image inference...")
    if profile.single_image is None:

        def keep_single(block: Batch) -> None:
            profile.single_image = block

        _measure(context, sweep, 1, keep_single)
    single = profile.single_image
    assert single is not None
    print_single_image(console, single)
    add_latency(profile.architecture, single)
    context.save()
    console.step(5, "Profiling batch sizes...")
    bar = tqdm(sizes, unit="size", disable=None, file=sys.stderr, leave=False)
    for size in bar:
        bar.set_description(f"batch {size}")
        console.heading(f"  Testing batch size: {size}")
        if str(size) not in profile.batch_profiling:
            # The single image is batch 1: one measurement under both names.
            if size == 1:
                profile.batch_profiling["1"] = single
            else:
                _measure(context, sweep, size, partial(profile.batch_profiling.__setitem__, str(size)), bar)
        predicted = predicted_block(context, size)
        # A resumed profile's own measurement says more than a prediction.
        if predicted is not None and not is_final(profile.batch_profiling[str(size)].training):
            profile.set_training(size, predicted)
        print_batch(console, profile.batch_profiling[str(size)])
        warn_about_gpu(context)
        busy = any(warning.code in DISTURBED_CODES for warning in profile.warnings)
        profile.recommend(inference=recommend_inference(profile.batch_profiling, busy=busy))
        context.save()


def measure_perceptual_metric(context: RunContext) -> None:
    """Fills `perceptual_metric`: what one LPIPS comparison costs beside the network."""
    console = context.console
    console.heading("  LPIPS, one comparison of two images")
    if context.profile.perceptual_metric is not None:  # of a resumed profile
        print_perceptual_metric(console, context.profile.perceptual_metric)
        return
    image_hw = context.input_shape[-2:]
    try:
        measured = context.session.lpips(image_hw, replace(_policy(context), processes=1))
    except WorkerError as error:
        context.warn(ProfileWarning("lpips_not_measured", f"LPIPS was not measured: {error.failure.detail}"))
        return
    context.profile.perceptual_metric = perceptual_metric_block(measured, context.device_kind)
    print_perceptual_metric(console, context.profile.perceptual_metric)
    context.save()


def failed_sizes(batch_profiling: dict[str, Batch]) -> list[str]:
    """Batch sizes that failed for another reason than memory."""
    return [
        size
        for size, block in batch_profiling.items()
        if isinstance(block, FailedBatch) and not is_answer(block.error, block.detail)
    ]


def warn_about_gpu(context: RunContext) -> None:
    """Warns of a throttled or shared GPU, as it is now."""
    gpu, process = context.gpu, context.session.process
    if gpu is not None and process is not None:
        for warning in gpu_warnings(gpu.uuid, {process.process.pid}):
            context.warn(warning)


def _policy(context: RunContext) -> LatencyPolicy:
    measure = context.options.measure
    target = TARGET_HALF_WIDTH[context.device_kind]
    # GPUs repeat themselves from process to process; a requested number of runs is one series; and each process
    # would compile anew.
    several = context.device_kind == "cpu" and measure.num_runs is None and not measure.compile
    return LatencyPolicy(
        measure.num_runs,
        measure.warmup,
        measure.time_budget_s,
        target,
        processes=PROCESSES if several else 1,
    )


def _open_sweep(context: RunContext) -> Sweep:
    kind = context.device_kind
    limited = kind == "cpu" and context.options.batch_sizes is None
    sweep = Sweep(
        context.session,
        _policy(context),
        on_cpu=kind == "cpu",
        limit_s=DEFAULT_SWEEP_LIMIT_S if limited else None,
    )
    done = [context.profile.single_image, *context.profile.batch_profiling.values()]
    for block in done:  # of a resumed profile
        if isinstance(block, MeasuredBatch):
            sweep.note_block(block)
        elif block is not None and block.error == "OOM":
            sweep.out_of_memory_at = block.batch_size
    return sweep


def _measure(
    context: RunContext,
    sweep: Sweep,
    size: int,
    keep: Callable[[Batch], None],
    bar: tqdm | None = None,
) -> None:
    """Measures one size and gives its block to `keep`, after each process where there are several."""
    latest: SizeResult | None = None
    stolen = StealTime()

    def on_start(expectation: Expected | None) -> None:
        if expectation is not None:
            seconds = expectation.latency_ms / 1000
            context.console.note(f"about {figure(seconds)} s a run, by batch {expectation.from_batch}")

    def on_progress(progress: Progress) -> None:
        if bar is not None:
            bar.set_postfix_str(f"{progress.runs} runs")

    def on_part(part: SizeResult) -> None:
        nonlocal latest
        latest = part
        keep(_block(context, part))
        context.save()

    try:
        latest = sweep.measure(size, on_start, on_progress, on_part)
        keep(_block(context, latest))
    finally:
        # An interruption, too, leaves figures whose faults must be told.
        if latest is not None:
            _tell(context, latest)
            if latest.measurement is not None and context.device_kind == "cpu":
                context.warn(stolen.warning(size))


def _tell(context: RunContext, result: SizeResult) -> None:
    if result.measurement is not None:
        for warning in measurement_warnings(result.measurement, context.device_kind):
            context.warn(warning)
    elif result.traceback is not None and result.failure is not None and result.failure.error == "exception":
        print(result.traceback, file=sys.stderr, end="")


def _block(context: RunContext, result: SizeResult) -> Batch:
    block: Batch
    if result.failure is None:
        assert result.measurement is not None
        block = batch_block(result.measurement, context.device_kind)
    else:
        shape = [result.batch_size, *context.input_shape[1:]]
        error, detail = result.failure.error, result.failure.detail
        block = FailedBatch(error=error, detail=detail, batch_size=result.batch_size, input_shape=shape)
    if result.expectation is not None:
        block.expected = result.expectation
    return block
