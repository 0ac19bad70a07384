"""What a run does only where it was asked to: energy, data loading, files for PyTorch's memory viewer and Perfetto."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path

from swinmr_profiling.configs.writing.atomic_files import reason, replacing
from swinmr_profiling.configs.writing.standard_streams import complain
from swinmr_profiling.profiler.isolation.worker_process import RequestRefusedError, WorkerError
from swinmr_profiling.profiler.prediction.prediction_session import PredictionSession
from swinmr_profiling.profiler.prediction.settings import setting_of
from swinmr_profiling.profiler.record.blocks.batch import MeasuredBatch
from swinmr_profiling.profiler.record.blocks.training import TrainingRun
from swinmr_profiling.profiler.record.warnings import ProfileWarning
from swinmr_profiling.profiler.run.context import RunContext
from swinmr_profiling.profiler.run.steps.prediction_steps import config_of_training


def write_memory_snapshot(context: RunContext, session: PredictionSession, sizes: list[int]) -> None:
    """Writes the predicted step of a batch to --memory-snapshot.

    Of the largest batch that was asked for; without --batch-sizes of the config's own, where it has one.
    """
    profile, options = context.profile, context.options
    model, advice = profile.memory_model, profile.training_advice
    if model is None or not advice:
        _give_up(context, "--memory-snapshot", "the memory of training is not predicted")
        return
    config = config_of_training(profile, options)
    batch = max(sizes)
    if options.batch_sizes is None and isinstance(config.data.batch_size, int):
        batch = config.data.batch_size
    setting = setting_of(config, options.measure.precision)
    budget = advice[0].budget
    own = model.config_setting
    expected = own.sizes[str(batch)].allocated_bytes + budget.workspace_bytes
    title = (
        f"PREDICTED training step of {config.model.net_type}, batch {batch}, {own.precision}, checkpointing "
        f"{own.checkpointing}, workspaces of {budget.name}; nothing was run"
    )

    def write(temporary: Path) -> None:
        written = session.snapshot(
            setting,
            batch,
            temporary,
            workspace_bytes=budget.workspace_bytes,
            title=title,
            private=options.private,
        )
        assert written.peak_bytes == expected, (written, expected)
        lines = (
            "" if written.with_lines else ", without lines of code: the network takes another way each time"
        )
        context.console.note(f"--memory-snapshot: batch {batch}, peak {written.peak_bytes:,} bytes{lines}")

    context.status.say("writing the predicted step for PyTorch's memory viewer")
    _write(context, "--memory-snapshot", options.memory_snapshot, write)


def write_trace(context: RunContext) -> None:
    """Writes a measured pass of the largest batch that ran to --trace."""
    file = context.options.trace
    blocks = context.profile.batch_profiling.values()
    ran = [block.batch_size for block in blocks if isinstance(block, MeasuredBatch)]
    if not ran:
        _give_up(context, "--trace", "no batch size ran")
        return

    def write(temporary: Path) -> None:
        events = context.session.trace_forward(max(ran), temporary, compress=str(file).endswith(".gz"))
        context.console.note(f"--trace: batch {max(ran)}, {events:,} events")

    _write(context, "--trace", file, write)


def measure_energy_and_loading(context: RunContext, sizes: list[int]) -> None:
    """Fills `energy` and `data_loading`, where they were asked for; what cannot be had earns a warning.

    Of the largest batch that ran, and the largest whose training was measured.
    """
    profile, options, console = context.profile, context.options, context.console
    blocks = [one for one in profile.batch_profiling.values() if isinstance(one, MeasuredBatch)]
    trained = [
        block for block in blocks if isinstance(block.training, TrainingRun) and block.training.step_ms
    ]
    largest = max((block.batch_size for block in trained), default=None)
    if options.energy and profile.energy is None and blocks:
        context.status.say("measuring energy")
        try:
            profile.energy = context.session.energy(max(one.batch_size for one in blocks), largest)
        except (WorkerError, RequestRefusedError) as error:
            context.warn(ProfileWarning("energy_not_measured", f"energy is not measured: {error}"))
        else:
            for figure in profile.energy.figures:
                of = "image" if figure.joules_per_step is None else "step"
                joules = figure.joules_per_step or figure.joules_per_image
                text = f"{figure.what.replace('_', ' ')}: {joules:.4g} J per {of}, {figure.mean_watts:.1f} W"
                console.good(f"Energy of {text} ({profile.energy.covers})")
    if options.loader and profile.data_loading is None:
        context.status.say("timing the data loader")
        batch = largest or max(sizes)
        step_ms = None
        if largest is not None:
            training = profile.batch_profiling[str(largest)].training
            assert isinstance(training, TrainingRun)
            assert training.step_ms is not None
            # The first step makes the optimizer's state.
            step_ms = statistics.median(training.step_ms[1:] or training.step_ms)
            step_ms /= context.session.config.training.accumulate
        try:
            profile.data_loading = context.session.loading(batch, step_ms)
        except (WorkerError, RequestRefusedError) as error:
            context.warn(ProfileWarning("loader_not_timed", f"the data loader is not timed: {error}"))
        else:
            found = profile.data_loading
            beside = "" if step_ms is None else f", a step takes {step_ms:.4g} ms"
            slow = "; training waits for its data" if found.waits else ""
            rate = f"{found.images_per_second:.4g} images/s with {found.num_workers} workers"
            console.good(f"Data loader, batch {batch}: {rate}{beside}{slow}")
    context.save()


def _write(context: RunContext, option: str, file: str | None, write: Callable[[Path], None]) -> None:
    assert file is not None
    try:
        with replacing(Path(file)) as temporary:
            write(temporary)
    except (WorkerError, RequestRefusedError) as error:
        _give_up(context, option, str(error))
    except OSError as error:
        _give_up(context, option, f"{file}: {reason(error)}")
    else:
        context.console.good(f"Saved to: {file}", indent=4)


def _give_up(context: RunContext, option: str, why: str) -> None:
    context.unwritten.append(option)
    complain(f"error: {option}: {why}")
