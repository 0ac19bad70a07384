"""What an importer hands over, and the network of an option file as a class that the user gives."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

DEFAULT_SIDE = 256
# Frames of a sample of Vimeo-90K.
SEPTUPLET = 7
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


@dataclass
class ImportedOptions:
    """An option file in this project's sections.

    Attributes:
        sections: the raw config, not yet checked against the schema.
        origins: path of a key here -> path of the key in the option file, for errors.
        messages: what was recognised, computed, and left out.
    """

    sections: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=lambda: {"model": "netG"})
    messages: list[str] = field(default_factory=list)

    def put(self, path: str, value: Any, origin: str | None = None) -> None:
        """Set the value at a dotted path, remembering the key it came from."""
        *parents, key = path.split(".")
        section = self.sections
        for parent in parents:
            section = section.setdefault(parent, {})
        section[key] = value
        if origin is not None:
            self.origins[path] = origin

    def put_given(self, path: str, value: Any, origin: str) -> None:
        """As `put`; None is a key that is not given."""
        if value is not None:
            self.put(path, value, origin)


def folder_name(text: str) -> str:
    """`text` as an `experiment_name`: other characters become `_`."""
    return re.sub(r"[^A-Za-z0-9._+-]", "_", text).lstrip(".+-")[:100] or "experiment"


def is_number(value: Any) -> bool:
    """Whether a value is a number, and no truth value."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def flat(raw: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted path -> value."""
    result: dict[str, Any] = {}
    for key, value in raw.items():
        inner = flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
        result.update(inner)
    return result


def number(value: Any) -> float | None:
    """A number, also where YAML took "1e-4" for a text; None for anything else."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return None
    return float(value) if is_number(value) else None


@dataclass(frozen=True)
class GivenClass:
    """A class in place of the network that an option file names.

    target, target_folder: as in a `custom` model. kwargs: its arguments; None: those of the option file.
    input_shapes: without the batch; None: an image of the option file's channels (a clip of its frames), and its patch
    in training. frames: of a clip that it takes where the option file does not say; None: not known. found: in the
    framework's own code beside the file, rather than given by the user.
    """

    target: str
    target_folder: str
    kwargs: dict[str, Any] | None = None
    input_shapes: list[list[int]] | None = None
    frames: int | None = None
    found: bool = False

    def section(
        self, network: dict[str, Any], scale: int | None, frames: int | None = None
    ) -> dict[str, Any]:
        """The `model` section.

        scale: an argument that the framework adds; None where it does not. frames: of a sample; None: it is an image.
        """
        kwargs = self.kwargs
        if kwargs is None:
            kwargs = {key: value for key, value in network.items() if key not in NOT_ARGUMENTS}
            if scale is not None:
                kwargs.setdefault("scale", scale)
        shapes = self.input_shapes
        if shapes is None:
            clip = [] if frames is None else [frames]
            shapes = [[*clip, _channels(kwargs), DEFAULT_SIDE, DEFAULT_SIDE]]
        if self.found:
            # Weights of a part, which some classes fetch: they change no cost.
            kwargs = {key: None if key.endswith("_path") else value for key, value in kwargs.items()}
        return {
            "net_type": "custom",
            "target": self.target,
            "target_folder": self.target_folder,
            "kwargs": kwargs,
            "input_shapes": shapes,
        }

    def note(self, place: str, name: Any) -> str:
        """What was done, in a line."""
        if self.found:
            return (
                f"{place} {name}: {self.target} of the code around this file ({self.target_folder}) builds it, with "
                "the arguments of the file, on an image or clip of its channels; --trust-config lets that code run"
            )
        arguments = "the arguments of --kwargs" if self.kwargs is not None else f"the arguments of {place}"
        return f"{place} {name}: the class {self.target} stands for it, with {arguments}"


def with_patch(section: dict[str, Any], patch: Any) -> None:
    """Adds the training patch to a section whose one input is an image or a clip."""
    shapes = section["input_shapes"]
    if len(shapes) == 1 and len(shapes[0]) in (3, 4) and type(patch) is int:
        section["training_input_shapes"] = [[*shapes[0][:-2], patch, patch]]


def _channels(kwargs: dict[str, Any]) -> int:
    channels = next((kwargs[key] for key in CHANNELS if type(kwargs.get(key)) is int and kwargs[key] > 0), 3)
    # VRT and RVRT take the level of the noise as a map.
    return channels + 1 if kwargs.get("nonblind_denoising") is True else channels
