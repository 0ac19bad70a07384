"""What a run of a pipeline is asked to be, and what it costs, as records."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from swinmr_profiling.profiler.counting import KINDS
from swinmr_profiling.profiler.pipelines.defined.definition import PipelineDefinition
from swinmr_profiling.profiler.pipelines.defined.geometry import Geometry
from swinmr_profiling.profiler.pipelines.defined.json_records import FailedRecord, WatchedRecord
from swinmr_profiling.profiler.pipelines.errors import PipelineError


@dataclass(frozen=True)
class PipelineRequest:
    """What is asked for; None means the pipeline's own default.

    Attributes:
        guidance_scale: above 1 the denoiser also runs on the empty prompt; of distilled pipelines an input.
        true_cfg_scale: above 1 runs a distilled pipeline's denoiser on the negative prompt as well.
        batch: prompts, and images, of one run.
        prompt_tokens: see TextEncoder.lengths.
        negative_prompt: one is given: encoded where the empty one would be zeros.
        precision: "bf16", "fp16" or "fp32": of weights and activations, for the memory.
    """

    height: int | None = None
    width: int | None = None
    steps: int | None = None
    guidance_scale: float | None = None
    true_cfg_scale: float = 1.0
    batch: int = 1
    scheduler: str | None = None
    prompt_tokens: int | None = None
    negative_prompt: bool = False
    precision: str = "bf16"


@dataclass(frozen=True)
class ResolvedRequest(PipelineRequest):
    """A request with the pipeline's own defaults where None was."""

    height: int = 0
    width: int = 0
    steps: int = 0
    guidance_scale: float = 1.0


@dataclass(frozen=True)
class ComponentCost:
    """One component of a run.

    Attributes:
        role: "denoiser", "vae_decode", "vae_encode", "text_encoder", "prior", "image_encoder", "safety_checker".
        calls: of the whole run; macs_per_call is for `call_batch` inputs at once.
        by_kind: MACs of a call by "attention", "convolution", "linear" and the others.
        counts_weights: False for a second use of a network, whose weights are listed already.
    """

    name: str
    role: str
    class_name: str
    parameters: int
    weight_bytes: int
    calls: int
    call_batch: int
    macs_per_call: int
    by_kind: dict[str, int]
    softmax_macs_per_call: int
    activation_peak_bytes: int
    input_shapes: list[list[int]]
    counts_weights: bool = True
    note: str | None = None

    @property
    def macs(self) -> int:
        """MACs of all its calls."""
        return self.macs_per_call * self.calls


@dataclass(frozen=True)
class PipelineCost:
    """A run of a pipeline. MACs are exact; memory is predicted.

    Attributes:
        timesteps: denoiser times of the scheduler.
        macs_per_step: of one time, guidance as asked for; beside it without and with (None: never runs so).
    """

    definition: PipelineDefinition
    request: ResolvedRequest
    geometry: Geometry
    scheduler: str
    timesteps: int
    is_guided: bool
    macs_per_step: int
    macs_per_step_without_guidance: int
    macs_per_step_with_guidance: int | None
    components: tuple[ComponentCost, ...]
    notes: tuple[str, ...] = field(default=())

    @property
    def macs(self) -> int:
        """MACs of the run: `request.batch` images."""
        return sum(component.macs for component in self.components)

    @property
    def by_kind(self) -> dict[str, int]:
        """MACs of the run by kind."""
        return {kind: sum(c.by_kind[kind] * c.calls for c in self.components) for kind in KINDS}

    @property
    def size(self) -> str:
        """What is computed, as "1024x768": width by height in pixels."""
        return f"{self.geometry.computed_width}x{self.geometry.computed_height}"

    @property
    def parameters(self) -> int:
        return sum(c.parameters for c in self.components if c.counts_weights)

    @property
    def weight_bytes(self) -> int:
        return sum(c.weight_bytes for c in self.components if c.counts_weights)

    @property
    def activation_peak(self) -> ComponentCost:
        """The component whose call needs the most memory beside the weights."""
        return max(self.components, key=lambda component: component.activation_peak_bytes)

    @property
    def memory_bytes(self) -> int:
        """Weights, and the activations of the dearest component."""
        return self.weight_bytes + self.activation_peak.activation_peak_bytes

    @property
    def denoiser(self) -> ComponentCost:
        (denoiser,) = self.of_role("denoiser")
        return denoiser

    def of_role(self, role: str) -> list[ComponentCost]:
        return [component for component in self.components if component.role == role]

    def macs_of(self, role: str) -> int:
        """MACs of all calls of a role's components."""
        return sum(component.macs for component in self.of_role(role))


@dataclass(frozen=True)
class StepPoint:
    """A run of so many steps; relative: to the first point."""

    steps: int
    denoiser_calls: int
    total_macs: int
    relative: float


@dataclass(frozen=True)
class SidePoint:
    """A run of a square image of so many pixels a side; computed_px is [height, width]."""

    side_px: int
    computed_px: list[int]
    macs_per_step: int
    total_macs: int
    relative: float
    denoiser_attention_share: float
    activation_peak_bytes: int


@dataclass(frozen=True)
class RefusedSide:
    """A side that the pipeline does not take."""

    side_px: int
    reason: str


@dataclass(frozen=True)
class CostedPipeline:
    """A cost, with how it grows and what a run with weights took where that was asked for."""

    cost: PipelineCost
    step_scaling: list[StepPoint] | None = None
    resolution_scaling: list[SidePoint | RefusedSide] | None = None
    measured: WatchedRecord | FailedRecord | None = None


@dataclass(frozen=True)
class MeasuredPipeline:
    """A pipeline that was run and could not be costed; `reason` says why not."""

    name: str
    reason: str
    measured: WatchedRecord


@dataclass(frozen=True)
class FailedPipeline:
    """A pipeline that could not be costed."""

    name: str
    reason: str


AnyPipeline = CostedPipeline | MeasuredPipeline | FailedPipeline


def cheapest_first(pipelines: Iterable[AnyPipeline]) -> list[PipelineCost]:
    """Of those that could be costed."""
    costs = [one.cost for one in pipelines if isinstance(one, CostedPipeline)]
    return sorted(costs, key=lambda cost: cost.macs)


def resolve_request(definition: PipelineDefinition, request: PipelineRequest) -> ResolvedRequest:
    """The request with the pipeline's defaults filled in.

    Raises PipelineError for 0 steps, sides that are not positive numbers, or guidance below 1.
    """
    scale = request.guidance_scale
    if scale is not None and not 1 <= scale < float("inf"):
        raise PipelineError(f"guidance scale {scale:g}: at least 1, and 1 means none")
    own = {
        "height": definition.native_resolution,
        "width": definition.native_resolution,
        "steps": definition.default_steps,
        "guidance_scale": definition.default_guidance_scale,
    }
    asked = {name: value for name, value in vars(request).items() if value is not None}
    filled = ResolvedRequest(**{**own, **asked})
    if request.true_cfg_scale > 1 and definition.guidance != "distilled":
        raise PipelineError(f"{definition.name} has no true_cfg_scale: its guidance scale is a real one")
    for name in ("height", "width", "steps", "batch"):
        value = getattr(filled, name)
        if not isinstance(value, int) or value < 1:
            raise PipelineError(f"{name} {value}: at least 1")
    if filled.prompt_tokens is not None and filled.prompt_tokens < 1:
        raise PipelineError(f"prompt tokens {filled.prompt_tokens}: at least 1")
    return filled
