"""Any timm network by name, with random weights: nothing is downloaded."""

from __future__ import annotations

import difflib

from configs import ExperimentConfig
from models.errors import ModelError
from models.inputs import BuiltModel, InputSpec


def build_timm(config: ExperimentConfig) -> BuiltModel:
    """The timm network `model.name`; its input is its own default size unless `model.img_size` is set.

    Raises ModelError for an unknown name (with the nearest ones) and for options timm refuses.
    """
    # Imported here: timm takes as long as torch itself to import, and SwinMR does not need it.
    import timm

    options = config.model
    if not timm.is_model(options.name):
        nearest = difflib.get_close_matches(options.name, timm.list_models(), n=3, cutoff=0.4)
        hint = f": did you mean {' or '.join(nearest)}?" if nearest else ""
        raise ModelError(f"model.name: timm {timm.__version__} has no model {options.name!r}{hint}")
    kwargs = dict(options.kwargs)
    kwargs.setdefault("in_chans", options.in_chans)
    if options.num_classes is not None:
        kwargs.setdefault("num_classes", options.num_classes)
    if kwargs.pop("pretrained", False):
        raise ModelError("model.kwargs.pretrained: weights do not change a profile and are not downloaded")
    module = _create(timm, options.name, kwargs, options.img_size)
    channels, height, width = timm.data.resolve_model_data_config(module)["input_size"]
    channels = kwargs["in_chans"]
    if options.img_size is not None:
        height = width = options.img_size
    spec = (InputSpec((channels, height, width)),)
    return BuiltModel("timm", module, {"inference": spec, "training": spec, "cross_check": spec})


def _create(timm, name: str, kwargs: dict, img_size: int | None):
    """Creates with img_size where the network is built for one size (ViT, Swin), without where it is not."""
    try:
        if img_size is None:
            return timm.create_model(name, pretrained=False, **kwargs)
        try:
            return timm.create_model(name, pretrained=False, img_size=img_size, **kwargs)
        except TypeError as error:
            if "img_size" not in str(error):
                raise
            return timm.create_model(name, pretrained=False, **kwargs)
    except (TypeError, ValueError, AssertionError, RuntimeError, KeyError) as error:
        raise ModelError(f"model: timm refuses {name!r} with {kwargs}: {error}") from error
