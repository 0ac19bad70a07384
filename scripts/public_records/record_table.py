"""Rows of the public records, what is predicted for each, and what the rows come to. No torch is imported before a
network is built."""

from __future__ import annotations

import csv
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from swinmr_profiling.profiler.allocator.allocation_order import AllocationOrder
from swinmr_profiling.profiler.allocator.fit_at_limit import fit_at_limit
from swinmr_profiling.profiler.batch_size.gpus import find_gpu
from swinmr_profiling.profiler.record.blocks.memory_model import PeakBasis
from swinmr_profiling.profiler.record.prediction_intervals import interval

if TYPE_CHECKING:
    from swinmr_profiling.profiler.record.blocks.figures import Precision

RECORDS = Path(__file__).resolve().parents[2] / "results" / "reference" / "public_records"
MIB, GIB = 2**20, 2**30
LADDER = (512, 384, 256, 192, 128, 96, 64, 48, 32, 24, 16, 12, 8, 6, 4, 3, 2, 1)
LAYOUTS = {"base": "NCHW", "cl": "channels-last", "nchw": "NCHW", "nhwc": "channels-last"}
# What is alive beside the network in the process of the restoration table: see the records' README.
BESIDE_BYTES = 8_519_680 + 868_352
LATER_BYTES = {4: 16_946_176, 3: 8_140_800}
LATER = (
    "scunet",
    "sebica",
    "span_",
    "spanplus",
    "srformer",
    "compact",
    "ultracompact",
    "superultracompact",
    "tscunet",
)
# What the allocator could not have on that machine: CUDA 11.3 loads every kernel at its start, and what else ran there
# is not known. One number for all brackets, chosen on them: ResNet-50 ran with a batch that needs 22,266 MiB,
# EfficientNet-B0 did not with one that needs 22,298.
CONTEXT_BYTES = 1844 * MIB
# Of that limit: what is worth finding out to a fraction of a percent.
NEAR = (0.9, 1.1)


@dataclass(frozen=True)
class Record:
    """kind: "inference" or "training"; published: bytes, or the largest batch that ran."""

    kind: str
    layout: str
    name: str
    variant: str
    scale_or_size: int
    precision: str
    parameters: float
    published: int

    @property
    def key(self) -> str:
        words = (self.kind, self.layout, self.name, self.variant.replace(" ", "+"), self.scale_or_size)
        return "/".join(str(word) for word in words if word != "")

    @property
    def group(self) -> str:
        return f"{self.kind}, {self.layout}"


def read_records(folder: Path = RECORDS) -> list[Record]:
    """All rows of all files."""
    found = []
    for file in sorted(folder.glob("*.csv")):
        with file.open(encoding="utf-8", newline="") as stream:
            rows = list(csv.DictReader(stream))
        if file.name.startswith("trainner"):
            found += [_inference(row, suffix) for row in rows for suffix in ("base", "cl")]
        else:
            found += [_training(row, file.name.split("_")[3]) for row in rows]
    return found


def _inference(row: dict[str, str], suffix: str) -> Record:
    published = round(float(row[f"vram_{suffix}"]) * GIB)
    scale, parameters = int(row["scale"]), int(row["params"])
    return Record(
        "inference", LAYOUTS[suffix], row["name"], row["variant"], scale, row["dtype"], parameters, published
    )


def _training(row: dict[str, str], layout: str) -> Record:
    size, largest = int(row["train_img_size"]), int(row["train_batch_size"])
    return Record(
        "training", LAYOUTS[layout], row["model"], "", size, "fp16", float(row["param_count"]), largest
    )


