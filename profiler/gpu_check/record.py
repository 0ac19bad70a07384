"""What a check writes: each prediction beside its measurement. Bytes, milliseconds; what is not known is absent."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from swinmr_profiling.profiler.record.blocks.figures import Block
from swinmr_profiling.profiler.record.blocks.recommended import TrainingSearch
from swinmr_profiling.profiler.record.blocks.run_description import Environment


class Peaks(Block):
    """Of one way to set the allocator."""

    allocated_bytes: int
    reserved_bytes: int
    validation_allocated_bytes: int | None
    validation_reserved_bytes: int | None

    @property
    def peak_reserved_bytes(self) -> int:
        """What training and validation reserve, the larger."""
        return max(self.reserved_bytes, self.validation_reserved_bytes or 0)


class PredictedSize(Block):
    """One batch size, workspaces included."""

    live_bytes: int
    phase: str
    operator: str
    workspace_bytes: int
    default: Peaks
    expandable: Peaks

    def of(self, allocator: str) -> Peaks:
        return self.expandable if allocator == "expandable" else self.default


class Prediction(Block):
    """Of one network. workspaces: where their bytes come from."""

    sizes: dict[int, PredictedSize]
    workspaces: str
    aligned: bool


class Predicted(Block):
    """What was predicted of a combination; `source` is None, and `reason` says why, where nothing was."""

    source: Literal["predicted"] | None
    reason: str | None = None
    workspaces: str | None = None
    aligned: bool | None = None
    live_bytes: int | None = None
    phase: str | None = None
    operator: str | None = None
    workspace_bytes: int | None = None
    allocated_bytes: int | None = None
    reserved_bytes: int | None = None
    validation_allocated_bytes: int | None = None
    validation_reserved_bytes: int | None = None


class Measured(Block):
    """Peaks of the steps (or of the forward pass), of the validation, and what is beside the allocator."""

    source: Literal["measured"] = "measured"
    kind: str
    input_shape: list[int]
    allocated_bytes: int
    reserved_bytes: int | None
    requested_bytes: int | None = None
    cold_allocated_bytes: int | None = None
    warm_allocated_bytes: int | None = None
    validation_allocated_bytes: int | None = None
    validation_reserved_bytes: int | None = None
    steps_run: int | None = None
    step_ms: list[float] | None = None
    retries: int | None = None
    process_bytes: int | None = None
    device_used_bytes: int | None = None
    reserved_at_end_bytes: int | None = None
    expandable_segments: bool | None = None
    before_bytes: int | None = None
    context_bytes: int | None = None
    median_ms: float | None = None
    num_runs: int | None = None
    attention: str | None = None


class Ratios(Block):
    """Measured over predicted; None where one of them is not known. requested: over what is predicted to be live."""

    allocated: float | None
    reserved: float | None
    validation_allocated: float | None
    validation_reserved: float | None
    requested: float | None


class Row(Block):
    """One combination."""

    name: str
    mode: str
    precision: str
    checkpointing: str
    allocator: str
    requested_batch_size: int | None
    batch_size: int | None
    predicted: Predicted | None
    measured: Measured | None = None
    ratios: Ratios | None = None
    status: str
    reason: str | None = None
    as_expected: bool | None = None
    search: TrainingSearch | None = None
    took_s: float | None = None


class Spread(Block):
    """Distances of ratios from 1 (0.01 is 1 % off)."""

    median: float
    worst: float
    num_runs: int


class Product(Block):
    """kept: bytes that a call left allocated. peak: the most it had beside what was there."""

    kept_bytes: int
    peak_bytes: int


class LibraryCosts(Block):
    """Of a fresh process: its context, and what each of its first products took, in the order they were made."""

    context_bytes: int | None
    products: dict[str, Product]


class WorkspaceRow(Block):
    """A measurement in the form of the workspace table."""

    backend: str
    torch_from: str
    capabilities: list[int]
    cublas_bytes: int
    cublaslt_bytes: int
    cublaslt_kept: bool
    cublaslt_makes_cublas: bool
    backward_thread_bytes: int
    context_bytes: int | None
    source: str


class NotRun(Block):
    """A part that was left out, and why."""

    status: Literal["not run"] = "not run"
    reason: str


class Workspaces(Block):
    """What the libraries take on this GPU."""

    status: Literal["measured"] = "measured"
    row: WorkspaceRow
    plain_first: LibraryCosts
    bias_first: LibraryCosts


class Timed(Block):
    """Of both implementations in one precision."""

    reference_ms: float
    ours_ms: float
    speedup: float
    largest_difference: float
    num_runs: int


class Reference(Block):
    """Our network beside the one that it descends from."""

    status: Literal["measured"] = "measured"
    input_shape: list[int]
    device: str
    fp32: Timed
    bf16: Timed


class ConvolutionCost(Block):
    """What one convolution takes beside its result, measured and by the prediction's rule."""

    layer: str
    kind: str
    precision: str
    channels_last: bool
    benchmark: bool
    bytes: int
    predicted_bytes: int


class ConvolutionCosts(Block):
    """same_without_benchmark: whether 16-bit NCHW convolutions take as much with cudnn.benchmark off as on."""

    status: Literal["measured"] = "measured"
    rows: list[ConvolutionCost]
    same_without_benchmark: bool


class GpuCheckRecord(Block):
    """The whole file. usable_bytes: of the device, when the check began."""

    schema_version: Literal[1] = 1
    dry_run: bool
    time_budget_s: float
    environment: Annotated[Environment | None, Field(exclude=True)] = None
    usable_bytes: Annotated[int, Field(exclude=True)] = 0
    convolutions: ConvolutionCosts | NotRun | None = None
    workspaces: Workspaces | NotRun | None = None
    combinations: list[Row]
    reference: Reference | NotRun | None = None
    summary: dict[str, int | Spread] | None = None
    took_s: float | None = None

    def to_json(self) -> dict[str, Any]:
        """The file. The command line of the environment is the command's, which writes it elsewhere."""
        environment = None
        if self.environment is not None:
            found = self.environment.to_json()
            del found["command_line"]
            environment = {**found, "usable_bytes": self.usable_bytes}
        took = {} if self.took_s is None else {"took_s": self.took_s}
        content = self.model_dump(mode="json", exclude={"took_s", "combinations"})
        rows = [row.to_json() for row in self.combinations]
        return {**content, "environment": environment, "combinations": rows, **took}
