"""Any model class of the diffusers package, with random weights: nothing is downloaded.

What a class takes is read from its `forward`: the first argument is the image, `timestep` the time step, and
everything else that it cannot do without must be described in `model.inputs`; so can these two, where the first is no
image (tokens) or a time step is of another kind.
"""

from __future__ import annotations

import inspect
from dataclasses import replace
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.configs.declared_inputs import Declared, DeclaredTensor, read_inputs
from swinmr_profiling.configs.error_report import shown
from swinmr_profiling.configs.error_words import did_you_mean, one_line
from swinmr_profiling.configs.sections.denoiser import DiffusersModelConfig
from swinmr_profiling.models.denoisers.denoiser_inputs import CROSS_CHECK_SIDE
from swinmr_profiling.models.errors import ModelError
from swinmr_profiling.models.inputs import BuiltModel, InputSpec, Purpose, placed, specs_of
from swinmr_profiling.models.size_guard import SizeGuard, without_data

TIMESTEP = "timestep"
MAX_TEXT = 200


class DiffusersDenoiser(nn.Module):
    """Calls a diffusers model with its tensors one behind the other and returns its first tensor.

    arguments: (positional, keyword) inputs of the model, with the number of a tensor in the place of each.
    """

    def __init__(self, model: nn.Module, arguments: tuple[tuple[Any, ...], dict[str, Any]]) -> None:
        super().__init__()
        self.model, self.arguments = model, arguments
        accepted = inspect.signature(type(model).forward).parameters
        self.options = {"return_dict": False} if "return_dict" in accepted else {}

    def forward(self, *tensors: Tensor) -> Tensor:
        """The image (B, C, H, W), the time steps (B,) if it takes them, then what the config describes."""
        args, kwargs = placed(self.arguments, tensors)
        result = self.model(*args, **kwargs, **self.options)
        return result if isinstance(result, Tensor) else result[0]


def build_diffusers(config: ExperimentConfig) -> BuiltModel:
    """The class `model.class` made with `model.config`.

    Raises ModelError without the package, for a class that it does not have or that is not a network, for arguments
    that the class refuses, and for inputs that it needs and the config does not describe.
    """
    options = config.model_section(DiffusersModelConfig)
    network_class = _class_named(getattr(options, "class"))
    image_name, takes_timestep = _check_inputs(network_class, options.inputs)
    described = read_inputs(options.inputs).kwargs
    words = {image_name: "an image", TIMESTEP: "a time step"}
    channels, image_hw = (None, None) if image_name in described else _image_of(network_class, options)

    def inputs_for(hw: tuple[int, ...] | None) -> tuple[tuple[InputSpec, ...], Any]:
        inputs: dict[str, Declared] = {}
        if hw is not None:
            assert channels is not None  # known where the sides are
            inputs[image_name] = DeclaredTensor((channels, *hw))
        else:
            inputs[image_name] = described[image_name]
        if takes_timestep:
            inputs[TIMESTEP] = described.get(TIMESTEP, DeclaredTensor((), dtype="int64"))
        for name, declared in described.items():
            if name in options.int64_inputs and isinstance(declared, DeclaredTensor):
                declared = replace(declared, dtype="int64")
            inputs[name] = declared
        tensors: list[InputSpec] = []
        arguments = specs_of(inputs, tensors)
        return tuple(tensors), ((arguments.pop(image_name),), arguments)

    trial = _without_data(network_class, options.config)
    patch_hw = image_hw and (config.training_patch_hw or image_hw)
    _, arguments = inputs_for(image_hw)
    wrapped = None if trial is None else DiffusersDenoiser(trial, arguments)
    for hw in dict.fromkeys((image_hw, patch_hw)):
        specs = inputs_for(hw)[0]
        problem = _refusal(wrapped, specs)
        if problem is not None:
            undeclared = {name: text for name, text in words.items() if name not in described}
            what = _described(specs, {image_name: arguments[0][0], **arguments[1]}, undeclared)
            raise ModelError(
                f"model: {network_class.__name__} does not take {what}: {problem}; change config, inputs or sizes"
            )
    small_hw = image_hw and tuple(min(side, CROSS_CHECK_SIDE) for side in image_hw)
    if small_hw != image_hw and _refusal(wrapped, inputs_for(small_hw)[0]) is not None:
        small_hw = image_hw
    module: Any = _create(network_class, options.config)
    if config.training.network_checkpointing != "none":
        try:
            module.enable_gradient_checkpointing()
        except ValueError as error:
            text = f"{network_class.__name__} cannot: {one_line(error, MAX_TEXT)}"
            raise ModelError(f'training.gradient_checkpointing: {text}; set "none"') from error
    sizes: dict[Purpose, tuple[int, ...] | None] = {
        "inference": image_hw,
        "training": patch_hw,
        "cross_check": small_hw,
    }
    return BuiltModel(
        "diffusers",
        DiffusersDenoiser(module, arguments),
        {purpose: inputs_for(hw)[0] for purpose, hw in sizes.items()},
    )


