"""The restoration networks of the package spandrel: by their weights, or by name with random weights.

spandrel finds a network in the names and sizes of its weights. It reads no file here: weights come as tensors from
`checkpoint_files`, which runs nothing that is in a file.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.configs.error_words import one_line
from swinmr_profiling.configs.field_types import image_hw as hw_of
from swinmr_profiling.configs.sections.model import SpandrelModelConfig
from swinmr_profiling.models.checkpoints.checkpoint_files import read_checkpoint, sha256_of
from swinmr_profiling.models.checkpoints.published_weights import readings, state_dict_in
from swinmr_profiling.models.errors import ModelError, refuse_unknown
from swinmr_profiling.models.inputs import BuiltModel, InputSpec, cross_check_hw
from swinmr_profiling.models.libraries.model_classes import MAX_TEXT, package

DEFAULT_SIDE = 256
NEAREST = 3
MISMATCHES = 5
# As torch says it.
SIZE_MISMATCH = re.compile(
    r"size mismatch for (.+): copying a param with shape (.+) from checkpoint, the shape in current model is (.+)"
)
_package = partial(package, "spandrel", "restoration")


class SpandrelNetwork(nn.Module):
    """Calls a network of spandrel as spandrel does: some take a noise level or a mask beside the image."""

    def __init__(self, model: nn.Module, call: Callable[..., Tensor]) -> None:
        super().__init__()
        self.model, self.call = model, call

    def forward(self, *inputs: Tensor) -> Tensor:
        """The image (B, C, H, W), and for inpainting a mask (B, 1, H, W) of what is missing."""
        return self.call(self.model, *inputs)


@dataclass(frozen=True)
class Description:
    """A network of spandrel and what it takes.

    scale: output side over input side. masked: whether a mask is its second input.
    """

    name: str
    module: nn.Module
    call: Callable[..., Tensor]
    in_chans: int
    scale: int
    masked: bool
    requirements: Any

    def legal(self, hw: tuple[int, int]) -> tuple[int, int]:
        """The next larger size that the network takes."""
        wider, higher = self.requirements.get_padding(hw[1], hw[0])
        return hw[0] + higher, hw[1] + wider

    @property
    def default_size(self) -> int | list[int]:
        """`DEFAULT_SIDE`, or the next side that the network takes."""
        height, width = self.legal((DEFAULT_SIDE, DEFAULT_SIDE))
        return height if height == width else [height, width]

    @property
    def sizes_in_words(self) -> str:
        """What sizes the network takes."""
        words = []
        if self.requirements.multiple_of > 1:
            words.append(f"multiples of {self.requirements.multiple_of}")
        if self.requirements.minimum > 1:
            words.append(f"at least {self.requirements.minimum}")
        if self.requirements.square:
            words.append("squares")
        return ", ".join(words) or "any size"


def build_spandrel(config: ExperimentConfig) -> BuiltModel:
    """The network of `model.checkpoint` with its weights, or `model.architecture` with random ones.

    Raises ModelError without the package, for weights of no known network, an unknown name, arguments that the class
    refuses, and sizes that the network does not take.
    """
    options = config.model_section(SpandrelModelConfig)
    if options.checkpoint is not None:
        file = Path(options.checkpoint)
        _check_sha256(file, options.checkpoint_sha256)
        found = described(state_dict_in(read_checkpoint(file), file), file)
    else:
        assert options.architecture is not None  # a section has this or a checkpoint
        found = made(options.architecture, options.kwargs)
    size = options.img_size
    image_hw = found.legal((DEFAULT_SIDE, DEFAULT_SIDE)) if size is None else hw_of(size)
    patch_hw = config.training_patch_hw or image_hw
    for key, hw in (("model.img_size", image_hw), ("data.patch_size", patch_hw)):
        legal = found.legal(hw)
        if legal != hw:
            raise ModelError(
                f"{key}: {found.name} does not take {hw[0]} x {hw[1]}, but {found.sizes_in_words}: the next such size "
                f"is {legal[0]} x {legal[1]}"
            )
    small_hw = found.legal(cross_check_hw(image_hw))

    def specs(hw: tuple[int, int]) -> tuple[InputSpec, ...]:
        mask = (InputSpec((1, *hw)),) if found.masked else ()
        return (InputSpec((found.in_chans, *hw)), *mask)

    return BuiltModel(
        "spandrel",
        SpandrelNetwork(found.module, found.call),
        {"inference": specs(image_hw), "training": specs(patch_hw), "cross_check": specs(small_hw)},
    )


def listed_architectures() -> str:
    """The names that `model.architecture` takes, one a line, under the version of spandrel. Raises ModelError."""
    lines = [f'spandrel {_package().__version__}, as "net_type": "spandrel", "architecture":']
    for name, (_, network_class) in sorted(_classes().items(), key=lambda item: item[0].lower()):
        arguments = [
            key
            for key, value in inspect.signature(network_class.__init__).parameters.items()
            if key != "self"
        ]
        lines.append(f"{name:18} {', '.join(arguments[:8])}{', ...' if len(arguments) > 8 else ''}")
    return "\n".join(lines)


def architecture_names() -> list[str]:
    """The names that `model.architecture` takes. Raises ModelError without the package."""
    return sorted(_classes(), key=str.lower)


def architecture_of(name: str) -> str:
    """spandrel's architecture of a name: several networks may be of one. Raises ModelError without the package."""
    return str(_classes()[name][0].id)


