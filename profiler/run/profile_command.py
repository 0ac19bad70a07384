"""What `profile_model.py` does with one config or with several: profile, export, compare."""

from __future__ import annotations

import argparse
import re
import sys
import traceback
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from swinmr_profiling.configs.writing.atomic_files import (
    OutputError,
    check_writable,
    distinct,
)
from swinmr_profiling.configs.writing.output_claims import claimed_outputs
from swinmr_profiling.configs.writing.standard_streams import complain
from swinmr_profiling.input_error import InputError
from swinmr_profiling.profiler.comparing.command import (
    HTML_PACKAGES,
    compare_files,
    show_comparison,
    write_comparison,
)
from swinmr_profiling.profiler.isolation.worker_process import allow
from swinmr_profiling.profiler.options.exit_codes import (
    EXIT_BAD_INPUT,
    EXIT_DONE,
    EXIT_PARTIAL,
    EXIT_UNEXPECTED,
)
from swinmr_profiling.profiler.options.option_types import CONFIG_SUFFIXES
from swinmr_profiling.profiler.record.files.earlier_results import profile_results
from swinmr_profiling.profiler.record.files.private_record import private_content
from swinmr_profiling.profiler.record.files.result_file import ResultFile
from swinmr_profiling.profiler.record.profile import Profile
from swinmr_profiling.profiler.reports.console.details import print_details
from swinmr_profiling.profiler.reports.console.terminal import Console, QuietConsole, report_columns
from swinmr_profiling.profiler.reports.exports import Exports, require, summary_file, write_report
from swinmr_profiling.profiler.run.job import run_profile
from swinmr_profiling.profiler.run.options.command_line import (
    DEFAULT_OUTPUT,
    SEVERAL_OUTPUT,
    exports_of,
    with_image_size,
)
from swinmr_profiling.profiler.run.options.network_options import load_network, source_of
from swinmr_profiling.program import program_name

INTERRUPTED = "interrupted by "


@dataclass(frozen=True)
class Outcome:
    """How the run of one config ended. profile: its file, None where none was written. reason: why it is partial."""

    config: str
    code: int
    profile: Path | None
    reason: str | None

    @property
    def interrupted(self) -> bool:
        return self.reason is not None and self.reason.startswith(INTERRUPTED)


def profile_one(parsed: argparse.Namespace, given: Sequence[str]) -> int:
    """Profiles one config, then writes what else was asked for; returns the exit status. Raises InputError."""
    exports = exports_of(parsed)
    outputs = [("--output", parsed.output), ("--report", parsed.report), ("--csv", parsed.csv)]
    option, source = source_of(parsed)
    files = [
        ("--save-config", parsed.save_config),
        ("--memory-snapshot", parsed.memory_snapshot),
        ("--trace", parsed.trace),
    ]
    written = [("--markdown", parsed.markdown), ("--benchmark-json", parsed.benchmark_json), *files]
    distinct([*outputs, *written], [] if option == "--module" else [(option, source)])
    with exports.prepared() as taken, claimed_outputs(files) as claimed:
        parsed.save_config, parsed.memory_snapshot, parsed.trace = claimed
        return _profile(parsed, given, source, parsed.output, taken)[0]


def profile_several(parsed: argparse.Namespace, given: Sequence[str]) -> int:
    """Profiles each config and compares what came of them; a failing one does not lose the others.

    Returns the exit status: that of all configs where they agree, else 4. Raises InputError
    before anything is measured.
    """
    sources = parsed.configs or parsed.models
    files = profile_files(sources, Path(parsed.output))
    comparison_files = [("--report", parsed.report), ("--csv", parsed.csv), ("--markdown", parsed.markdown)]
    distinct(
        [*((f"the profile of {config}", file) for config, file in files), *comparison_files],
        [(f"the config {config}", config) for config in dict.fromkeys(parsed.configs or [])],
    )
    if parsed.report is not None:
        require(HTML_PACKAGES, "--report")
    if parsed.github_summary:
        summary_file()
    with ExitStack() as held:
        parsed.report, parsed.csv, parsed.markdown = held.enter_context(claimed_outputs(comparison_files))
        exports = []
        for config, file in files:
            check_writable(file, f"the profile of {config}")
            exports.append(held.enter_context(_exports_of_several(parsed, file).prepared()))
        outcomes = []
        for (config, file), own in zip(files, exports, strict=True):
            outcomes.append(_one_of_several(parsed, given, config, file, own))
            if outcomes[-1].interrupted:
                break
        return _conclude(parsed, outcomes)


def profile_files(configs: Sequence[str], folder: Path) -> list[tuple[str, Path]]:
    """A profile's file for each config, named after it; numbered where two configs have one name."""
    found, used = [], set()
    for config in configs:
        # A network's name is not a file's: what follows its dot is part of it (vit_base_patch16_224.augreg).
        is_file = config.endswith(CONFIG_SUFFIXES)
        stem = name = f"profile_{Path(config).stem if is_file else re.sub(r'[^A-Za-z0-9._+-]', '_', config)}"
        number = 2
        while name in used:
            name, number = f"{stem}_{number}", number + 1
        used.add(name)
        found.append((config, folder / f"{name}.json"))
    return found


