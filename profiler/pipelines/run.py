"""The run of `profile_pipeline.py`: cost what was asked for, print it, write the files."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from tqdm import tqdm

from swinmr_profiling.configs.writing.atomic_files import (
    OutputError,
    distinct,
    reason,
)
from swinmr_profiling.configs.writing.output_claims import claimed_outputs
from swinmr_profiling.configs.writing.standard_streams import complain
from swinmr_profiling.profiler.measure.machine.devices import PRECISIONS
from swinmr_profiling.profiler.options.exit_codes import EXIT_BAD_INPUT, EXIT_DONE, EXIT_PARTIAL
from swinmr_profiling.profiler.pipelines.command_line import DEFAULT_OUTPUT, PipelineArguments
from swinmr_profiling.profiler.pipelines.defined.component_counts import ComponentCounts
from swinmr_profiling.profiler.pipelines.defined.cost import (
    cost_pipeline,
    resolution_scaling,
    step_scaling,
)
from swinmr_profiling.profiler.pipelines.defined.cost_records import (
    AnyPipeline,
    CostedPipeline,
    FailedPipeline,
    MeasuredPipeline,
)
from swinmr_profiling.profiler.pipelines.defined.definition import (
    PipelineDefinition,
    list_pipelines,
    load_pipeline,
)
from swinmr_profiling.profiler.pipelines.defined.folder import INDEX_NAME, read_pipeline_folder
from swinmr_profiling.profiler.pipelines.errors import PipelineError
from swinmr_profiling.profiler.pipelines.output.chart import write_chart
from swinmr_profiling.profiler.pipelines.output.console_report import (
    print_comparison,
    print_cost,
    print_measured,
)
from swinmr_profiling.profiler.pipelines.output.record import results_record, write_csv
from swinmr_profiling.profiler.record.files.earlier_results import pipeline_results
from swinmr_profiling.profiler.record.files.result_file import STANDARD_OUTPUT, ResultFile
from swinmr_profiling.profiler.reports.console.terminal import Console, report_columns


def run_pipelines(parsed: PipelineArguments, command_line: list[str]) -> int:
    """Returns the exit status: 0 done, 2 nothing could be costed, 4 some of several could not, or the file not written.

    Raises PipelineError for a single pipeline that cannot be costed, OutputError for files that cannot be written.
    """
    folder = parsed.pipeline_dir
    distinct(
        [("--output", parsed.output), ("--csv", parsed.csv), ("--chart", parsed.chart)],
        [] if folder is None else [("the index of --pipeline-dir", Path(folder) / INDEX_NAME)],
    )
    if STANDARD_OUTPUT in (parsed.csv, parsed.chart):
        raise OutputError("--csv and --chart write files: only --output may be -")
    result_file = ResultFile(parsed.output, pipeline_results, keeps_earlier=parsed.output == DEFAULT_OUTPUT)
    others = [("--csv", parsed.csv), ("--chart", parsed.chart)]
    with claimed_outputs(others) as (csv, chart), result_file as result:
        return _cost_and_write(parsed, command_line, result, csv, chart)


def _cost_and_write(
    parsed: PipelineArguments, command_line: list[str], result: ResultFile, csv: str | None, chart: str | None
) -> int:
    result.prepare()
    console = Console(sys.stderr if result.to_standard_output else sys.stdout, report_columns())
    counts = ComponentCounts(PRECISIONS[parsed.precision])
    pipelines: list[AnyPipeline]
    if parsed.pipeline_dir:
        pipelines = [_of_folder(Path(parsed.pipeline_dir), parsed, counts)]
    else:
        names = list_pipelines() if parsed.all else parsed.pipelines or [parsed.pipeline]
        definitions = [load_pipeline(name) for name in dict.fromkeys(names)]
        only = len(definitions) == 1
        pipelines = [_costed(definitions[0], parsed, counts)] if only else _each(definitions, parsed, counts)
    for one in pipelines if len(pipelines) == 1 or parsed.detailed else ():
        if isinstance(one, CostedPipeline):
            print_cost(console, one)
        if isinstance(one, MeasuredPipeline):
            console.title(one.name)
            console.note(f"no prediction: {one.reason}", 0)
        if (measured := getattr(one, "measured", None)) is not None:
            print_measured(console, measured)
        if isinstance(one, CostedPipeline) and len(pipelines) > 1:
            console.line()
    if len(pipelines) > 1:
        print_comparison(console, pipelines)
    reasons = [one.reason for one in pipelines if isinstance(one, FailedPipeline)]
    failed = len(reasons)
    message = result.finish(results_record(pipelines, command_line), replace=failed < len(pipelines))
    if message:
        complain(f"error: {message}")
    if failed == len(pipelines):  # then no table or chart is written over an earlier one either
        kept = f"; {result.name} stays as it was" if result.kept_earlier else ""
        complain(f"error: none of the {failed} pipelines could be costed: {reasons[0]}{kept}")
        return EXIT_BAD_INPUT
    if result.path is not None and not message:
        console.line()
        console.good(f"Results saved to: {result.name if result.moved else parsed.output}", indent=0)
    for what, name, write in (("Table", csv, write_csv), ("Chart", chart, write_chart)):
        if name is not None:
            try:
                write(pipelines, Path(name))
            except OSError as error:
                raise OutputError(f"{name}: {reason(error)}") from error
            console.good(f"{what} saved to: {name}", indent=0)
    return EXIT_PARTIAL if failed or message else EXIT_DONE


def _of_folder(folder: Path, parsed: PipelineArguments, counts: ComponentCounts) -> AnyPipeline:
    """A folder's cost; with --measure its run, too, which needs no prediction. Raises PipelineError for neither."""
    if not parsed.measure:
        return _costed(read_pipeline_folder(folder), parsed, counts)
    from swinmr_profiling.profiler.pipelines.live.measured_run import measured_run

    try:
        found = _costed(read_pipeline_folder(folder), parsed, counts)
    except PipelineError as error:
        if not (folder / INDEX_NAME).is_file():
            raise
        measured = measured_run(folder, parsed.request())
        if not measured["enabled"]:
            raise PipelineError(measured["reason"]) from error
        return MeasuredPipeline(folder.resolve().name, str(error), measured)
    return replace(found, measured=measured_run(folder, found.cost.request))


def _costed(
    definition: PipelineDefinition, parsed: PipelineArguments, counts: ComponentCounts
) -> CostedPipeline:
    found = CostedPipeline(cost_pipeline(definition, parsed.request(), counts))
    if parsed.detailed:
        found = replace(
            found,
            step_scaling=step_scaling(definition, parsed.request(), counts),
            resolution_scaling=list(resolution_scaling(definition, parsed.request(), counts)),
        )
    counts.release()
    return found


def _each(
    definitions: list[PipelineDefinition], parsed: PipelineArguments, counts: ComponentCounts
) -> list[AnyPipeline]:
    found: list[AnyPipeline] = []
    for definition in tqdm(definitions, unit="pipeline", disable=None, leave=False):
        try:
            found.append(_costed(definition, parsed, counts))
        except PipelineError as error:
            found.append(FailedPipeline(definition.name, str(error)))
            counts.release()
    return found
