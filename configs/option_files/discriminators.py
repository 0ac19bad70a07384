"""The discriminator of an option file of BasicSR as `training.adversarial`."""

from __future__ import annotations

from typing import Any

from swinmr_profiling.configs.option_files.imported import ImportedOptions, number

# The classes that train it, and whether they compare each judgement with the mean of the other kind's.
_TRAINS_IT = {"SRGANModel": False, "ESRGANModel": True, "RealESRGANModel": False}
# Where a network for one size carries that size in its name, as in older files.
_NETWORKS = {
    "UNetDiscriminatorSN": ("unet_sn", None),
    "VGGStyleDiscriminator": ("vgg", None),
    "VGGStyleDiscriminator128": ("vgg", 128),
    "VGGStyleDiscriminator256": ("vgg", 256),
}
_LOSSES = ("vanilla", "lsgan", "wgan", "wgan_softplus", "hinge")
_OPTIMIZERS = {"adam": "adam", "adamw": "adamw", "sgd": "sgd"}
_PLACE = "training.adversarial"


def map_discriminator(raw: dict[str, Any], result: ImportedOptions) -> bool:
    """Puts `network_d`, `gan_opt` and `optim_d`; False, with nothing put, where one of them has no counterpart.

    A model class that never calls the discriminator is told, and counts as mapped.
    """
    model_type, train = raw.get("model_type"), raw.get("train")
    section = raw["network_d"]
    if model_type == "SRModel":
        result.messages.append(
            f"network_d {section.get('type')} is not used by model_type SRModel, which trains the generator alone: it "
            "is not in the prediction"
        )
        return True
    gan = train.get("gan_opt") if isinstance(train, dict) else None
    network = _NETWORKS.get(str(section.get("type")))
    if model_type not in _TRAINS_IT or network is None or not isinstance(gan, dict):
        return False
    assert isinstance(train, dict)
    weight = number(gan.get("loss_weight", 1.0))
    if gan.get("type") != "GANLoss" or gan.get("gan_type", "vanilla") not in _LOSSES or weight is None:
        return False
    optim_d = train.get("optim_d")
    given = optim_d.get("type") if isinstance(optim_d, dict) else None
    kind = _OPTIMIZERS.get(str(given or "Adam").lower())
    if kind is None or not weight:
        return False
    values = {
        "weight": (float(weight), "train.gan_opt.loss_weight"),
        "type": (gan.get("gan_type", "vanilla"), "train.gan_opt.gan_type"),
        "relativistic": (_TRAINS_IT[model_type], "model_type"),
        "discriminator": (network[0], "network_d.type"),
        "in_chans": (section.get("num_in_ch", 3), "network_d.num_in_ch"),
        "width": (section.get("num_feat", 64), "network_d.num_feat"),
        "optimizer": (kind, "train.optim_d.type"),
    }
    if network[0] == "vgg":
        values["input_size"] = (network[1] or section.get("input_size", 128), "network_d.input_size")
    else:
        values["skip_connection"] = (section.get("skip_connection", True), "network_d.skip_connection")
    for key, (value, origin) in values.items():
        result.put(f"{_PLACE}.{key}", value, origin)
    result.messages.append(
        f"network_d {section['type']}: training is predicted as {model_type}'s step, generator and discriminator each "
        "with its optimizer, one update each a step"
    )
    if train.get("net_d_iters", 1) not in (None, 1) or train.get("net_d_init_iters"):
        result.messages.append(
            "train.net_d_iters, net_d_init_iters: steps that update one network alone take less"
        )
    return True