def predict(record: Record) -> dict[str, Any]:
    """A row of the result: the record, what is predicted, and whether it is right."""
    from swinmr_profiling.scripts.public_records.record_networks import NotBuildableError

    started = time.process_time()
    row = {**asdict(record), "key": record.key, "group": record.group}
    try:
        found = _predict_inference(record) if record.kind == "inference" else _predict_training(record)
        row |= {"status": "predicted", **found}
    except NotBuildableError as error:
        row |= {"status": "not buildable", "reason": str(error)}
    except Exception as error:
        # A forward pass that reads values, which tensors without data do not have; one network does not end the rest.
        row |= {"status": "not traceable", "reason": f"{type(error).__name__}: {error}".splitlines()[0]}
    return judged({**row, "cpu_s": round(time.process_time() - started, 2)})


def _predict_inference(record: Record) -> dict[str, Any]:
    import torch

    from swinmr_profiling.profiler.prediction.peak_basis import basis_of
    from swinmr_profiling.profiler.prediction.replay import live_peak, replay
    from swinmr_profiling.scripts.public_records.record_networks import restoration_network
    from swinmr_profiling.scripts.public_records.record_steps import restoration_inference

    network = restoration_network(record.name, record.variant, record.scale_or_size, int(record.parameters))
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[record.precision]
    channels_last = record.layout == "channels-last"
    trace = restoration_inference(network, dtype, channels_last=channels_last)
    beside = BESIDE_BYTES + (LATER_BYTES.get(record.scale_or_size, 0) if record.name.startswith(LATER) else 0)
    # From an empty cache; which blocks networks before left behind is not known. Live bytes are the least.
    last_run = replace(trace, step_starts=trace.step_starts[-1:])
    predicted = replay(last_run).training.allocated_bytes + beside
    basis = basis_of(trace, cast("Precision", record.precision), cudnn_benchmark=True)
    return {
        "predicted": predicted,
        "live": live_peak(trace, trace.step_starts[-1])[0] + beside,
        "deviation": predicted / record.published - 1,
        "basis": basis.to_json(),
    }


def judged(row: dict[str, Any]) -> dict[str, Any]:
    """The row with what depends on today's intervals and limit of the card: earlier rows keep what was predicted."""
    if "needs" in row and row["limit"] != bracket_limit_bytes():
        return {**row, **_verdict_at(row, bracket_limit_bytes())}
    if "basis" not in row:
        return row
    basis = PeakBasis(**row["basis"])
    low, high = interval(basis, "allocated", row["predicted"])
    found = {"interval": [low, high], "inside": low <= row["published"] <= high}
    return {**row, **found, "operator": basis.operator, "rests_on": basis.layers}


def _predict_training(record: Record) -> dict[str, Any]:
    from swinmr_profiling.profiler.prediction.trace.affine_trace import NotAlignedError, align
    from swinmr_profiling.profiler.prediction.trace.storage_trace import CATEGORIES
    from swinmr_profiling.scripts.public_records.record_networks import timm_network
    from swinmr_profiling.scripts.public_records.record_steps import timm_training

    network = timm_network(record.name, record.parameters)
    channels_last = record.layout == "channels-last"

    @cache
    def traced(batch: int) -> Any:
        return timm_training(network, record.scale_or_size, batch, channels_last=channels_last)

    limit = bracket_limit_bytes()
    try:
        order = align(traced(2), traced(3)).order()

        def fit(batch: int, limit: int = limit) -> Any:
            return fit_at_limit(order, batch, limit)

    except NotAlignedError:
        workspace = CATEGORIES.index("workspaces")

        def fit(batch: int, limit: int = limit) -> Any:
            trace = traced(batch)
            optional = trace.categories == workspace
            order = AllocationOrder(trace.events, trace.sizes, 0 * trace.sizes, optional)
            return fit_at_limit(order, batch, limit)

    ran = fit(record.published)
    above = None if record.published == LADDER[0] else LADDER[LADDER.index(record.published) - 1]
    next_one = None if above is None else fit(above)

    def fits(size: int, batch: int) -> bool:
        return fit(batch, size).fits

    needs = [needed_bytes(partial(fits, batch=batch), limit) for batch in (record.published, above) if batch]
    return {
        **_verdict(ran.fits, next_one is not None and next_one.fits, needs, limit),
        "ran": ran.words,
        "above": None if next_one is None else next_one.words,
        "needs": needs,
        "limit": limit,
    }


