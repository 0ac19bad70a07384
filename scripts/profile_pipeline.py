#!/usr/bin/env python3
"""Costs diffusion pipelines, component by component, exactly and without their weights.

    python scripts/profile_pipeline.py --pipeline sd21-base --height 512 --width 512 --steps 30 --guidance-scale 7.5
    python scripts/profile_pipeline.py --all --height 512 --chart pipelines.png
    python scripts/profile_pipeline.py --pipeline-dir models/any-pipeline --measure
    python scripts/profile_pipeline.py --list

Exit status: 0 done, 2 bad arguments or pipeline, 4 some of several pipelines could not be costed, or
the JSON not be written, 1 unexpected.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

import swinmr_profiling.command  # takes this folder off sys.path
from swinmr_profiling.configs.writing.standard_streams import say
from swinmr_profiling.profiler.options.exit_codes import EXIT_DONE
from swinmr_profiling.profiler.pipelines.command_line import parse_pipeline_arguments
from swinmr_profiling.profiler.pipelines.defined.definition import list_pipelines, load_pipeline
from swinmr_profiling.profiler.pipelines.run import run_pipelines
from swinmr_profiling.program import program_name


@swinmr_profiling.command.entry_point
def main(arguments: list[str]) -> int:
    """Runs the command and returns its exit status."""
    parsed = parse_pipeline_arguments(arguments)
    if parsed.list_pipelines:
        for name in list_pipelines():
            say(f"{name:<20}{load_pipeline(name).title}")
        return EXIT_DONE
    return run_pipelines(parsed, [*program_name("profile_pipeline.py").split(), *arguments])


if __name__ == "__main__":
    swinmr_profiling.command.run(main)