def described(state_dict: dict[str, Tensor], file: Path) -> Description:
    """The network that these weights belong to, with the weights in it.

    Raises ModelError: no architecture has such weights (the nearest three and what they miss), or one has their names
    and other sizes.
    """
    package = _package()
    for reading in readings(state_dict):
        for support in package.MAIN_REGISTRY.architectures("detection"):
            if not support.detect(reading):
                continue
            name = support.architecture.id
            try:
                return _description(support.architecture.load(dict(reading)))
            except Exception as error:  # spandrel reads sizes out of weights that may be of any other network
                raise ModelError(f"{file}: has the names of {name}, but {_mismatch(error)}") from error
    raise ModelError(f"{file}: {_nearest(state_dict)}")


def made(name: str, kwargs: dict[str, Any]) -> Description:
    """A network by name, with random weights. Raises ModelError."""
    classes = _classes()
    if name not in classes:
        near = {known.lower(): known for known in classes}
        nearest = difflib.get_close_matches(name.lower(), list(near), n=NEAREST, cutoff=0.5)
        hint = f": did you mean {' or '.join(near[one] for one in nearest)}?" if nearest else ""
        version, way_out = _package().__version__, hint or ": see --list-models spandrel"
        raise ModelError(f"model.architecture: spandrel {version} has no {name!r}{way_out}")
    architecture, network_class = classes[name]
    arguments = {**REQUIRED.get(name, {}), **kwargs}
    refuse_unknown(kwargs, network_class.__init__, f"model.kwargs.{{name}}: {name} takes no such argument")
    try:
        module = network_class(**arguments)
        # What it takes is read from its weights, as spandrel reads it: one source for both ways.
        found = _description(architecture.load(module.state_dict()))
    except Exception as error:  # constructors raise whatever their options run into
        raise ModelError(f"model.kwargs: {name} refuses {arguments}: {one_line(error, MAX_TEXT)}") from error
    return replace(found, module=module)


# Arguments without a default of the class's own: those of the networks that are published.
REQUIRED: dict[str, dict[str, Any]] = {
    "SPAN": {"num_in_ch": 3, "num_out_ch": 3},
    "SAFMN": {"dim": 36},
    "SAFMNBCIE": {"dim": 48},
    "MMRealSR": {"num_in_ch": 3, "num_out_ch": 3},
    "AuraSR": {
        "dim": 64, "image_size": 256, "input_image_size": 64,
        "style_network": {"dim_in": 128, "dim_out": 512, "depth": 4},
    },
    "LaMa": {"in_nc": 4},  # an image of three channels and its mask
}  # fmt: skip


NOISE_MAP_OF_ONE = ("DRUNet", "DnCNN")


def _by_patches(
    whole: Callable[[nn.Module, Tensor], Tensor],
) -> Callable[[nn.Module, Tensor], Tensor]:
    """IPT's calls: in training patches of its one size, as its authors train it; else each image, in patches."""

    def call(model: nn.Module, image: Tensor) -> Tensor:
        if not model.training:
            return torch.cat([whole(model, one) for one in image.split(1)])
        side, hw = int(model.patch_size), tuple(image.shape[-2:])  # type: ignore[arg-type]
        if hw != (side, side):
            raise ModelError(
                f"data.patch_size: IPT is trained on patches of {side} x {side}, not {hw[0]} x {hw[1]}"
            )
        return cast(Tensor, model(image))

    return call


