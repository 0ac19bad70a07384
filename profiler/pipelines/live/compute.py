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
from swinmr_profiling.profiler.pipelines.defined.cost import cost_pipeline
from swinmr_profiling.profiler.pipelines.defined.cost_records import PipelineCost, PipelineRequest
from swinmr_profiling.profiler.pipelines.defined.json_records import (
    FailedRecord,
    LivePrediction,
    LiveRecord,
)
from swinmr_profiling.profiler.pipelines.errors import PipelineError
from swinmr_profiling.profiler.pipelines.live.anatomy import find_anatomy, live_definition, not_costed
from swinmr_profiling.profiler.pipelines.live.live_record import predicted_record, watched_record
from swinmr_profiling.profiler.pipelines.live.timed_run import TimedRun
from swinmr_profiling.profiler.pipelines.live.watched_run import WatchedRun, watching
from swinmr_profiling.profiler.pipelines.output.record import summary_record, work_figures

DEFAULT_SIDE_PX = 512
DEFAULT_GUIDANCE_SCALE = 7.5
DEFAULT_STEPS = 30
SWITCHED_OFF = "profiling is switched off"


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
        return _cost_of(pipe, (1, 3, height, width), 1, guidance_scale)[0].macs_per_step

    def measure_vae_decode_macs(
        self, pipe: Any, height: int = DEFAULT_SIDE_PX, width: int = DEFAULT_SIDE_PX
    ) -> int:
        """Decoding one latent to an image."""
        if not self.enabled:
            return 0
        return _cost_of(pipe, (1, 3, height, width), 1, 1.0)[0].macs_of("vae_decode")

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
        cost, _ = _cost_of(pipe, (1, 3, height, width), steps, guidance_scale)
        text_and_vae = cost.macs_of("text_encoder"), cost.macs_of("vae_decode")
        return summary_record(cost.macs_per_step, *text_and_vae, cost.macs, steps)

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
        timed = timed or TimedRun(inference_time_seconds)
        run = self._last_run if self._last_run is not None and self._last_run.pipe is pipe else None
        try:
            if run is not None:
                prediction = _prediction(pipe, input_shape, num_inference_steps, guidance_scale)
                return watched_record(
                    *(run, find_anatomy(pipe), input_shape, num_inference_steps, model_id, guidance_scale),
                    *(prediction, timed),
                )
            cost, left_out = _cost_of(pipe, input_shape, num_inference_steps, guidance_scale)
            return predicted_record(cost, find_anatomy(pipe), left_out, model_id, timed)
        except Exception as error:  # whatever a stranger's pipeline does, its generation goes on
            return {"enabled": False, "model_id": model_id, "reason": _reason(error)}


def _prediction(pipe: Any, input_shape: Sequence[int], steps: int, guidance_scale: float) -> LivePrediction:
    """Of the same run; whatever goes wrong in it costs nothing of what was counted."""
    try:
        cost, left_out = _cost_of(pipe, input_shape, steps, guidance_scale)
    except Exception as error:
        return {"enabled": False, "total_macs": None, "not_costed": [], "reason": _reason(error)}
    return {"enabled": True, "total_macs": cost.macs, "not_costed": left_out, "reason": None}


def _cost_of(
    pipe: Any, input_shape: Sequence[int], steps: int, guidance_scale: float
) -> tuple[PipelineCost, list[str]]:
    """The cost of a run, and the networks that it does not hold."""
    batch, _, height, width = input_shape
    anatomy = find_anatomy(pipe)
    definition, counts = live_definition(pipe, anatomy)
    request = PipelineRequest(
        height=height,
        width=width,
        steps=steps,
        # Pipelines take any scale and are not guided by one of up to 1.
        guidance_scale=max(float(guidance_scale), 1.0),
        batch=batch,
        precision=next(name for name, dtype in PRECISIONS.items() if dtype == counts.dtype),
    )
    return cost_pipeline(definition, request, counts), not_costed(definition, anatomy)


def disabled_record(model_id: str | None, input_shape: Sequence[int], steps: int) -> FailedRecord:
    """What a disabled profiler says: why, and every figure that callers read, who add zeros without looking."""
    record: Any = {
        "enabled": False,
        "model_id": model_id,
        "reason": SWITCHED_OFF,
        "model_component": "-",
        **work_figures(0, 0, 0),
        **dict.fromkeys(("unet_macs_per_step", "vae_macs", "text_encoder_macs", "denoiser_calls"), 0),
        **dict.fromkeys(("inference_time_seconds", "throughput_tflops"), 0.0),
        "inference_time_str": "-",
        "inference_time_seconds_str": "-",
        "num_inference_steps": steps,
        "input_shape": list(input_shape),
        "latent_shape": None,
        "summary": summary_record(0, 0, 0, 0, steps),
    }
    return record


def _reason(error: Exception) -> str:
    return first_line(error) if isinstance(error, PipelineError) else one_line(error)
