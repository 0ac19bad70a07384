"""Compute of a live diffusion pipeline: the interface that users of pipeline profilers have, exact.

    profiler = create_profiler(enabled=True)
    print(profiler.summarize_macs(pipe, 512, 512, 30, "a cat", 7.5))
    with profiler.watch(pipe):
        image = pipe("a cat").images[0]
    print(profiler.profile_pipeline(pipe, (1, 3, 512, 512), 30, "my-model", 7.5))

`watch` counts the operators of the run itself, whatever pipeline it is. Without a run the networks are counted one by
one on copies without data, for the pipeline classes that this is written for; the pipeline is left as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from swinmr_profiling.configs.error_words import first_line, one_line
from swinmr_profiling.profiler.measure.machine.devices import PRECISIONS
from swinmr_profiling.profiler.pipelines.defined.component_counts import ComponentCounts
from swinmr_profiling.profiler.pipelines.defined.cost import cost_pipeline
from swinmr_profiling.profiler.pipelines.defined.cost_records import PipelineCost, PipelineRequest
from swinmr_profiling.profiler.pipelines.defined.definition import PipelineDefinition
from swinmr_profiling.profiler.pipelines.defined.json_records import (
    FailedRecord,
    LivePrediction,
    LiveRecord,
    TimedRun,
)
from swinmr_profiling.profiler.pipelines.errors import PipelineError
from swinmr_profiling.profiler.pipelines.live.anatomy import find_anatomy, live_definition, not_costed
from swinmr_profiling.profiler.pipelines.live.disabled import disabled_record
from swinmr_profiling.profiler.pipelines.live.live_record import predicted_record, watched_record
from swinmr_profiling.profiler.pipelines.live.watched_run import WatchedRun, watching
from swinmr_profiling.profiler.pipelines.output.record import summary_record

DEFAULT_SIDE_PX = 512
DEFAULT_GUIDANCE_SCALE = 7.5
DEFAULT_STEPS = 30


def create_profiler(enabled: bool = True) -> ComputeProfiler:
    """A profiler; a disabled one measures nothing, and its figures are zeros with `enabled: False`."""
    return ComputeProfiler(enabled)


class ComputeProfiler:
    """MACs of a live pipeline's parts and runs. Units are MACs (multiply-adds) unless a name says otherwise.

    The `measure_*` methods and `summarize_macs` predict, and raise PipelineError for a pipeline that they are not
    written for; `profile_pipeline` returns the reason instead, and needs no prediction where a run was watched.
    """

    def __init__(self, enabled: bool = True) -> None:
        self.enabled = enabled
        self._last_run: WatchedRun | None = None

    @contextmanager
    def watch(self, pipe: Any) -> Iterator[WatchedRun | None]:
        """Counts every operator that runs within the block, for the pipeline's network that runs it.

        A block that raises keeps what was counted: `profile_pipeline` then says `partial`.
        """
        if not self.enabled:
            yield None
            return
        with watching(pipe) as run:
            # At once: a block that raises has a run, too.
            self._last_run = run
            yield run

    def measure_unet_macs(
        self,
        pipe: Any,
        height: int = DEFAULT_SIDE_PX,
        width: int = DEFAULT_SIDE_PX,
        prompt: str | None = None,
        guidance_scale: float = DEFAULT_GUIDANCE_SCALE,
        negative_prompt: str | None = "",
    ) -> int:
        """One denoising step, of a UNet or a transformer; both passes where guidance above 1 takes two."""
        if not self.enabled:
            return 0
        return self._cost(pipe, height, width, 1, guidance_scale).macs_per_step

    def measure_vae_decode_macs(
        self, pipe: Any, height: int = DEFAULT_SIDE_PX, width: int = DEFAULT_SIDE_PX
    ) -> int:
        """Decoding one latent to an image."""
        if not self.enabled:
            return 0
        (decode,) = self._cost(pipe, height, width, 1, 1.0).of_role("vae_decode")
        return decode.macs_per_call

    def measure_text_encoder_macs(self, pipe: Any, prompt: str = "", negative_prompt: str | None = "") -> int:
        """Encoding a prompt with every text encoder, and the negative one unless that is None.

        The text has no influence: prompts are padded to a fixed length. 0 for a pipeline without text encoders.
        """
        if not self.enabled:
            return 0
        definition, counts = live_definition(pipe, find_anatomy(pipe))
        calls = 1 if negative_prompt is None else 2
        lengths = [(encoder, encoder.lengths(None).encoded) for encoder in definition.text_encoders]
        return calls * sum(counts.text(encoder, 1, tokens).count.macs for encoder, tokens in lengths)

    def summarize_macs(
        self,
        pipe: Any,
        height: int = DEFAULT_SIDE_PX,
        width: int = DEFAULT_SIDE_PX,
        steps: int = DEFAULT_STEPS,
        prompt: str | None = None,
        guidance_scale: float = DEFAULT_GUIDANCE_SCALE,
        negative_prompt: str | None = "",
    ) -> dict[str, float]:
        """A run of one image in GMACs: a step, all text encoding, the decoding, and the total.

        The total has the calls that the pipeline's scheduler really makes, not the steps.
        """
        if not self.enabled:
            return {"enabled": False, **summary_record(0, 0, 0, 0, steps)}
        cost = self._cost(pipe, height, width, steps, guidance_scale)
        text = sum(component.macs for component in cost.of_role("text_encoder"))
        vae = sum(component.macs for component in cost.of_role("vae_decode"))
        return summary_record(cost.macs_per_step, text, vae, cost.macs, steps)

    def profile_pipeline(
        self,
        pipe: Any,
        input_shape: Sequence[int] = (1, 3, DEFAULT_SIDE_PX, DEFAULT_SIDE_PX),
        num_inference_steps: int = DEFAULT_STEPS,
        model_id: str | None = None,
        guidance_scale: float = DEFAULT_GUIDANCE_SCALE,
        inference_time_seconds: float | None = None,
        timed: TimedRun | None = None,
    ) -> LiveRecord | FailedRecord:
        """Everything about a run: of the one that was watched last, if it was this pipeline's, else predicted.

        Args:
            input_shape: (batch, 3, height, width) of the images.
            inference_time_seconds: of a run that nobody watched. timed: the same with its memory (timed_run.py).

        Returns:
            the record; {"enabled": False, "reason": ...} where the pipeline cannot be profiled, with zeros for all
            figures where the profiler is disabled.
        """
        if not self.enabled:
            return disabled_record(model_id, input_shape, num_inference_steps)
        if timed is None and inference_time_seconds is not None:
            timed = {
                "inference_time_seconds": inference_time_seconds,
                "cuda_peak_allocated_bytes": None,
                "cuda_peak_reserved_bytes": None,
            }
        run = self._last_run if self._last_run is not None and self._last_run.pipe is pipe else None
        try:
            if run is not None:
                prediction = self._prediction(pipe, input_shape, num_inference_steps, guidance_scale)
                return watched_record(
                    *(run, find_anatomy(pipe), input_shape, num_inference_steps, model_id, guidance_scale),
                    *(prediction, timed),
                )
            cost, left_out = self._cost_of(pipe, input_shape, num_inference_steps, guidance_scale)
            seconds = None if timed is None else timed["inference_time_seconds"]
            return predicted_record(cost, find_anatomy(pipe), left_out, model_id, seconds)
        except Exception as error:  # whatever a stranger's pipeline does, its generation goes on
            return {"enabled": False, "model_id": model_id, "reason": _reason(error)}

    def _prediction(
        self, pipe: Any, input_shape: Sequence[int], steps: int, guidance_scale: float
    ) -> LivePrediction:
        """Of the same run; whatever goes wrong in it costs nothing of what was counted."""
        try:
            cost, left_out = self._cost_of(pipe, input_shape, steps, guidance_scale)
        except Exception as error:
            return {"enabled": False, "total_macs": None, "not_costed": [], "reason": _reason(error)}
        return {"enabled": True, "total_macs": cost.macs, "not_costed": left_out, "reason": None}

    def _cost_of(
        self, pipe: Any, input_shape: Sequence[int], steps: int, guidance_scale: float
    ) -> tuple[PipelineCost, list[str]]:
        batch, _, height, width = input_shape
        anatomy = find_anatomy(pipe)
        definition, counts = live_definition(pipe, anatomy)
        cost = _cost(definition, counts, height, width, steps, guidance_scale, batch)
        return cost, not_costed(definition, anatomy)

    def _cost(self, pipe: Any, height: int, width: int, steps: int, guidance_scale: float) -> PipelineCost:
        definition, counts = live_definition(pipe, find_anatomy(pipe))
        return _cost(definition, counts, height, width, steps, guidance_scale, 1)


def _cost(
    definition: PipelineDefinition,
    counts: ComponentCounts,
    height: int,
    width: int,
    steps: int,
    guidance_scale: float,
    batch: int,
) -> PipelineCost:
    # Pipelines take any scale and are not guided by one of up to 1.
    scale = max(float(guidance_scale), 1.0)
    precision = next(name for name, dtype in PRECISIONS.items() if dtype == counts.dtype)
    request = PipelineRequest(
        height=height, width=width, steps=steps, guidance_scale=scale, batch=batch, precision=precision
    )
    return cost_pipeline(definition, request, counts)


def _reason(error: Exception) -> str:
    return first_line(error) if isinstance(error, PipelineError) else one_line(error)