def _plain_call(model: nn.Module, image: Tensor) -> Tensor:
    # Looked up when it runs: traces replace a module's call.
    return model(image)


def _description(descriptor: Any) -> Description:
    from spandrel import MaskedImageModelDescriptor

    name, call, in_chans = descriptor.architecture.id, descriptor._call_fn, descriptor.input_channels
    if name == "IPT":
        # spandrel cuts one image into patches, whatever the mode.
        call = _by_patches(call)
    if name in NOISE_MAP_OF_ONE:
        # spandrel joins a noise map of one image to the batch; training gives a map for each, as channels.
        call, in_chans = _plain_call, descriptor.model.hyperparameters["in_nc"]
    return Description(
        name,
        descriptor.model,
        call,
        in_chans,
        descriptor.scale,
        isinstance(descriptor, MaskedImageModelDescriptor),
        descriptor.size_requirements,
    )


def _classes() -> dict[str, tuple[Any, type[nn.Module]]]:
    """Name -> architecture of spandrel and class. An architecture with one class goes by its own name."""
    found: dict[str, tuple[Any, type[nn.Module]]] = {}
    for support in _package().MAIN_REGISTRY:
        architecture = support.architecture
        module = importlib.import_module(type(architecture).__module__)
        found |= {
            name: (architecture, member)
            for name, member in vars(module).items()
            if isinstance(member, type)
            and issubclass(member, nn.Module)
            and member.__module__.startswith(module.__name__)
            and name in getattr(module, "__all__", ())
        }
    return found


def _check_sha256(file: Path, expected: str | None) -> None:
    if expected is not None and (actual := sha256_of(file)) != expected:
        raise ModelError(
            f"model.checkpoint_sha256: {file} has changed: it has the checksum {actual[:12]}..., the config says "
            f"{expected[:12]}...; profile the new file by --checkpoint"
        )


def _mismatch(error: Exception) -> str:
    """The first keys of another size, in words."""
    sizes = [
        f"{key} is {_shape(given)}, not {_shape(wanted)}"
        for key, given, wanted in SIZE_MISMATCH.findall(str(error))
    ]
    if sizes:
        more = f", and {len(sizes) - MISMATCHES} more" if len(sizes) > MISMATCHES else ""
        return f"other sizes: {'; '.join(sizes[:MISMATCHES])}{more}"
    if isinstance(error, KeyError):
        return f"misses {error.args[0]}"
    keys = [line.strip() for line in str(error).splitlines() if "key(s) in state_dict" in line]
    return f"not its weights: {keys[0][:MAX_TEXT]}" if keys else f"not its sizes: {one_line(error, MAX_TEXT)}"


def _shape(text: str) -> str:
    numbers = text.strip(" .").removeprefix("torch.Size").strip("()[]").split(",")
    return " x ".join(number.strip() for number in numbers) or "a number"


def _nearest(state_dict: dict[str, Tensor]) -> str:
    """Which three architectures have most of what these weights have, and the first key that each misses."""
    ranked = []
    for support in _package().MAIN_REGISTRY:
        condition = getattr(support.architecture, "_detect", None)
        have, misses = _required(condition, state_dict)
        if have or misses:
            ranked.append((have / (have + len(misses)), support.architecture.id, misses))
    ranked.sort(key=lambda entry: -entry[0])
    parts = [f"{name} (misses {misses[0]})" for _, name, misses in ranked[:NEAREST] if misses]
    first = ", ".join(list(state_dict)[:2])
    return (
        f"these weights ({len(state_dict)} tensors: {first}, ...) are of no network that is known here; nearest: "
        f"{', '.join(parts)}. A network of your own: --module FILE.py:Class"
    )


def _required(condition: Any, state_dict: dict[str, Tensor]) -> tuple[int, list[str]]:
    """How many of the keys that a condition asks for are there, and those that are not."""
    have, misses = 0, []
    for key in getattr(condition, "_keys", ()):
        if isinstance(key, str):
            if key in state_dict:
                have += 1
            else:
                misses.append(key)
        elif key(state_dict):
            have += 1
        else:
            inner = _required(key, state_dict)[1]
            misses.append(inner[0] if inner else "one of several keys")
    if getattr(condition, "_kind", "all") == "any" and have:
        misses = []
    return have, misses
