"""Any model class of the diffusers package, with random weights: nothing is downloaded.

What a class takes is read from its `forward`: the first argument is the image, `timestep` the time step, and
everything else that it cannot do without must be described in `model.inputs`.
"""

from __future__ import annotations

import difflib
import inspect
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.configs.error_report import shown
from swinmr_profiling.models.denoiser_inputs import CROSS_CHECK_SIDE
from swinmr_profiling.models.errors import ModelError
from swinmr_profiling.models.inputs import BuiltModel, InputSpec
from swinmr_profiling.models.size_guard import SizeGuard, without_data

TIMESTEP = "timestep"
MAX_TEXT = 200


class DiffusersDenoiser(nn.Module):
    """Calls a diffusers model with positional inputs and returns its first tensor.

    takes_timestep: whether the second input is the time step. names: of the inputs behind it.
    """

    def __init__(self, model: nn.Module, takes_timestep: bool, names: list[str]) -> None:
        super().__init__()
        self.model, self.takes_timestep, self.names = model, takes_timestep, names

    def forward(self, x: Tensor, *others: Tensor) -> Tensor:
        """x (B, C, H, W), the time steps (B,) if it takes them, then what `names` says."""
        names = [TIMESTEP, *self.names] if self.takes_timestep else self.names
        return self.model(x, **dict(zip(names, others, strict=True)), return_dict=False)[0]


def build_diffusers(config: ExperimentConfig) -> BuiltModel:
    """The class `model.class` made with `model.config`.

    Raises ModelError without the package, for a class that it does not have or that is no network, for arguments
    that the class refuses, and for inputs that it needs and the config does not describe.
    """
    options = config.model
    network_class = _class_named(getattr(options, "class"))
    takes_timestep = _check_inputs(network_class, options.inputs)
    names = list(options.inputs)
    arguments = inspect.signature(network_class.__init__).parameters
    channels = options.config.get("in_channels", _default(arguments, "in_channels"))
    size = options.img_size or options.config.get("sample_size", _default(arguments, "sample_size"))
    if not isinstance(channels, int) or size is None:
        key = "config.in_channels" if size is not None else "img_size"
        raise ModelError(f"model.{key}: {network_class.__name__} has none of its own: give it")
    image_hw = (size, size) if isinstance(size, int) else size
    is_pair = isinstance(image_hw, (list, tuple)) and len(image_hw) == 2
    if not is_pair or not all(isinstance(side, int) and side > 0 for side in image_hw):
        raise ModelError(f"model.config.sample_size: {shown(size)}: pixels are expected, or [height, width]")
    image_hw = tuple(image_hw)

    def specs(hw: tuple[int, ...]) -> tuple[InputSpec, ...]:
        further = [
            InputSpec(tuple(shape), "int64" if name in options.int64_inputs else "float")
            for name, shape in options.inputs.items()
        ]
        time = [InputSpec((), "int64")] if takes_timestep else []
        return (InputSpec((channels, *hw)), *time, *further)

    trial = _without_data(network_class, options.config)
    wrapped = None if trial is None else DiffusersDenoiser(trial, takes_timestep, names)
    patch_hw = config.training_patch_hw or image_hw
    for hw in dict.fromkeys((image_hw, patch_hw)):
        problem = _refusal(wrapped, specs(hw))
        if problem is not None:
            what = _described(specs(hw), takes_timestep, names)
            raise ModelError(
                f"model: {network_class.__name__} does not take {what}: {problem}; change config, inputs or sizes"
            )
    small_hw = tuple(min(side, CROSS_CHECK_SIDE) for side in image_hw)
    if small_hw != image_hw and _refusal(wrapped, specs(small_hw)) is not None:
        small_hw = image_hw
    module = _create(network_class, options.config)
    if config.training.gradient_checkpointing != "none":
        try:
            module.enable_gradient_checkpointing()
        except ValueError as error:
            text = f"{network_class.__name__} cannot: {_one_line(error)}"
            raise ModelError(f'training.gradient_checkpointing: {text}; set "none"') from error
    sizes = {"inference": image_hw, "training": patch_hw, "cross_check": small_hw}
    return BuiltModel(
        "diffusers",
        DiffusersDenoiser(module, takes_timestep, names),
        {purpose: specs(hw) for purpose, hw in sizes.items()},
    )