def _verdict_at(row: dict[str, Any], limit: int) -> dict[str, Any]:
    """Of a row that was predicted for another limit, from what its batches need."""
    fits = [need is not None and need <= limit for need in row["needs"]]
    words = ["fits" if fit else "does not fit" for fit in fits] + [None]
    verdict = _verdict(fits[0], len(fits) > 1 and fits[1], row["needs"], limit)
    return {**verdict, "ran": words[0], "above": words[1]}


def _verdict(ran_fits: bool, above_fits: bool, needs: list[int | None], limit: int) -> dict[str, Any]:
    verdict = "too careful" if not ran_fits else "too bold" if above_fits else "exact"
    missed = None
    if verdict != "exact":
        missed = needs[0] if verdict == "too careful" else needs[-1]
        missed = round(NEAR[1] * limit) if missed is None else max(missed, round(NEAR[0] * limit))
    misses_by = None if missed is None else missed / limit - 1
    return {"verdict": verdict, "inside": verdict == "exact", "misses_by": misses_by}


def needed_bytes(fits: Callable[[int], bool], limit: int) -> int | None:
    """The least bytes at which a batch is predicted to fit, to 0.2 % of `limit`; 0 where that is less than 0.9 of it,
    None where it is more than 1.1 of it, which are far from a verdict.

    Of a batch that did not fit though predicted to, it says how much too low the prediction is, at least.
    """
    low, high = round(NEAR[0] * limit), round(NEAR[1] * limit)
    if fits(low):
        return 0
    if not fits(high):
        return None
    while high - low > limit // 500:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def bracket_limit_bytes() -> int:
    """What the allocator of an RTX 3090 could hand out."""
    return find_gpu("RTX 3090").total_bytes - CONTEXT_BYTES


def table(rows: Iterable[Mapping[str, Any]]) -> str:
    """Markdown: one line per kind."""
    rows = list(rows)
    lines = [
        "| records | rows | predicted | result | inside the interval |",
        "| --- | --- | --- | --- | --- |",
    ]
    for group in sorted({row["group"] for row in rows}):
        mine = [row for row in rows if row["group"] == group]
        good = [row for row in mine if row["status"] == "predicted"]
        result = _deviations(good) if group.startswith("inference") else _verdicts(good)
        inside = sum(row["inside"] for row in good)
        share = f"{inside} of {len(good)} ({inside / len(good):.0%})" if good else "-"
        lines.append(f"| {group} | {len(mine)} | {len(good)} | {result} | {share} |")
    return "\n".join(lines)


def _deviations(rows: list[Mapping[str, Any]]) -> str:
    if not rows:
        return "-"
    sizes = sorted(abs(row["deviation"]) for row in rows)
    within = sum(size <= 0.02 for size in sizes) / len(sizes)
    worst = max(rows, key=lambda row: abs(row["deviation"]))
    return (
        f"median {statistics.median(sizes):.2%}, {within:.0%} within 2 %, "
        f"worst {worst['deviation']:+.1%} ({worst['name']} x{worst['scale_or_size']})"
    )


def _verdicts(rows: list[Mapping[str, Any]]) -> str:
    brackets = [row for row in rows if row["published"] < LADDER[0]]
    count = {
        name: sum(row["verdict"] == name for row in brackets) for name in ("exact", "too careful", "too bold")
    }
    if not brackets:
        return "-"
    shares = ", ".join(f"{count[name]} {name} ({count[name] / len(brackets):.0%})" for name in count)
    full = [row for row in rows if row["published"] == LADDER[0]]
    missed = sum(row["verdict"] != "exact" for row in full)
    return f"{shares}; of {len(full)} that ran the largest batch {missed} predicted not to"
