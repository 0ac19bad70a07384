"""Any timm network by name, with random weights: nothing is downloaded."""

from __future__ import annotations

from typing import Any

from torch import nn

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.configs.error_words import did_you_mean, one_line
from swinmr_profiling.configs.field_types import image_hw as hw_of
from swinmr_profiling.configs.sections.model import TimmModelConfig
from swinmr_profiling.models.errors import ModelError
from swinmr_profiling.models.inputs import BuiltModel, CallsWithInputs, InputSpec, declared_call


def build_timm(config: ExperimentConfig) -> BuiltModel:
    """The timm network `model.name`; its input is its own default size unless `model.img_size` or
    `model.inputs` is set.

    Raises ModelError for an unknown name (with the nearest ones) and for options timm refuses.
    """
    # Imported here: timm takes as long as torch itself to import, and SwinMR does not need it.
    import timm

    options = config.model_section(TimmModelConfig)
    if not timm.is_model(options.name):
        hint = did_you_mean(options.name, timm.list_models(), "", most=3, likeness=0.4)
        raise ModelError(
            f"model.name: timm {timm.__version__} has no model {options.name!r}{hint and f': {hint}'}"
        )
    kwargs: dict[str, Any] = {"in_chans": options.in_chans, **options.kwargs}
    if options.num_classes is not None:
        kwargs["num_classes"] = options.num_classes
    image_hw = None if options.img_size is None else hw_of(options.img_size)
    module = _create(options.name, kwargs, image_hw)
    if options.inputs is not None:
        specs, arguments = declared_call(options.inputs)
        called = module if arguments is None else CallsWithInputs(module, arguments)
        return BuiltModel("timm", called, dict.fromkeys(("inference", "training", "cross_check"), specs))
    if image_hw is None:
        image_hw = timm.data.resolve_model_data_config(module)["input_size"][1:]
    spec = (InputSpec((kwargs["in_chans"], *image_hw)),)
    return BuiltModel("timm", module, {"inference": spec, "training": spec, "cross_check": spec})


def _create(name: str, kwargs: dict[str, Any], image_hw: Any) -> nn.Module:
    """Passes img_size to networks built for one size (ViT, Swin), and not to those that take any (ResNet)."""
    import timm

    try:
        if image_hw is not None:
            try:
                return timm.create_model(name, pretrained=False, img_size=image_hw, **kwargs)
            except TypeError as error:
                if "img_size" not in str(error):
                    raise
        return timm.create_model(name, pretrained=False, **kwargs)
    except Exception as error:  # timm and its constructors raise whatever their options run into
        raise ModelError(f"model: timm cannot make {name!r} with {kwargs}: {one_line(error)}") from error
