"""The `model` section: one class per network type, picked by `net_type`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from swinmr_profiling.configs.declared_inputs import InputsError, read_inputs
from swinmr_profiling.configs.errors import Problems
from swinmr_profiling.configs.field_types import (
    TARGET_PATTERN,
    BlockCounts,
    Expected,
    FilePath,
    Flag,
    ImageNetworkSection,
    ImageSize,
    ImageSizeOrNull,
    InputShape,
    Kwargs,
    Positive,
    Rate,
    Section,
    Size,
    SizeOrNull,
)
from swinmr_profiling.configs.network_limits import swinir_problems
from swinmr_profiling.configs.sections.denoiser import (
    DiffusersModelConfig,
    DiTDenoiserModelConfig,
    UNetDenoiserModelConfig,
)
from swinmr_profiling.configs.sections.library import (
    LIBRARY_SECTIONS,
    RestorationModelConfig,
    SpandrelModelConfig,
    TransformersModelConfig,
)

# Checked by `read_inputs`, whose words name the input.
InputsText = (
    'object of inputs by name, or list of them, such as [{"shape": ["B", 1, 256, 256], "dtype": "complex64"}]'
)
Inputs = Annotated[dict[str, Any] | list[Any] | None, Expected(f"{InputsText}, or null")]
Shapes = Annotated[list[InputShape], Field(min_length=1)]
ShapesText = "list of shapes without the batch, such as [[1, 256, 256]]"

# What KAIR's initialiser knows, and the two names under which it leaves the network's own initialisation.
InitType = Literal[
    "default",
    "none",
    "normal",
    "uniform",
    "xavier_normal",
    "xavier_uniform",
    "kaiming_normal",
    "kaiming_uniform",
    "orthogonal",
]


def inputs_problems(section: Section, *keys: str) -> Problems:
    """What is not a declaration of inputs in these keys."""
    for key in keys:
        value = getattr(section, key)
        if value is not None:
            try:
                if not value:
                    raise InputsError("", "expected at least one input")
                read_inputs(value)
            except InputsError as error:
                yield f"{key}.{error.path}" if error.path else key, error.text


def _no_upsampler_is_none(value: Any) -> Any:
    return None if value in ("", "none") else value


class SwinIRModelConfig(ImageNetworkSection):
    """SwinIR (Liang et al. 2021) and SwinMR (Huang et al. 2022, the same network with `upscale` 1)."""

    net_type: Annotated[
        Literal["swinir", "swinmr"], AfterValidator(lambda _: "swinir"), Expected('"swinir" or "swinmr"')
    ] = Field(description="The network. `swinmr` is another name of `swinir`.")
    upscale: Annotated[int, Field(ge=1, le=64), Expected("whole number, 1 to 64")] = Field(
        1, description="Output size over input size, per side. 1 for reconstruction and denoising."
    )
    in_chans: Size = Field(1, description="Channels of the input: 1 for magnitude, 2 for real and imaginary.")
    out_chans: SizeOrNull = Field(None, description="Channels of the output. null: as many as `in_chans`.")
    img_size: ImageSize = Field(
        256, description="Size of a whole image in pixels: what is profiled and validated."
    )
    window_size: Size = Field(8, description="Side of an attention window in pixels.")
    img_range: Positive = Field(1.0, description="The input is multiplied by this, the output divided by it.")
    depths: BlockCounts = Field([6] * 6, description="Transformer blocks in each block group (RSTB).")
    embed_dim: Size = Field(180, description="Feature channels. Divisible by every entry of `num_heads`.")
    num_heads: BlockCounts = Field(
        [6] * 6, description="Attention heads in each block group, as many entries as `depths`."
    )
    mlp_ratio: Positive = Field(2.0, description="Hidden channels of the MLP over `embed_dim`.")
    qkv_bias: Flag = Field(True, description="Whether query, key and value have a bias.")
    drop_rate: Rate = Field(0.0, description="Dropout in the MLP, the projection and after the embedding.")
    attn_drop_rate: Rate = Field(0.0, description="Dropout of the attention weights.")
    drop_path_rate: Rate = Field(
        0.1, description="Stochastic depth of the last block, rising linearly from 0."
    )
    ape: Flag = Field(False, description="Absolute position embedding. Ties the network to `img_size`.")
    patch_norm: Flag = Field(True, description="LayerNorm after the embedding.")
    upsampler: Annotated[
        Literal["pixelshuffle", "pixelshuffledirect", "nearest+conv"] | None,
        BeforeValidator(_no_upsampler_is_none),
        Expected('"pixelshuffle", "pixelshuffledirect", "nearest+conv", or "", "none" or null for none'),
    ] = Field(None, description="How the image is enlarged. None: `upscale` 1, and the output is a residual.")
    resi_connection: Annotated[Literal["1conv", "3conv"], Expected('"1conv" or "3conv"')] = Field(
        "1conv", description="Convolutions at the end of each block group."
    )
    init_type: Annotated[InitType, Expected(", ".join(f'"{n}"' for n in InitType.__args__))] = Field(
        "default",
        description="KAIR's weight initialiser. `default` and `none`: SwinIR's own (truncated normal).",
    )
    init_bn_type: Annotated[Literal["uniform", "constant"], Expected('"uniform" or "constant"')] = Field(
        "uniform", description="KAIR's initialiser of batch norms. SwinIR has none, so it changes nothing."
    )
    init_gain: Positive = Field(0.2, description="Gain of KAIR's initialiser.")

    def problems(self) -> Problems:
        """What the network would refuse."""
        return swinir_problems(self)


class TimmModelConfig(Section):
    """Any timm model by name, with random weights: nothing is downloaded."""

    net_type: Annotated[Literal["timm"], Expected('"timm"')] = Field(
        description="A model of the timm package."
    )
    name: Annotated[str, Field(min_length=1, max_length=200), Expected("name of a timm model")] = Field(
        description="Name as `timm.create_model` takes it, such as `resnet50`."
    )
    img_size: ImageSizeOrNull = Field(None, description="Input size in pixels. null: the model's own.")
    in_chans: Size = Field(3, description="Channels of the input.")
    num_classes: Annotated[
        Annotated[int, Field(ge=0, le=10**6)] | None, Expected("whole number, 0 to 10^6, or null")
    ] = Field(None, description="Classes of the head, 0 for none. null: the model's own.")
    kwargs: Kwargs = Field({}, description="Further arguments of `timm.create_model`.")
    inputs: Inputs = Field(
        None, description="What `forward` takes, of any kind. null: one image of `img_size`."
    )

    def problems(self) -> Problems:
        """Weights to download, and what declares no input."""
        for key in ("pretrained", "pretrained_cfg_overlay", "checkpoint_path"):
            if self.kwargs.get(key):
                text = f"{key} would load weights, and nothing is downloaded here: leave it out"
                yield f"kwargs.{key}", text
        yield from inputs_problems(self, "inputs")


class CustomModelConfig(Section):
    """The user's own class, imported only by commands that were given `--trust-config`."""

    net_type: Annotated[Literal["custom"], Expected('"custom"')] = Field(
        description="The user's own network."
    )
    target: Annotated[
        Annotated[
            str,
            Field(
                pattern=TARGET_PATTERN,
                max_length=4096,
            ),
        ],
        Expected('"package.module:Class" or "path/to/file.py:Class"'),
    ] = Field(description="Where the class is: module, or file from `target_folder`; colon, class.")
    target_folder: FilePath = Field(
        ".",
        description="Where its module is looked for, before the working directory. `.`: the config's folder.",
    )
    kwargs: Kwargs = Field({}, description="Arguments the class is called with.")
    command_line: Annotated[list[str], Expected("list of texts")] = Field(
        [],
        description="What its code finds in `sys.argv` while it is imported and called, after the program's name.",
    )
    input_shapes: Annotated[Shapes | None, Expected(f"{ShapesText}, or null")] = Field(
        None,
        description="Shape of each input of `forward`, without the batch: `[[channels, height, width]]`. The short "
        "form of `inputs`; one of the two is needed.",
    )
    inputs: Inputs = Field(
        None,
        description="What `forward` takes, of any kind: dtypes, keywords, lists, objects. null: `input_shapes`.",
    )
    training_inputs: Inputs = Field(None, description="The same for a training patch. null: `inputs`.")
    cross_check_inputs: Inputs = Field(
        None, description="The same, small, for the comparison of operation counters. null: `inputs`."
    )
    training_input_shapes: Annotated[Shapes | None, Expected(f"{ShapesText}, or null")] = Field(
        None, description="The same for a training patch. null: `input_shapes`."
    )
    cross_check_input_shapes: Annotated[Shapes | None, Expected(f"{ShapesText}, or null")] = Field(
        None, description="The same, small, for the comparison of operation counters. null: `input_shapes`."
    )
    input_dtypes: Annotated[
        list[Literal["float", "int64", "bool"]] | None,
        Expected('list of "float", "int64" or "bool", one per input, or null'),
    ] = Field(None, description="Type of each input. null: all `float`, in the precision of the run.")

    def problems(self) -> Problems:
        """Inputs that are described twice, in part, or not at all."""
        yield from inputs_problems(self, "inputs", "training_inputs", "cross_check_inputs")
        if self.input_shapes is None and self.inputs is None:
            yield "input_shapes", "input_shapes or inputs is needed"
        elif self.input_shapes is not None and self.inputs is not None:
            yield "input_shapes", "input_shapes beside inputs: give one"
        short = ("training_input_shapes", "cross_check_input_shapes", "input_dtypes")
        for key in short if self.input_shapes is None else ("training_inputs", "cross_check_inputs"):
            if getattr(self, key) is not None:
                yield key, f"belongs to {'input_shapes' if key in short else 'inputs'}, which is not there"
        for key in short:
            value = getattr(self, key)
            if value is not None and self.input_shapes is not None and len(value) != len(self.input_shapes):
                counts = f"{len(value)} entries, but input_shapes has {len(self.input_shapes)}"
                yield key, f"{counts}: one per input in each"


ModelConfig = (
    SwinIRModelConfig
    | UNetDenoiserModelConfig
    | DiTDenoiserModelConfig
    | DiffusersModelConfig
    | TransformersModelConfig
    | SpandrelModelConfig
    | RestorationModelConfig
    | TimmModelConfig
    | CustomModelConfig
)
# net_type -> section class; `swinmr` is an alias.
MODEL_SECTIONS: dict[str, type[Section]] = {
    "swinir": SwinIRModelConfig,
    "swinmr": SwinIRModelConfig,
    "unet_denoiser": UNetDenoiserModelConfig,
    "dit_denoiser": DiTDenoiserModelConfig,
    "diffusers": DiffusersModelConfig,
    **LIBRARY_SECTIONS,
    "timm": TimmModelConfig,
    "custom": CustomModelConfig,
}
