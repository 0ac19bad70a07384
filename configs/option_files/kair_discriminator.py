"""The discriminator of KAIR's option files as `training.adversarial`: the step of its ModelGAN (`"model": "gan"`)."""

from __future__ import annotations

from typing import Any

from swinmr_profiling.configs.option_files.code_beside import kair_call
from swinmr_profiling.configs.option_files.discriminators import (
    NotPredictedError,
    not_predicted,
    of_class,
    put,
    said,
)
from swinmr_profiling.configs.option_files.imported import ImportedOptions, number

# gan_type -> loss here, and whether judgements are compared with the other kind's mean.
_LOSSES = {
    "gan": ("vanilla", False),
    "ragan": ("vanilla", True),
    "lsgan": ("lsgan", False),
    "wgan": ("wgan", False),
    "softplusgan": ("wgan_softplus", False),
}


def map_discriminator(
    raw: dict[str, Any], options: dict[str, Any], file: str | None, result: ImportedOptions
) -> None:
    """Puts `netD` and what trains it, or says in a line why it is not in the prediction."""
    section, train = raw.get("netD"), dict(raw.get("train") or {})
    for key in list(options):
        if key.startswith(("netD.", "train.D_", "train.gan_type")) or key == "path.pretrained_netD":
            options.pop(key)
    if not isinstance(section, dict):
        return
    name, model = section.get("net_type"), raw.get("model")
    if model is not None and model != "gan":
        result.messages.append(
            f"netD {name} is not used by model {model}, which trains the generator alone: it is not in the prediction"
        )
        return
    try:
        values = _values(section, train, file)
    except NotPredictedError as reason:
        result.messages.append(not_predicted("netD", name, reason))
        return
    put(values, result)
    result.messages.append(said(f"netD {name}", "KAIR's ModelGAN", values))
    if (train.get("D_update_ratio") or 1) != 1 or train.get("D_init_iters"):
        result.messages.append(
            "train.D_update_ratio, D_init_iters: steps that update the discriminator alone take less"
        )
    # ModelGAN trains both with Adam, decays no weights and clips no gradients, whatever the file says.
    for key in ("G_optimizer_type", "G_optimizer_wd", "G_optimizer_clipgrad"):
        options.pop(f"train.{key}", None)
    result.put("training.optimizer.type", "adam", "train.G_optimizer_type")
    if str(train.get("G_optimizer_type", "adam")).lower() != "adam":
        result.messages.append("train.G_optimizer_type: KAIR's ModelGAN takes adam whatever it says")


def _values(section: dict[str, Any], train: dict[str, Any], file: str | None) -> dict[str, tuple[Any, str]]:
    kind = _LOSSES.get(str(train.get("gan_type")))
    if kind is None:
        raise NotPredictedError(f"its loss of gan_type {train.get('gan_type')} is not known here")
    weight = number(train.get("D_lossfn_weight"))
    if weight is None or weight <= 0:
        raise NotPredictedError(f"its loss has the weight {train.get('D_lossfn_weight')}")
    values: dict[str, tuple[Any, str]] = {
        "weight": (weight, "train.D_lossfn_weight"),
        "type": (kind[0], "train.gan_type"),
        "order": ("kair", "netD"),
        "relativistic": (kind[1], "train.gan_type"),
        "optimizer": ("adam", "train.D_optimizer_type"),
    }
    name = section.get("net_type")
    if name == "discriminator_unet":  # the network that BasicSR calls UNetDiscriminatorSN
        return values | {
            "discriminator": ("unet_sn", "netD.net_type"),
            "in_chans": (section.get("in_nc", 3), "netD.in_nc"),
            "width": (section.get("base_nc", 64), "netD.base_nc"),
        }
    found = kair_call(section, file)
    if found is None or found.kwargs is None:
        raise NotPredictedError("no such network is known here, nor called by code of KAIR around the file")
    return values | of_class(found, found.kwargs, [], "netD")
