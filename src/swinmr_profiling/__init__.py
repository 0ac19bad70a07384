"""The rooms configs, models, profiler and training as one package, beside a user's own packages of these names.

Installed, the rooms lie in this package's folder. In a checkout they are the folders at its top; the folder above this
one holds nothing else, so with it on sys.path `import models` never finds ours.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from swinmr_profiling.profiler.own_step.prediction import predict_training
    from swinmr_profiling.profiler.own_step.summary import count, recommend, summary
    from swinmr_profiling.profiler.plan.errors import PlanError
    from swinmr_profiling.profiler.plan.plan_file import apply_plan
    from swinmr_profiling.training.step.own_step import OwnStepError

__all__ = ["OwnStepError", "PlanError", "apply_plan", "count", "predict_training", "recommend", "summary"]

_HERE = Path(__file__).resolve().parent
# The top folder of the checkout that this is, None where the package is installed.
CHECKOUT: Path | None = None if (_HERE / "models").is_dir() else _HERE.parent.parent
if CHECKOUT is not None:
    __path__.append(str(CHECKOUT))


# Only when one is asked for: commands start without torch.
_FOUND_IN = {
    "OwnStepError": "training.step.own_step",
    "PlanError": "profiler.plan.errors",
    "apply_plan": "profiler.plan.plan_file",
    "count": "profiler.own_step.summary",
    "predict_training": "profiler.own_step.prediction",
    "recommend": "profiler.own_step.summary",
    "summary": "profiler.own_step.summary",
}


def __getattr__(name: str) -> Any:
    if name not in _FOUND_IN:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_FOUND_IN[name]}"), name)
