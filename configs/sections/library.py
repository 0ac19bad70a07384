"""The `model` sections of networks by name: restoration networks, spandrel's and transformers'."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, create_model

from swinmr_profiling.configs.errors import Problems
from swinmr_profiling.configs.field_types import (
    Count,
    Expected,
    FilePathOrNull,
    ImageSizeOrNull,
    InputShape,
    Kwargs,
    Section,
)

_Name = Annotated[str, Field(pattern=r"^[A-Za-z_]\w*$", max_length=200)]


class SpandrelModelConfig(Section):
    """A restoration network of the package spandrel: by its checkpoint, or by its name with random weights."""

    net_type: Annotated[Literal["spandrel"], Expected('"spandrel"')] = Field(
        description="A network of the spandrel package."
    )
    checkpoint: FilePathOrNull = Field(
        None, description="Weights (.pth, .pt, .ckpt, .safetensors), whose names and sizes tell the network."
    )
    checkpoint_sha256: Annotated[
        Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None,
        Expected("SHA-256 of a file, 64 hexadecimal digits, or null"),
    ] = Field(None, description="Checksum of `checkpoint`. Another file is refused. null: not checked.")
    architecture: Annotated[_Name | None, Expected("name that `--list-models spandrel` prints, or null")] = (
        Field(None, description="The network where there is no checkpoint, such as `ESRGAN`.")
    )
    kwargs: Kwargs = Field({}, description="Arguments of `architecture`. Left out: the class's own defaults.")
    img_size: ImageSizeOrNull = Field(
        None, description="Size of a whole input image in pixels. null: 256, or the nearest that it takes."
    )

    def problems(self) -> Problems:
        """No network, or two."""
        if (self.checkpoint is None) == (self.architecture is None):
            yield "architecture", "give this or checkpoint: one of them says which network it is"
        elif self.checkpoint is not None and self.kwargs:
            yield "kwargs", "a checkpoint tells its own network: leave this out"
        if self.checkpoint_sha256 is not None and self.checkpoint is None:
            yield "checkpoint_sha256", "is the checksum of a checkpoint, and there is none"


class RestorationModelConfig(Section):
    """A restoration network that option files name and no package carries, with random weights."""

    net_type: Annotated[Literal["restoration"], Expected('"restoration"')] = Field(
        description="A restoration network of this project by name."
    )
    architecture: Annotated[_Name, Expected("name that `--list-models restoration` prints")] = Field(
        description="The network, such as `EDSR`."
    )
    kwargs: Kwargs = Field({}, description="Its arguments. Left out: the published defaults.")
    img_size: ImageSizeOrNull = Field(None, description="Size of a whole input image in pixels. null: 256.")
    frames: Count = Field(7, description="Frames of a sample, for networks of videos.")


class _TransformersFields(Section):
    net_type: Annotated[Literal["transformers"], Expected('"transformers"')] = Field(
        description="A model class of the transformers package."
    )


# `class` is the field's name in the file, and a word that Python keeps for itself.
_CLASS: dict[str, Any] = {
    "class": (
        Annotated[_Name | None, Expected("name of a class of transformers, or null")],
        Field(
            None,
            description="Name of the class, such as `BertModel`. null: the one that `folder`'s config.json names.",
        ),
    )
}
_TransformersClass = create_model("_TransformersClass", __base__=_TransformersFields, **_CLASS)


class TransformersModelConfig(_TransformersClass):
    """A model class of the transformers package, with random weights: nothing is downloaded."""

    folder: FilePathOrNull = Field(
        None, description="Folder with the model's config.json. Its weights are not read."
    )
    config: Kwargs = Field(
        {}, description="Settings of the class's configuration, in place of its own and of the folder's."
    )
    inputs: Annotated[
        dict[_Name, InputShape],
        Expected('object of shapes without the batch, such as {"input_ids": [128]}'),
    ] = Field(
        {},
        description="Inputs of `forward` by name. Empty: what the class names as its main input, of its own size.",
    )
    int64_inputs: Annotated[list[str], Expected("list of names")] = Field(
        ["input_ids", "attention_mask", "token_type_ids", "decoder_input_ids", "position_ids", "labels"],
        description="Those of `inputs` that are whole numbers. Others: float.",
    )

    def problems(self) -> Problems:
        """No network."""
        if self.folder is None and getattr(self, "class") is None:
            yield "class", "give the name of a class, or a folder with a config.json"


LIBRARY_SECTIONS: dict[str, type[Section]] = {
    "restoration": RestorationModelConfig,
    "spandrel": SpandrelModelConfig,
    "transformers": TransformersModelConfig,
}
