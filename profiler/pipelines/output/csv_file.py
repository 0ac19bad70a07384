"""A line for every component of every pipeline, for spreadsheets."""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter
from typing import Any

from swinmr_profiling.configs.writing.atomic_files import table_text
from swinmr_profiling.profiler.pipelines.defined.cost_records import AnyPipeline, CostedPipeline
from swinmr_profiling.profiler.pipelines.output.record import pipeline_record

RUN_COLUMNS = (
    *("pipeline", "num_inference_steps", "scheduler", "guidance_scale", "is_guided", "batch", "precision"),
    "total_macs",
)
COMPONENT_COLUMNS = (
    *(
        "name",
        "role",
        "class",
        "parameters",
        "weight_bytes",
        "calls",
        "call_batch",
        "macs_per_call",
        "flops_per_call",
    ),
    *("macs", "flops", "share", "activation_peak_bytes"),
)
KIND_COLUMNS = ("attention", "convolution", "linear")


def csv_text(pipelines: Iterable[AnyPipeline]) -> str:
    """The table as text; pipelines that were not costed have no line."""
    header = [
        *RUN_COLUMNS,
        "height",
        "width",
        *COMPONENT_COLUMNS,
        *(f"{kind}_macs_per_call" for kind in KIND_COLUMNS),
    ]
    rows = []
    for pipeline in pipelines:
        if not isinstance(pipeline, CostedPipeline):
            continue
        record: Any = pipeline_record(pipeline)
        for part in record["components"]:
            row = [*itemgetter(*RUN_COLUMNS)(record), *record["input_shape"][2:]]
            row += itemgetter(*COMPONENT_COLUMNS)(part)
            row += [part["by_kind_per_call"][kind] for kind in KIND_COLUMNS]
            rows.append(row)
    return table_text(header, rows)
