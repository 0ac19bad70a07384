"""The network of an option file as a class that the user gives, where the framework's own is not known here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

DEFAULT_SIDE = 256
# Keys of `network_g` and `netG` that name other things than an argument of the class.
NOT_ARGUMENTS = ("type", "net_type", "init_type", "init_bn_type", "init_gain", "which_model_G")
CHANNELS = (
    "num_in_ch",
    "in_chans",
    "in_nc",
    "in_ch",
    "in_channels",
    "n_colors",
    "img_channel",
    "inp_channels",
)


@dataclass(frozen=True)
class GivenClass:
    """A class in place of the network that an option file names.

    target, target_folder: as in a `custom` model. kwargs: its arguments; None: those of the option file.
    input_shapes: without the batch; None: an image of the option file's channels, and its patch in training.
    """

    target: str
    target_folder: str
    kwargs: dict[str, Any] | None = None
    input_shapes: list[list[int]] | None = None

    def section(self, network: dict[str, Any], scale: int | None) -> dict[str, Any]:
        """The `model` section. scale: an argument that the framework adds; None where it does not."""
        kwargs = self.kwargs
        if kwargs is None:
            kwargs = {key: value for key, value in network.items() if key not in NOT_ARGUMENTS}
            if scale is not None:
                kwargs.setdefault("scale", scale)
        shapes = self.input_shapes
        if shapes is None:
            shapes = [[_channels(kwargs), DEFAULT_SIDE, DEFAULT_SIDE]]
        return {
            "net_type": "custom",
            "target": self.target,
            "target_folder": self.target_folder,
            "kwargs": kwargs,
            "input_shapes": shapes,
        }

    def note(self, place: str, name: Any) -> str:
        """What was done, in a line."""
        arguments = "the arguments of --kwargs" if self.kwargs is not None else f"the arguments of {place}"
        return f"{place} {name}: the class {self.target} stands for it, with {arguments}"


def with_patch(section: dict[str, Any], patch: Any) -> None:
    """Adds the training patch to a section whose one input is an image."""
    shapes = section["input_shapes"]
    if len(shapes) == 1 and len(shapes[0]) == 3 and type(patch) is int:
        section["training_input_shapes"] = [[shapes[0][0], patch, patch]]


def _channels(kwargs: dict[str, Any]) -> int:
    return next((kwargs[key] for key in CHANNELS if type(kwargs.get(key)) is int and kwargs[key] > 0), 3)
