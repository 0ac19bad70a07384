"""What a network is, and what one forward pass of one image costs: counted, never measured."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from swinmr_profiling.profiler.record.blocks.figures import (
    Block,
    Count,
    Figure,
    Measured,
    Milliseconds,
    PositiveCount,
    Shape,
)


class ModuleCount(Block):
    """A module of the network: its parameters and multiply-adds with those below it, `own` by kind without them."""

    name: str
    path: str
    class_name: str = Field(alias="class")
    macs: Count
    macs_complex_as_one: Count | None = None
    own: dict[str, Count]
    parameters: Count
    children: list[ModuleCount]


class DifferencePart(Block):
    """One reason why another counter's figure is not ours."""

    operator: str
    macs: Figure
    why: str


class ParameterDifferencePart(Block):
    """One reason why another counter's parameters are not ours."""

    parameter: str
    parameters: int
    why: str


class CrossCheck(Block):
    """What another counter says of the same forward pass, and what its difference is made of.

    Attributes:
        status: "missing": not installed.
        reason: why there is no figure, in one line; None when ok.
        inexact: the counter is not a reference: thop. Its figure is neither an upper nor a lower bound.
        convention: what the counter adds up, in words.
        size: "small" (a small input of the same network) or "full".
        figure, figure_parameters: what the counter prints; fvcore prints no parameters.
        ours, ours_parameters: this project's at the same shape.
        difference: figure - ours. parts: operator by operator; they sum to it to the unit.
        parameters_difference, parameter_parts: the same for parameters.
        exact_macs: fvcore's with handles for what it lacks and without what are not MACs; None for thop.
        agrees: fvcore: exact_macs equals ours. thop: nothing in the difference is unexplained. None without a figure.
        seconds: wall time of the process.
        from_earlier_run: it was not asked again: the network, the code and the versions are those of an earlier run,
            whose answer and seconds these are.
    """

    counter: Literal["fvcore", "thop"]
    status: Literal["ok", "missing", "raised", "timeout", "killed", "crashed"]
    size: Literal["small", "full"]
    convention: str
    inexact: bool
    reason: str | None
    input_shapes: list[Shape] | None
    figure: Figure | None
    figure_parameters: Figure | None
    ours: int | None
    ours_parameters: int | None
    difference: Figure | None
    parts: list[DifferencePart]
    parameters_difference: Figure | None
    parameter_parts: list[ParameterDifferencePart]
    exact_macs: Figure | None
    agrees: bool | None
    version: str | None
    seconds: float | None
    from_earlier_run: bool | None = None

    @classmethod
    def told(cls, **known: Any) -> CrossCheck:
        """With what is known of it; the rest is null, or no parts."""
        nothing: dict[str, list[object] | None] = {
            name: [] if name in ("parts", "parameter_parts") else None for name in cls.model_fields
        }
        return cls.model_validate({**nothing, **known})


class TrainingMacsPerSample(Block):
    """Of one sample, in a step of the block's batch. Recomputed ones are not among `macs`.

    loss_macs: of a loss network, forward and backward; None in older profiles, where the network's contain them.
    """

    macs: float = Field(ge=0)
    forward_macs: float = Field(ge=0)
    loss_macs: float | None = Field(None, ge=0)
    backward_macs: float = Field(ge=0)
    recomputed_macs: float = Field(ge=0)


class TrainingMacsPerStep(Block):
    """Of one optimizer step over `samples` of a device. The optimizer's elementwise work is an estimate."""

    samples: PositiveCount
    macs: Count
    flops: Count
    forward_macs: Count
    loss_macs: Count | None = None
    backward_macs: Count
    recomputed_macs: Count
    optimizer_macs: Count
    optimizer_elementwise_flops: Count


class TrainingMacs(Block):
    """Multiply-adds of the training step that `train.py` makes; `error` says why there are none."""

    source: Literal["counted"]
    input_shape: Shape
    num_runs: Count
    per_sample: TrainingMacsPerSample | None = None
    per_step: TrainingMacsPerStep | None = None
    uncounted_operators: dict[str, Count] | None = None
    note: str | None = None
    error: str | None = None


class ModuleCost(Block):
    """One module in the runs with hooks: time with and without the modules in it, bytes, multiply-adds of a second."""

    path: str
    class_name: str = Field(alias="class")
    calls: PositiveCount
    latency_ms: Milliseconds
    own_ms: Milliseconds
    share: float | None = Field(ge=0)
    # Of the largest result; peak_bytes: above what there was when it began, where an allocator counts.
    output_bytes: Count
    peak_bytes: Count | None
    macs_per_second: float | None = Field(ge=0)


class ModuleCosts(Measured):
    """Latency and memory of each module, by hooks; `hook_share` of the time with them is theirs."""

    plain_ms: Milliseconds
    hooked_ms: Milliseconds
    hook_share: float | None = Field(ge=0, le=1)
    modules: list[ModuleCost]


class Reconstruction(Block):
    """One sample of one image by a denoiser: calls x cost of one call."""

    source: Literal["extrapolated"]
    what: str
    sampler: Literal["ddim", "ancestral"]
    sampling_steps: PositiveCount
    guidance: float = Field(ge=0)
    calls_per_step: Literal[1, 2]
    denoiser_calls: PositiveCount
    samples_per_slice: PositiveCount
    macs: Count | None
    flops: Count | None
    gmacs: float | None = Field(ge=0)
    gflops: float | None = Field(ge=0)
    latency_ms: Milliseconds | None


class Architecture(Block):
    """Parameters and multiply-adds of one image. FLOPs = 2 x MACs; a complex multiply-add is four MACs."""

    source: Literal["counted"]
    input_shape: Shape
    num_runs: Count
    total_parameters: Count
    trainable_parameters: Count
    buffer_elements: Count
    parameter_bytes: Count
    buffer_bytes: Count
    model_size_mb: float = Field(ge=0)
    parameters_by_module: dict[str, Count]
    macs: Count | None
    flops: Count | None
    gmacs: float | None
    gflops: float | None
    flops_per_parameter: float | None
    reconstruction: Reconstruction | None = None
    counters: list[CrossCheck]
    # With one per complex multiply-add instead of four; equal to macs where nothing is complex.
    macs_complex_as_one: Count | None = None
    by_kind: dict[str, Count] | None = None
    by_operator: dict[str, Count] | None = None
    by_operator_complex_as_one: dict[str, Count] | None = None
    by_module: ModuleCount | None = None
    uncounted_operators: dict[str, Count] | None = None
    elementwise_flops: Count | None = None
    softmax_macs: Count | None = None
    counted_on: Literal["meta", "cpu", "cuda"] | None = None
    note: str | None = None
    count_error: str | None = None
    training_macs: TrainingMacs | None = None
    module_costs: ModuleCosts | None = None
    quoted_counter: CrossCheck | None = None