def _image_of(network_class: type[nn.Module], options: DiffusersModelConfig) -> tuple[int, tuple[int, int]]:
    """Channels and sides of a whole image. Raises ModelError where neither the config nor the class has them."""
    arguments = inspect.signature(network_class.__init__).parameters
    channels = options.config.get("in_channels", _default(arguments, "in_channels"))
    size = options.img_size or options.config.get("sample_size", _default(arguments, "sample_size"))
    if not isinstance(channels, int) or size is None:
        key = "config.in_channels" if size is not None else "img_size"
        raise ModelError(f"model.{key}: {network_class.__name__} has none of its own: give it")
    sides: Any = (size, size) if type(size) is int else size
    is_pair = isinstance(sides, (list, tuple)) and len(sides) == 2
    if not is_pair or not all(type(side) is int and side > 0 for side in sides):
        raise ModelError(f"model.config.sample_size: {shown(size)}: pixels are expected, or [height, width]")
    return channels, (sides[0], sides[1])


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
        raise ModelError(
            f"model.class: diffusers cannot import {name}: {one_line(error, MAX_TEXT)}"
        ) from error
    if found is None:
        hint = did_you_mean(name, dir(diffusers), "", most=3)
        raise ModelError(
            f"model.class: diffusers {diffusers.__version__} has no class {name!r}{hint and f': {hint}'}"
        )
    if not isinstance(found, type) or not issubclass(found, nn.Module):
        raise ModelError(
            f"model.class: {name} of diffusers is not a network: name a model class, such as UNet2DModel"
        )
    return found


def _check_inputs(network_class: type[nn.Module], described: dict[str, Any]) -> tuple[str, bool]:
    """Name of the first input, and whether there is a time step. Raises ModelError for what is missing or unknown."""
    name = network_class.__name__
    image, *others = list(inspect.signature(network_class.forward).parameters.values())[1:]
    accepted = {parameter.name for parameter in others}
    for given in described:
        if given not in accepted | {image.name} or given == "return_dict":
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
        beside = f"{image.name} and {TIMESTEP}" if TIMESTEP in accepted else image.name
        raise ModelError(
            f"model.inputs: {name}.forward needs {', '.join(missing)} beside {beside}: describe "
            f"the shape without the batch, {{{shapes}}}"
        )
    return image.name, TIMESTEP in accepted


def _default(arguments: Any, name: str) -> Any:
    found = arguments.get(name)
    return None if found is None or found.default is inspect.Parameter.empty else found.default


def _create(network_class: type[nn.Module], config: dict[str, Any]) -> nn.Module:
    try:
        return network_class(**config)
    except Exception as error:  # constructors raise whatever their options run into
        name = network_class.__name__
        raise ModelError(f"model.config: {name} refuses it: {one_line(error, MAX_TEXT)}") from error


def _without_data(network_class: type[nn.Module], config: dict[str, Any]) -> nn.Module | None:
    """The network without data, or None for a class that reads values while it is built."""
    trial = without_data(lambda: network_class(**config))
    if trial is None:
        # Either the options are wrong, which the real construction tells, or meta tensors are not enough.
        with SizeGuard():
            _create(network_class, config)
    return trial


def _refusal(network: nn.Module | None, inputs: tuple[InputSpec, ...]) -> str | None:
    """What a forward without data says of such inputs, two of them and one; None where it runs, or cannot be tried.

    A group norm refuses a single value, which one image of one pixel has.
    """
    if network is None:
        return None
    generator = torch.Generator().manual_seed(0)
    for batch_size in (2, 1):
        examples = [spec.example(batch_size, "meta", torch.float32, generator) for spec in inputs]
        try:
            with torch.no_grad():
                network.eval()(*examples)
        except NotImplementedError:
            return None  # an operator that needs values
        except Exception as error:  # a network may raise anything
            return one_line(error, MAX_TEXT)
    return None


def _described(specs: tuple[InputSpec, ...], named: dict[str, Any], words: dict[str, str]) -> str:
    """The inputs, in words or by name, each with its shape without the batch."""
    return ", ".join(
        f"{words.get(name, name)} {list(specs[number].shape)}"
        for name, numbers in named.items()
        for number in torch.utils._pytree.tree_leaves(numbers)
    )
