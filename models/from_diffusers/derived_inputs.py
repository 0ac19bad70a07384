"""What one call of a diffusers denoiser takes, found from its own signature and config.

No list of models: a denoiser that diffusers calls with the arguments known here is fed, whatever its name. The
pipelines' costs (`profiler/pipelines`) and networks of a config (`network.py`) are fed by the same rules.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection

from swinmr_profiling.configs.declared_inputs import Declared, DeclaredConstant
from swinmr_profiling.models.from_diffusers.argument_makers import MAKERS
from swinmr_profiling.models.from_diffusers.denoiser import Denoiser, UnknownInputError
from swinmr_profiling.models.from_diffusers.latents import CallSizes


def derived_inputs(denoiser: Denoiser, sizes: CallSizes, given: Collection[str] = ()) -> dict[str, Declared]:
    """Keyword arguments of one call, by name, without those that are `given`.

    Raises UnknownInputError for one that the signature asks for and that is not known here.
    """
    arguments: dict[str, Declared] = {}
    for name, parameter in denoiser.parameters.items():
        if name in given:
            continue
        maker = MAKERS.get(name)
        value = maker(denoiser, sizes) if maker else None
        if value is not None:
            arguments[name] = value
        elif parameter.default is inspect.Parameter.empty:
            if maker is None:
                raise UnknownInputError(denoiser.name, name)
            arguments[name] = DeclaredConstant(None)
    return arguments
