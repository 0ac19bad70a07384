"""Compute of a live diffusion pipeline: the interface that users of pipeline profilers have, exact.

    profiler = create_profiler(enabled=True)
    print(profiler.summarize_macs(pipe, 512, 512, 30, "a cat", 7.5))
    with profiler.watch(pipe):
        image = pipe("a cat").images[0]
    print(profiler.profile_pipeline(pipe, (1, 3, 512, 512), 30, "my-model", 7.5))

The pipeline is left as it is: everything is counted on copies of its networks on the meta device.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from swinmr_profiling.profiler.measure.devices import PRECISIONS
from swinmr_profiling.profiler.pipelines.defined.component_counts import ComponentCounts
from swinmr_profiling.profiler.pipelines.defined.cost import cost_pipeline
from swinmr_profiling.profiler.pipelines.defined.cost_records import PipelineCost, PipelineRequest
from swinmr_profiling.profiler.pipelines.defined.definition import PipelineDefinition
from swinmr_profiling.profiler.pipelines.defined.json_records import FailedRecord, LiveRecord
from swinmr_profiling.profiler.pipelines.errors import PipelineError
from swinmr_profiling.profiler.pipelines.live.anatomy import find_anatomy, live_definition
from swinmr_profiling.profiler.pipelines.live.live_record import live_record
from swinmr_profiling.profiler.pipelines.live.recorder import RecordedRun, recording
from swinmr_profiling.profiler.pipelines.output.record import summary_record


def create_profiler(enabled: bool = True) -> ComputeProfiler:
    """A profiler; a disabled one measures nothing and says so."""
    return ComputeProfiler(enabled)


class ComputeProfiler:
    """MACs of a live pipeline's parts and runs. Units are MACs (multiply-adds) unless a name says otherwise.

    The `measure_*` methods and `summarize_macs` raise PipelineError for a pipeline whose parts cannot be found;
    `profile_pipeline` returns the reason instead.
    """

    def __init__(self, enabled: bool = True) -> None:
        self.enabled = enabled
        self._last_run: RecordedRun | None = None

    @contextmanager
    def watch(self, pipe: Any) -> Iterator[RecordedRun | None]:
        """Counts and times the calls of the pipeline's networks while the block runs, by forward hooks."""
        if not self.enabled:
            yield None
            return
        with recording(pipe) as run:
            yield run
        self._last_run = run

    def measure_unet_macs(
        self, pipe: Any, height: int, width: int, prompt: str | None = None, guidance_scale: float = 7.5
    ) -> int:
        """One denoising step, of a UNet or a transformer; both passes where guidance above 1 takes two."""
        return self._cost(pipe, height, width, 1, guidance_scale).macs_per_step

    def measure_vae_decode_macs(self, pipe: Any, height: int, width: int) -> int:
        """Decoding one latent to an image."""
        (decode,) = self._cost(pipe, height, width, 1, 1.0).of_role("vae_decode")
        return decode.macs_per_call

    def measure_text_encoder_macs(self, pipe: Any, prompt: str, negative_prompt: str | None = None) -> int:
        """Encoding a prompt with every text encoder, and the negative one unless that is None.

        The text has no influence: prompts are padded to a fixed length. 0 for a pipeline without text encoders.
        """
        definition, counts = self._definition(pipe)
        calls = 1 if negative_prompt is None else 2
        lengths = [(encoder, encoder.lengths(None).encoded) for encoder in definition.text_encoders]
        return calls * sum(counts.text(encoder, 1, tokens).count.macs for encoder, tokens in lengths)

    def summarize_macs(
        self,
        pipe: Any,
        height: int,
        width: int,
        steps: int,
        prompt: str | None = None,
        guidance_scale: float = 7.5,
    ) -> dict[str, float]:
        """A run of one image in GMACs: a step, all text encoding, the decoding, and the total.

        The total has the calls that the pipeline's scheduler really makes, not the steps.
        """
        cost = self._cost(pipe, height, width, steps, guidance_scale)
        text = sum(component.macs for component in cost.of_role("text_encoder"))
        vae = sum(component.macs for component in cost.of_role("vae_decode"))
        return summary_record(cost.macs_per_step, text, vae, cost.macs, steps)

    def profile_pipeline(
        self,
        pipe: Any,
        input_shape: Sequence[int],
        num_inference_steps: int,
        model_id: str | None = None,
        guidance_scale: float = 7.5,
        inference_time_seconds: float | None = None,
    ) -> LiveRecord | FailedRecord:
        """Everything about a run: of the one that was watched last, if it was this pipeline's, else predicted.

        Args:
            input_shape: (batch, 3, height, width) of the images.
            inference_time_seconds: of the run, in place of what was watched.

        Returns:
            the record; {"enabled": False, "reason": ...} where the pipeline cannot be profiled.
        """
        if not self.enabled:
            return {"enabled": False, "model_id": model_id, "reason": "profiling is switched off"}
        run = self._last_run if self._last_run is not None and self._last_run.pipe is pipe else None
        try:
            batch, _, height, width = input_shape
            cost = self._cost(pipe, height, width, num_inference_steps, guidance_scale, batch)
            return live_record(pipe, find_anatomy(pipe), cost, run, model_id, inference_time_seconds)
        except Exception as error:  # whatever a stranger's pipeline does, its generation goes on
            reason = (str(error).splitlines() or [""])[0]
            kind = "" if isinstance(error, PipelineError) else f"{type(error).__name__}: "
            return {"enabled": False, "model_id": model_id, "reason": f"{kind}{reason}"}

    def _definition(self, pipe: Any) -> tuple[PipelineDefinition, ComponentCounts]:
        if not self.enabled:
            raise PipelineError("profiling is switched off: create_profiler(enabled=True)")
        return live_definition(pipe, find_anatomy(pipe))

    def _cost(
        self, pipe: Any, height: int, width: int, steps: int, guidance_scale: float, batch: int = 1
    ) -> PipelineCost:
        definition, counts = self._definition(pipe)
        # Pipelines take any scale and are not guided by one of up to 1.
        scale = max(float(guidance_scale), 1.0)
        precision = next(name for name, dtype in PRECISIONS.items() if dtype == counts.dtype)
        request = PipelineRequest(
            height=height, width=width, steps=steps, guidance_scale=scale, batch=batch, precision=precision
        )
        return cost_pipeline(definition, request, counts)
