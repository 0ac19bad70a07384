"""How often the denoiser is called: asked of the diffusers scheduler itself, never steps alone.

PNDM calls it once more than the steps, Heun and KDPM2 nearly twice as often.
"""

from __future__ import annotations

import difflib
import inspect
from typing import Any

from swinmr_profiling.configs.error_words import first_line
from swinmr_profiling.profiler.pipelines.defined.libraries import find_class, require_library
from swinmr_profiling.profiler.pipelines.errors import PipelineError

ALIASES = {
    "euler": "EulerDiscreteScheduler",
    "eulera": "EulerAncestralDiscreteScheduler",
    "heun": "HeunDiscreteScheduler",
    "kdpm2": "KDPM2DiscreteScheduler",
    "kdpm2a": "KDPM2AncestralDiscreteScheduler",
    "lms": "LMSDiscreteScheduler",
    "dpm++2m": "DPMSolverMultistepScheduler",
    "dpmsolver++": "DPMSolverMultistepScheduler",
    "unipc": "UniPCMultistepScheduler",
    "deis": "DEISMultistepScheduler",
    "flowmatcheuler": "FlowMatchEulerDiscreteScheduler",
    "flowmatchheun": "FlowMatchHeunDiscreteScheduler",
}
# Where a flow-matching scheduler shifts its times by the image's size, it wants that shift. It moves the times and
# leaves their number.
ANY_SHIFT = 1.0


def scheduler_class_name(name: str) -> str:
    """ "DDIM", "DPM++ 2M" or "DDIMScheduler" -> the diffusers class. Raises PipelineError with the nearest names."""
    library = require_library("diffusers")
    known = [entry for entry in dir(library) if entry.endswith("Scheduler") and not entry.startswith("Flax")]
    short = name.replace(" ", "").replace("_", "").lower()
    if short in ALIASES:
        return ALIASES[short]
    for entry in known:
        if entry.lower() in (short, f"{short}scheduler"):
            return entry
    candidates = {**{entry.removesuffix("Scheduler").lower(): entry for entry in known}, **ALIASES}
    near = difflib.get_close_matches(short, candidates, n=3, cutoff=0.4)
    hint = (
        f"did you mean {' or '.join(candidates[n] for n in near)}?"
        if near
        else "a diffusers class, such as DDIM"
    )
    raise PipelineError(f"scheduler {name!r} is not known: {hint}")


def make_scheduler(class_name: str, config: dict[str, Any]) -> Any:
    """The diffusers scheduler. Raises PipelineError for a config it does not take."""
    kind: Any = find_class(f"diffusers.{class_name}")
    try:
        return kind.from_config({**config})
    except Exception as error:
        raise PipelineError(f"{class_name} cannot be built from its config: {error}") from error


def replace_scheduler(scheduler: Any, name: str) -> Any:
    """Another scheduler with the config of the pipeline's own, as `from_config(pipe.scheduler.config)` makes it.

    Raises PipelineError for an unknown name, and where one is for flow matching and the other is not.
    """
    class_name = scheduler_class_name(name)
    kind: Any = find_class(f"diffusers.{class_name}")
    is_for_flow = _is_flow_class(type(scheduler)) or bool(scheduler.config.get("use_flow_sigmas"))
    takes_flow = _is_flow_class(kind) or "use_flow_sigmas" in inspect.signature(kind.__init__).parameters
    if is_for_flow and not takes_flow:
        raise PipelineError(
            f"scheduler {class_name} is not for flow matching, which this pipeline was trained with "
            f"({type(scheduler).__name__}): use FlowMatchEuler, FlowMatchHeun, DPM++ 2M or UniPC"
        )
    if _is_flow_class(kind) and not is_for_flow:
        raise PipelineError(
            f"scheduler {class_name} is for flow matching, and this pipeline is not "
            f"({type(scheduler).__name__}): use DDIM, Euler, DPM++ 2M or Heun"
        )
    return kind.from_config(scheduler.config)


def _is_flow_class(kind: type) -> bool:
    return kind.__name__.startswith("FlowMatch")


def count_timesteps(scheduler: Any, steps: int, strength: float | None = None) -> int:
    """Denoiser times of a run of `steps` steps; with `strength`, of the image-to-image run that starts late.

    Raises PipelineError for steps that the scheduler does not take, or none left to run.
    """
    kwargs = {"mu": ANY_SHIFT} if scheduler.config.get("use_dynamic_shifting") else {}
    try:
        scheduler.set_timesteps(steps, **kwargs)
    except Exception as error:
        raise PipelineError(
            f"{type(scheduler).__name__} takes no {steps} steps: {first_line(error)}"
        ) from error
    times = len(scheduler.timesteps)
    if strength is not None:
        # get_timesteps of diffusers' image-to-image pipelines.
        started = steps - min(int(steps * strength), steps)
        times -= started * scheduler.order
    if times < 1:
        raise PipelineError(f"{steps} steps at strength {strength:g} leave none to run: give more steps")
    return times
