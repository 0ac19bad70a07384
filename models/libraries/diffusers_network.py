"""Any model class of the diffusers package, with random weights: nothing is downloaded.

What a class takes is read from its `forward`: the first argument is the noisy image or latent, `timestep` the time
step. Of everything else `model.inputs` describes what it likes, these two included; the rest is derived as in the
costs of pipelines (`argument_makers.py`), and what is not known there must be described.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.configs.declared_inputs import Declared, DeclaredConstant, DeclaredTensor, read_inputs
from swinmr_profiling.configs.error_report import shown
from swinmr_profiling.configs.error_words import one_line
from swinmr_profiling.configs.field_types import image_hw as hw_of
from swinmr_profiling.configs.sections.denoiser import DiffusersModelConfig
from swinmr_profiling.models.errors import ModelError
from swinmr_profiling.models.from_diffusers.argument_makers import derived_inputs
from swinmr_profiling.models.from_diffusers.denoiser import Denoiser, UnknownInputError, denoiser_by
from swinmr_profiling.models.from_diffusers.latents import (
    CallSizes,
    channels_of,
    default_sides,
    usual_frames,
    usual_text_tokens,
)
from swinmr_profiling.models.inputs import (
    BuiltModel,
    InputSpec,
    Purpose,
    Samples,
    cross_check_hw,
    placed,
    specs_of,
)
from swinmr_profiling.models.libraries.model_classes import MAX_TEXT, class_named, package
from swinmr_profiling.models.size_guard import SizeGuard, TooLargeError, without_data
from swinmr_profiling.models.stand_in import autocast_on_meta

TIMESTEP = "timestep"
# Whether a network gets weights.
Data = Literal["always", "if it fits", "never"]
# What errors say of tensors without data.
NO_DATA = (" meta", "'meta'", "unsupported scalarType")


class DiffusersDenoiser(nn.Module):
    """Calls a diffusers model with its tensors one behind the other and returns its first tensor.

    arguments: (positional, keyword) inputs of the model, with the number of a tensor in the place of each; by the shape
    of the first tensor without the batch, as sides of packed latents are numbers of the call.
    """

    def __init__(
        self, model: nn.Module, arguments: Mapping[tuple[int, ...], tuple[tuple[Any, ...], dict[str, Any]]]
    ) -> None:
        super().__init__()
        self.model, self.arguments = model, dict(arguments)
        accepted = inspect.signature(type(model).forward).parameters
        self.options = {"return_dict": False} if "return_dict" in accepted else {}

    def forward(self, *tensors: Tensor) -> Tensor:
        """The image (B, C, H, W), the time steps (B,) if it takes them, then what the config describes or not."""
        known = next(iter(self.arguments.values()))
        args, kwargs = placed(self.arguments.get(tuple(tensors[0].shape[1:]), known), tensors)
        result = self.model(*args, **kwargs, **self.options)
        first = result if isinstance(result, Tensor) else result[0]
        return first if isinstance(first, Tensor) else torch.stack(first)


def build_diffusers(config: ExperimentConfig, *, data: Data = "always") -> BuiltModel:
    """The class `model.class` made with `model.config`.

    data: "never" leaves the network without data where it can be made so, "if it fits" where it is larger than the
    machine: it can be counted and traced.
    Raises ModelError without the package, for a class that it does not have or that is not a network, for arguments
    that the class refuses, and for inputs that it needs and that are neither described nor known.
    """
    options = config.model_section(DiffusersModelConfig)
    network_class = class_named(package("diffusers", "diffusion"), getattr(options, "class"), "UNet2DModel")
    denoiser = denoiser_by(network_class, options.config)
    described = _described_inputs(denoiser, options)
    image_name = next(iter(denoiser.parameters))
    image_hw = None if image_name in described else _image_of(denoiser, options)
    sides = image_hw or (None if options.img_size is None else hw_of(options.img_size))
    frames = options.frames or usual_frames(denoiser)
    tokens = options.text_tokens or _tokens_of(described) or usual_text_tokens(denoiser)

    def inputs_for(hw: tuple[int, int] | None) -> tuple[tuple[InputSpec, ...], Any]:
        derived = _derived(denoiser, CallSizes(hw, tokens, frames), described)
        wanted = dict.fromkeys((image_name, TIMESTEP, *described, *derived))
        inputs = {**derived, **described}
        specs: list[InputSpec] = []
        arguments = specs_of({name: inputs[name] for name in wanted if name in inputs}, specs)
        return tuple(specs), ((arguments.pop(image_name),), arguments)

    small_hw = image_hw and cross_check_hw(image_hw)
    patch_hw = image_hw and (config.training_patch_hw or image_hw)
    sizes: dict[Purpose, tuple[int, int] | None] = {
        "inference": image_hw or sides,
        "training": patch_hw or sides,
        "cross_check": small_hw or sides,
    }
    trial, is_kept = _without_data(network_class, options.config, data)
    calls = {hw: inputs_for(hw) for hw in dict.fromkeys(sizes.values())}
    structures = {specs[0].shape: arguments for specs, arguments in calls.values()}
    wrapped = None if trial is None else DiffusersDenoiser(trial, structures)
    for hw in dict.fromkeys((sizes["inference"], sizes["training"])):
        specs, arguments = calls[hw]
        problem = _refusal(wrapped, specs)
        if problem is not None:
            words = {image_name: "an image", TIMESTEP: "a time step"}
            undeclared = {name: text for name, text in words.items() if name not in described}
            what = _described(specs, {image_name: arguments[0][0], **arguments[1]}, undeclared)
            raise ModelError(
                f"model: {network_class.__name__} does not take {what}: {problem}; change config, inputs or sizes"
            )
    small_hw = sizes["cross_check"]
    if small_hw != sizes["inference"] and _refusal(wrapped, calls[small_hw][0]) is not None:
        sizes["cross_check"] = sizes["inference"]
    module: Any = trial if is_kept else _create(network_class, options.config)
    if config.training.network_checkpointing != "none":
        try:
            module.enable_gradient_checkpointing()
        except ValueError as error:
            text = f"{network_class.__name__} cannot: {one_line(error, MAX_TEXT)}"
            raise ModelError(f'training.gradient_checkpointing: {text}; set "none"') from error
    specs, arguments = calls[sizes["inference"]]
    return BuiltModel(
        "diffusers",
        DiffusersDenoiser(module, structures),
        {purpose: calls[hw][0] for purpose, hw in sizes.items()},
        _notes(specs, {image_name: arguments[0][0], **arguments[1]}, (image_name, TIMESTEP, *described)),
    )


def _described_inputs(denoiser: Denoiser, options: DiffusersModelConfig) -> dict[str, Declared]:
    """What `model.inputs` describes. Raises ModelError for what the class does not take."""
    others = list(denoiser.parameters)[1:]
    found: dict[str, Declared] = {}
    for name, declared in read_inputs(options.inputs).kwargs.items():
        if name not in denoiser.parameters or name == "return_dict":
            known = ", ".join(sorted({*others} - {TIMESTEP, "return_dict"}))
            raise ModelError(
                f"model.inputs: {denoiser.name}.forward takes no further input {name!r}; it takes {known}"
            )
        if name in options.int64_inputs and isinstance(declared, DeclaredTensor):
            declared = replace(declared, dtype="int64")
        found[name] = declared
    return found


def _derived(denoiser: Denoiser, sizes: CallSizes, described: dict[str, Declared]) -> dict[str, Declared]:
    try:
        return derived_inputs(denoiser, sizes, described)
    except UnknownInputError as error:
        raise ModelError(
            f"model.inputs: {denoiser.name}.forward needs {error.name}, and nothing here knows what goes into it: "
            f'describe the shape without the batch, {{"{error.name}": [...]}}, or a value, '
            f'{{"{error.name}": {{"constant": ...}}}}'
        ) from error


def _tokens_of(described: dict[str, Declared]) -> int | None:
    """Tokens of a prompt whose embedding is described."""
    context = described.get("encoder_hidden_states")
    return context.shape[-2] if isinstance(context, DeclaredTensor) and len(context.shape) > 1 else None


def _notes(specs: tuple[InputSpec, ...], named: dict[str, Any], stated: Collection[str]) -> tuple[str, ...]:
    """A line on inputs that were derived, with their shapes without the batch."""
    derived = {name: value for name, value in named.items() if name not in stated}
    shapes = _described(specs, derived, {})
    if not shapes:
        return ()
    return (
        f"inputs beside the latent, by the class's config and its pipelines' length of a prompt: {shapes} (others: "
        "model.inputs, model.text_tokens, model.frames)",
    )


def _image_of(denoiser: Denoiser, options: DiffusersModelConfig) -> tuple[int, int]:
    """Sides of a whole image or latent. Raises ModelError where neither the config nor the class has them."""
    if not denoiser.is_prior:
        channels_of(denoiser)
    size = options.img_size or default_sides(denoiser)
    if size is None:
        raise ModelError(f"model.img_size: {denoiser.name} has none of its own: give it")
    sides: Any = (size, size) if type(size) is int else size
    is_pair = isinstance(sides, (list, tuple)) and len(sides) == 2
    if not is_pair or not all(type(side) is int and side > 0 for side in sides):
        raise ModelError(f"model.config.sample_size: {shown(size)}: pixels are expected, or [height, width]")
    return sides[0], sides[1]


def _create(network_class: type[nn.Module], config: dict[str, Any]) -> nn.Module:
    try:
        return network_class(**config)
    except Exception as error:  # constructors raise whatever their options run into
        name = network_class.__name__
        raise ModelError(f"model.config: {name} refuses it: {one_line(error, MAX_TEXT)}") from error


def _without_data(
    network_class: type[nn.Module], config: dict[str, Any], data: Data
) -> tuple[nn.Module | None, bool]:
    """The network without data, or None for a class that reads values while it is built; and whether to leave it so."""
    try:
        trial = without_data(lambda: network_class(**config), must_fit=data != "never")
    except TooLargeError:
        if data == "always":
            raise
        return without_data(lambda: network_class(**config), must_fit=False), True
    if trial is None:
        # Either the options are wrong, which the real construction tells, or meta tensors are not enough.
        with SizeGuard():
            _create(network_class, config)
    return trial, trial is not None and data == "never"


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
            with torch.no_grad(), autocast_on_meta("cpu"):
                network.eval()(*examples)
        except NotImplementedError:
            return None  # an operator that needs values
        except Exception as error:  # a network may raise anything
            text = one_line(error, MAX_TEXT)
            # Values that are asked for, or tensors made on the CPU: a real run tells.
            return None if any(word in text for word in NO_DATA) else text
    return None


def _described(specs: tuple[InputSpec, ...], named: dict[str, Any], words: dict[str, str]) -> str:
    """The inputs, in words or by name, each with its shape without the batch; values that are no tensors left out."""
    return ", ".join(
        f"{words.get(name, name)} {list(specs[number].shape)}" for name, number in _numbers(named)
    )


def _numbers(structure: Any, name: str = "") -> Iterator[tuple[str, int]]:
    """Names and numbers of the tensors in a structure of inputs; those in lists have their list's name."""
    if isinstance(structure, dict):
        for key, item in structure.items():
            yield from _numbers(item, f"{name}.{key}" if name else key)
    elif isinstance(structure, (list, tuple)):
        for item in structure:
            yield from _numbers(item, name)
    elif not isinstance(structure, DeclaredConstant):
        yield name, structure.number if isinstance(structure, Samples) else structure
