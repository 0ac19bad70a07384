"""What a disabled profiler says: every figure that callers read is there, and zero."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from swinmr_profiling.profiler.pipelines.defined.json_records import FailedRecord
from swinmr_profiling.profiler.pipelines.output.record import mac_figures, size_figures, summary_record

REASON = "profiling is switched off"


def disabled_record(model_id: str | None, input_shape: Sequence[int], steps: int) -> FailedRecord:
    """`enabled` is False and says why; callers that add figures up without looking add zeros."""
    zeros: dict[str, Any] = {
        **size_figures(0),
        **mac_figures(0, 0),
        **dict.fromkeys(("unet_macs_per_step", "vae_macs", "text_encoder_macs", "denoiser_calls"), 0),
        **dict.fromkeys(("inference_time_seconds", "throughput_tflops"), 0.0),
    }
    record: Any = {
        "enabled": False,
        "model_id": model_id,
        "reason": REASON,
        "model_component": "-",
        **zeros,
        "inference_time_str": "-",
        "inference_time_seconds_str": "-",
        "num_inference_steps": steps,
        "input_shape": list(input_shape),
        "latent_shape": None,
        "summary": summary_record(0, 0, 0, 0, steps),
    }
    return record