def _exports_of_several(parsed: argparse.Namespace, file: Path) -> Exports:
    return Exports(plots=None if parsed.plot is None else str(Path(parsed.plot) / file.stem))


def _one_of_several(
    parsed: argparse.Namespace, given: Sequence[str], config: str, file: Path, exports: Exports
) -> Outcome:
    try:
        code, profile, result = _profile(parsed, given, config, str(file), exports)
    except InputError as error:
        complain(f"error: {error}")
        return Outcome(config, EXIT_BAD_INPUT, None, str(error))
    except Exception:
        # A network of the user's may raise anything: hours of the other configs' measuring are not to be lost to it.
        traceback.print_exc()
        return Outcome(config, EXIT_UNEXPECTED, None, "see the traceback above")
    # A disk that refused the file has been reported: there is nothing on it to compare.
    if result.moved and result.path is not None:
        file = result.path
    is_there = not result.kept_earlier and file.is_file()
    return Outcome(config, code, file if is_there else None, profile.status_reason)


def _conclude(parsed: argparse.Namespace, outcomes: Sequence[Outcome]) -> int:
    profiles = [outcome.profile for outcome in outcomes if outcome.profile is not None]
    if profiles:
        comparison = compare_files(profiles)
        console = QuietConsole() if parsed.quiet else Console(width=report_columns())
        console.line()
        show_comparison(console, comparison)
        write_comparison(
            comparison, parsed.report, parsed.markdown, parsed.csv, github_summary=parsed.github_summary
        )
    unfinished = [outcome for outcome in outcomes if outcome.code != EXIT_DONE]
    for outcome in unfinished:
        complain(f"error: {outcome.config}: exit status {outcome.code} ({outcome.reason or 'see above'})")
    not_started = (parsed.configs or parsed.models)[len(outcomes) :]
    if not_started:
        complain(f"error: interrupted: not profiled: {', '.join(not_started)}")
        return EXIT_PARTIAL
    codes = {outcome.code for outcome in outcomes}
    return codes.pop() if len(codes) == 1 else EXIT_PARTIAL


def _profile(
    parsed: argparse.Namespace, given: Sequence[str], config: str, output: str, exports: Exports
) -> tuple[int, Profile, ResultFile]:
    """Exit status, what was found, and the file that it was written to."""
    loaded = load_network(parsed, config)
    loaded = with_image_size(loaded, parsed.image_size)
    training = loaded.config.training
    if training.plan is not None or training.checkpoint_budget is not None:
        # Imported here: it needs torch.
        from swinmr_profiling.profiler.plan.budgeted_modules import as_trained

        config_as_trained, told = as_trained(
            loaded.config, trust_config=parsed.trust_config, config_file=str(config)
        )
        loaded = replace(loaded, config=config_as_trained)
        for message in told:
            complain(message)
    for message in loaded.messages:
        complain(message)
    if parsed.save_config is not None:
        write_report(parsed.save_config, loaded.as_file(), "--save-config")
        complain(f"config saved to: {parsed.save_config}")
    # Of the default name alone: whoever names a file says that it may be replaced, and --resume goes on in it.
    is_default = parsed.output in (DEFAULT_OUTPUT, SEVERAL_OUTPUT) and not parsed.resume
    results_of = partial(profile_results, failures=parsed.resume)
    with ResultFile(output, results_of, keeps_earlier=is_default) as result:
        result.prepare(goes_on=parsed.resume)
        console = _console(parsed, result)
        options = parsed.run_options(
            loaded.config.system, [*program_name("profile_model.py").split(), *given]
        )
        allow(parsed.memory_limit)
        code, profile = run_profile(loaded, options, console, result)
        if parsed.private:
            profile = Profile.model_validate(private_content(profile.to_json()))
        if parsed.verbose:
            print_details(console, profile)
        # What says nothing new replaces no report either.
        if exports.wanted and not result.kept_earlier:
            code = _export(console, exports, profile, result.name, code)
        return code, profile, result


def _console(parsed: argparse.Namespace, result: ResultFile) -> Console:
    stream = sys.stderr if result.to_standard_output else sys.stdout
    if parsed.quiet:
        return QuietConsole(stream)
    return Console(stream, report_columns(), verbose=parsed.verbose)


def _export(console: Console, exports: Exports, profile: Profile, name: str, code: int) -> int:
    """Writes the exports; what cannot be written makes a run that was done a partial one."""
    try:
        for file in exports.write(profile, name):
            console.good(f"Report saved to: {file}", indent=0)
    except OutputError as error:
        complain(f"error: {error}")
        return code or EXIT_PARTIAL
    return code
