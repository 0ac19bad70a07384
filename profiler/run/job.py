"""The main job from config to profile: five steps, each saved as soon as it is known."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial

from swinmr_profiling.configs import LoadedConfig
from swinmr_profiling.configs.writing.standard_streams import complain
from swinmr_profiling.profiler.batch_size.training_recommendation import needs_exit_3
from swinmr_profiling.profiler.isolation.measuring_session import MeasuringSession
from swinmr_profiling.profiler.isolation.worker_process import WorkerError
from swinmr_profiling.profiler.measure.machine.machine_state import governor_warning, load_now, load_warning
from swinmr_profiling.profiler.options.exit_codes import (
    EXIT_DONE,
    EXIT_GATE_FAILED,
    EXIT_NOTHING_FITS,
    EXIT_PARTIAL,
)
from swinmr_profiling.profiler.prediction.prediction_session import MAX_PROCESSES, PredictionSession
from swinmr_profiling.profiler.record.blocks.batch import FailedBatch
from swinmr_profiling.profiler.record.blocks.run_description import RunConfig
from swinmr_profiling.profiler.record.files.private_record import relative_path, without_path
from swinmr_profiling.profiler.record.files.result_file import ResultFile
from swinmr_profiling.profiler.record.profile import Profile
from swinmr_profiling.profiler.reports.console.steps import print_configuration
from swinmr_profiling.profiler.reports.console.summary import print_answer, print_summary
from swinmr_profiling.profiler.reports.console.terminal import Console, QuietConsole
from swinmr_profiling.profiler.run.context import RunContext, RunOptions
from swinmr_profiling.profiler.run.interruption import Interrupted, interruptible
from swinmr_profiling.profiler.run.resume import check_machine, read_earlier, take_over
from swinmr_profiling.profiler.run.steps.architecture_steps import (
    analyse_architecture,
    ask_other_counters,
    counting_gate_failed,
    measure_module_costs,
)
from swinmr_profiling.profiler.run.steps.batch_steps import (
    failed_sizes,
    measure_batches,
    measure_perceptual_metric,
    warn_about_gpu,
)
from swinmr_profiling.profiler.run.steps.optional_steps import (
    measure_energy_and_loading,
    write_memory_snapshot,
    write_trace,
)
from swinmr_profiling.profiler.run.steps.prediction_steps import (
    config_of_training,
    predict_training,
    trace_ahead,
)
from swinmr_profiling.profiler.run.steps.sweep import DEFAULT_BATCH_SIZES
from swinmr_profiling.profiler.run.steps.training_steps import (
    choose_training_batch,
    failed_training,
    measure_training,
    wants_training,
)


def config_block(loaded: LoadedConfig, options: RunOptions, sizes: list[int]) -> RunConfig:
    """The `config` block: the names users know, every option that changes a figure, the resolved config."""
    config = loaded.config
    return RunConfig(
        model=config.model.net_type,
        image_size=getattr(config.model, "img_size", None),
        config_file=str(loaded.file),
        config_sha256=loaded.sha256,
        experiment_name=config.experiment_name,
        batch_sizes=sizes,
        **asdict(options.measure),
        resolved=config.model_dump(mode="json"),
    )


def run_profile(
    loaded: LoadedConfig, options: RunOptions, console: Console, result: ResultFile
) -> tuple[int, Profile]:
    """Profiles the network of a config; returns the exit code and what was found.

    Whatever ends the run, what was measured is in the result. Raises RequestRefusedError and ResumeError for
    what the user must change.
    """
    # Small sizes first, so that a failure costs the fewest figures.
    sizes = sorted(DEFAULT_BATCH_SIZES if options.batch_sizes is None else options.batch_sizes)
    profile = Profile.begun(config_block(loaded, options, sizes))
    # Before anything is started: whatever ends the run, it has what the earlier one had.
    earlier = read_earlier(result.path) if options.resume else None
    taken_over = [] if earlier is None else take_over(profile, earlier)
    session = MeasuringSession(options.measure, loaded.config)
    context = RunContext(options, session, profile, console, result)
    prediction = PredictionSession(
        config_of_training(profile, options),
        trust_config=options.measure.trust_config,
        # A step of the user's own may do anything, and hang.
        timeout_s=session.timeout_s(None) if loaded.config.training.other_step is not None else None,
        cache=options.training.cache,
    )

    def end_at_once() -> None:
        session.kill()
        prediction.kill()

    with interruptible(before_sudden_end=end_at_once) as only_saving_is_left:
        try:
            with session:
                load = load_now()  # before our own processes add to it
                with prediction:
                    if options.training.enabled and profile.memory_model is None:
                        # They import while the network is built and counted.
                        prediction.start(MAX_PROCESSES)
                    _open(context, earlier, taken_over, load)
                    _answer(context, prediction, sizes)
                with context.status.shown():
                    ask_other_counters(context)
                if not options.training.predict_only:
                    measure_batches(context, sizes)
                    measure_module_costs(context)
                    if options.trace is not None:
                        write_trace(context)
                    if wants_training(context):
                        measure_training(context, sizes)
                        if context.device_kind == "cuda":
                            choose_training_batch(context)
                    measure_energy_and_loading(context, sizes)
                    if options.with_lpips:
                        measure_perceptual_metric(context)
            reason = _what_failed(profile, options, context.unwritten)
            only_saving_is_left()
        except Interrupted as interrupted:
            reason = str(interrupted)
        except WorkerError as error:
            console.bad(f"{error.failure.error}: {error.failure.detail}")
            if error.traceback is not None and error.failure.error == "exception":
                print(error.traceback, file=sys.stderr, end="")
            reason = error.failure.detail
        return _finish(context, reason), profile


def _answer(context: RunContext, prediction: PredictionSession, sizes: list[int]) -> None:
    """Builds, counts and predicts; what the steps print follows the answer that they give."""
    training = context.options.training
    answer = partial(print_answer, context.console, context.profile, latency_comes=not training.predict_only)
    with context.console.after(answer), context.status.shown():
        analyse_architecture(
            context, on_built=partial(trace_ahead, context, prediction) if training.enabled else lambda: None
        )
        if training.enabled:
            predict_training(context, prediction, sizes)
        if context.options.memory_snapshot is not None:
            write_memory_snapshot(context, prediction, sizes)


def _open(context: RunContext, earlier: Profile | None, taken_over: list[str], load: float | None) -> None:
    opened = context.session.open()
    profile = context.profile
    profile.config.device = opened.device
    profile.environment = opened.environment
    context.environment.command_line = shlex.join(context.options.command_line)
    if earlier is not None:
        check_machine(profile, earlier)
    shown = profile.config
    if context.options.private:
        shown = shown.model_copy(update={"config_file": without_path(shown.config_file)})
    print_configuration(context.console, shown)
    if context.options.resume:
        context.console.line(
            f"  - Resumed: {'batch ' + ', '.join(taken_over) if taken_over else 'nothing yet'}"
        )
    context.warn(load_warning(context.environment.cpu.usable_cores, load))
    if context.device_kind == "cpu":
        context.warn(governor_warning())
    warn_about_gpu(context)
    context.save()


def _what_failed(profile: Profile, options: RunOptions, unwritten: Sequence[str]) -> str | None:
    """What a run that reached its end still lacks, or None. unwritten: files that were asked for."""
    failed = [f"batch {size}" for size in failed_sizes(profile.batch_profiling)]
    failed += unwritten
    failed += [f"training at batch {size}" for size in failed_training(profile.training)]
    if profile.architecture is not None and profile.architecture.count_error is not None:
        failed.insert(0, "the count of MACs")
    if options.training.predict_only and profile.memory_model is None:
        failed.append("the prediction, and nothing else was asked for")
    return f"failed: {', '.join(failed)}" if failed else None


def _finish(context: RunContext, partial_reason: str | None) -> int:
    profile, console, result = context.profile, context.console, context.result
    profile.status = "complete" if partial_reason is None else "partial"
    profile.status_reason = partial_reason
    title = "ANSWER"
    if isinstance(console, QuietConsole):  # nothing else says whose it is
        file = profile.config.config_file
        title += f" for {without_path(file) if context.options.private else relative_path(file)}"
    print_summary(console, profile, title)
    elsewhere = result.finish(context.content(), replace=partial_reason is None)
    console.line()
    if elsewhere is not None:
        complain(f"error: {elsewhere}")
        return EXIT_PARTIAL
    if result.kept_earlier:
        console.bad(f"Nothing new was measured ({partial_reason}): {result.name} stays as it was", indent=0)
        return EXIT_PARTIAL
    if partial_reason is not None:
        console.bad(f"Partial results ({partial_reason}) saved to: {result.name}", indent=0)
        return EXIT_PARTIAL
    console.good(f"Results saved to: {result.name}", indent=0)
    if context.options.strict_flops and counting_gate_failed(profile.architecture):
        complain("error: --strict-flops: not every operator was counted (see the warning)")
        return EXIT_GATE_FAILED
    if context.options.training.cards and needs_exit_3(profile.training_advice):
        complain("error: training fits none of these cards as the config has it (see above)")
        return EXIT_NOTHING_FITS
    if context.options.training.predict_only:
        return EXIT_DONE
    blocks = profile.batch_profiling.values()
    failed = [block for block in blocks if isinstance(block, FailedBatch)]
    if len(failed) == len(blocks):
        complain(f"error: no requested batch size ran: {failed[0].error}, {failed[0].detail}")
        return EXIT_NOTHING_FITS
    return EXIT_DONE
