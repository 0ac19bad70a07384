"""The networks of this folder by name: what builds one, what it takes, and what size a whole image has."""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass
from typing import Any

from torch import nn

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.configs.error_words import did_you_mean
from swinmr_profiling.configs.field_types import image_hw as hw_of
from swinmr_profiling.configs.sections.library import RestorationModelConfig
from swinmr_profiling.models.errors import ModelError, refuse_unknown
from swinmr_profiling.models.inputs import BuiltModel, InputSpec, Purpose, cross_check_hw
from swinmr_profiling.models.restoration.basicvsr import BasicVSR
from swinmr_profiling.models.restoration.kair import IMDN, SRMD, FFDNet, MSRResNet0
from swinmr_profiling.models.restoration.man import MAN
from swinmr_profiling.models.restoration.residual import EDSR, ArtCNN, MSRResNet
from swinmr_profiling.models.restoration.span_plus import SPANPlus

DEFAULT_SIDE = 256


@dataclass(frozen=True)
class Entry:
    """One network. channels: the argument that says how many channels its input has, None for three.

    takes_noise: its second input is the noise's deviation, one number a sample. takes_frames: its input is a video.
    least_side: of an input, in pixels.
    """

    network_class: type[nn.Module]
    channels: str | None
    takes_noise: bool = False
    takes_frames: bool = False
    least_side: int = 1


NETWORKS = {
    "ArtCNN": Entry(ArtCNN, "in_ch"),
    "BasicVSR": Entry(BasicVSR, None, takes_frames=True, least_side=33),
    "EDSR": Entry(EDSR, "num_in_ch"),
    "FFDNet": Entry(FFDNet, "in_nc", takes_noise=True),
    "IMDN": Entry(IMDN, "in_nc"),
    "MAN": Entry(MAN, "n_colors"),
    "MSRResNet": Entry(MSRResNet, "num_in_ch"),
    "MSRResNet0": Entry(MSRResNet0, "in_nc"),
    "SPANPlus": Entry(SPANPlus, "num_in_ch"),
    "SRMD": Entry(SRMD, "in_nc"),
}


def build_restoration(config: ExperimentConfig) -> BuiltModel:
    """The network that `model.architecture` names, with random weights.

    Raises ModelError: an unknown name or argument (with the nearest), and arguments that the class refuses.
    """
    options = config.model_section(RestorationModelConfig)
    entry = NETWORKS.get(options.architecture)
    if entry is None:
        expected = f"one of {', '.join(NETWORKS)} is expected"
        hint = did_you_mean(options.architecture, NETWORKS, expected, likeness=0.5)
        raise ModelError(f"model.architecture: {options.architecture!r} is not known here: {hint}")
    module = made(options.architecture, entry, options.kwargs)
    known = {key: p.default for key, p in inspect.signature(entry.network_class.__init__).parameters.items()}
    channels = 3 if entry.channels is None else (known | options.kwargs)[entry.channels]
    image_hw = hw_of(DEFAULT_SIDE if options.img_size is None else options.img_size)
    patch_hw = config.training_patch_hw or image_hw
    for key, hw in (("model.img_size", image_hw), ("data.patch_size", patch_hw)):
        if min(hw) < entry.least_side:
            least = entry.least_side
            raise ModelError(
                f"{key}: {options.architecture} does not take {hw[0]} x {hw[1]}, but at least {least} x {least}"
            )

    def specs(hw: tuple[int, int]) -> tuple[InputSpec, ...]:
        image = (options.frames, channels, *hw) if entry.takes_frames else (channels, *hw)
        return (InputSpec(image), *([InputSpec((1, 1, 1))] if entry.takes_noise else []))

    sizes: dict[Purpose, tuple[InputSpec, ...]] = {
        "inference": specs(image_hw),
        "training": specs(patch_hw),
        "cross_check": specs(cross_check_hw(image_hw)),
    }
    return BuiltModel("restoration", module, sizes)


def made(name: str, entry: Entry, kwargs: dict[str, Any]) -> nn.Module:
    """The network. Raises ModelError for arguments that the class does not have or take."""
    known = inspect.signature(entry.network_class.__init__).parameters
    refuse_unknown(
        kwargs, entry.network_class.__init__, f"model.kwargs.{{name}}: {name} takes no such argument"
    )
    for key, value in kwargs.items():
        is_count = isinstance(known[key].default, int)
        if is_count and (type(value) is not int or value < 1):
            raise ModelError(f"model.kwargs.{key}: a whole number from 1 is expected, not {value!r}")
        if isinstance(known[key].default, float) and not (
            type(value) in (int, float) and math.isfinite(value) and value
        ):
            raise ModelError(f"model.kwargs.{key}: a number other than 0 is expected, not {value!r}")
    try:
        return entry.network_class(**kwargs)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ModelError(
            f"model.kwargs: {name} refuses {kwargs}: {str(error).splitlines()[0][:200]}"
        ) from error


def listed_networks() -> str:
    """Their names and arguments, one a line."""
    lines = ['"net_type": "restoration", "architecture":']
    for name, entry in NETWORKS.items():
        _, *arguments = inspect.signature(entry.network_class.__init__).parameters
        lines.append(f"{name:11} {', '.join(arguments)}")
    return "\n".join(lines)