def _package() -> ModuleType:
    try:
        # Imported here: it takes longer than torch itself, and no other network needs it.
        import diffusers
    except ImportError as error:
        raise ModelError(
            'model.net_type: "diffusers" needs the package diffusers: pip install ".[diffusion]"'
        ) from error
    return diffusers


def _class_named(name: str) -> type[nn.Module]:
    diffusers = _package()
    try:
        found = getattr(diffusers, name)
    except AttributeError:
        found = None
    except Exception as error:  # diffusers imports a class when it is asked for, and other packages with it
        raise ModelError(f"model.class: diffusers cannot import {name}: {_one_line(error)}") from error
    if found is None:
        nearest = difflib.get_close_matches(name, dir(diffusers), n=3, cutoff=0.6)
        hint = f": did you mean {' or '.join(nearest)}?" if nearest else ""
        raise ModelError(f"model.class: diffusers {diffusers.__version__} has no class {name!r}{hint}")
    if not isinstance(found, type) or not issubclass(found, nn.Module):
        raise ModelError(
            f"model.class: {name} of diffusers is no network: name a model class, such as UNet2DModel"
        )
    return found


def _check_inputs(network_class: type[nn.Module], described: dict[str, Any]) -> bool:
    """Whether forward takes a time step. Raises ModelError for inputs that are missing or not there."""
    name = network_class.__name__
    image, *others = list(inspect.signature(network_class.forward).parameters.values())[1:]
    accepted = {parameter.name for parameter in others}
    for given in described:
        if given not in accepted or given in (TIMESTEP, "return_dict"):
            known = ", ".join(sorted(accepted - {TIMESTEP, "return_dict"}))
            raise ModelError(
                f"model.inputs: {name}.forward takes no further input {given!r}; it takes {known}"
            )
    missing = [
        parameter.name
        for parameter in others
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        and parameter.name not in (TIMESTEP, *described)
    ]
    if missing:
        shapes = ", ".join(f'"{one}": [...]' for one in missing)
        raise ModelError(
            f"model.inputs: {name}.forward needs {', '.join(missing)} beside {image.name} and {TIMESTEP}: describe "
            f"the shape without the batch, {{{shapes}}}"
        )
    return TIMESTEP in accepted


def _default(arguments: Any, name: str) -> Any:
    found = arguments.get(name)
    return None if found is None or found.default is inspect.Parameter.empty else found.default


def _create(network_class: type[nn.Module], config: dict[str, Any]) -> nn.Module:
    try:
        return network_class(**config)
    except Exception as error:  # constructors raise whatever their options run into
        name = network_class.__name__
        raise ModelError(f"model.config: {name} refuses it: {_one_line(error)}") from error


def _without_data(network_class: type[nn.Module], config: dict[str, Any]) -> nn.Module | None:
    """The network without data, or None for a class that reads values while it is built."""
    trial = without_data(lambda: network_class(**config))
    if trial is None:
        # Either the options are wrong, which the real construction tells, or meta tensors are not enough.
        with SizeGuard():
            _create(network_class, config)
    return trial


def _refusal(network: nn.Module | None, inputs: tuple[InputSpec, ...]) -> str | None:
    """What one forward without data says of such inputs; None where it runs, or cannot be tried."""
    if network is None:
        return None
    generator = torch.Generator().manual_seed(0)
    examples = [spec.example(2, "meta", torch.float32, generator) for spec in inputs]
    try:
        with torch.no_grad():
            network.eval()(*examples)
    except NotImplementedError:
        return None  # an operator that needs values
    except Exception as error:  # a network may raise anything
        return _one_line(error)
    return None


def _described(specs: tuple[InputSpec, ...], takes_timestep: bool, names: list[str]) -> str:
    words = ["an image", *(["a time step"] if takes_timestep else []), *names]
    return ", ".join(f"{word} {list(spec.shape)}" for word, spec in zip(words, specs, strict=True))


def _one_line(error: Exception) -> str:
    text = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {text[:MAX_TEXT]}"
