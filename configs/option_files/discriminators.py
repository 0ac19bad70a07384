"""The discriminator of an option file as `training.adversarial`: of BasicSR, traiNNer-redux or neosr, or of KAIR.

KAIR's is the step of its ModelGAN (`"model": "gan"`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from swinmr_profiling.configs.option_files.imported import NOT_ARGUMENTS, GivenClass, ImportedOptions, number
from swinmr_profiling.configs.option_files.losses import STAND_IN, known_optimizer, stand_in_note
from swinmr_profiling.configs.option_files.networks import class_beside, kair_call

# BasicSR's classes that train it, and whether they compare each judgement with the mean of the other kind's.
_TRAINS_IT = {"SRGANModel": False, "ESRGANModel": True, "RealESRGANModel": False}
# What of a framework's names stands for what is known here, in lower case, and the size where a name carries it.
_NETWORKS = {
    "unetdiscriminatorsn": ("unet_sn", None),
    "unet": ("unet_sn", None),
    "vggstylediscriminator": ("vgg", None),
    "vggstylediscriminator128": ("vgg", 128),
    "vggstylediscriminator256": ("vgg", 256),
}
ORDERS = {"BasicSR": "basicsr", "traiNNer-redux": "trainner", "neosr": "neosr"}
_NEOSR_LOSSES = {"bce": "vanilla", "mse": "lsgan", "huber": "huber"}
_LOSSES = {name: name for name in ("vanilla", "lsgan", "wgan", "wgan_softplus", "hinge")}
# gan_type -> loss here, and whether judgements are compared with the other kind's mean.
_KAIR_LOSSES = {
    "gan": ("vanilla", False),
    "ragan": ("vanilla", True),
    "lsgan": ("lsgan", False),
    "wgan": ("wgan", False),
    "softplusgan": ("wgan_softplus", False),
}
PLACE = "training.adversarial"


class NotPredictedError(ValueError):
    """Why a discriminator is not in the prediction, in words that stand in brackets."""


def map_discriminator(raw: dict[str, Any], framework: str, file: str | None, result: ImportedOptions) -> None:
    """Puts `network_d`, the adversarial loss and `optim_d`, or says in a line why they are not in the prediction."""
    name = raw["network_d"].get("type")
    try:
        unused = _unused(raw, framework)
        if unused is not None:
            result.messages.append(f"network_d {name} {unused}: it is not in the prediction")
            return
        _map(raw, framework, file, result)
    except NotPredictedError as reason:
        result.messages.append(not_predicted("network_d", name, reason))


def not_predicted(place: str, name: Any, reason: object) -> str:
    """The line on a discriminator that is left out."""
    return (
        f"{place} {name} is read, and not in the prediction ({reason}): neither it, nor its optimizer, nor the "
        "adversarial loss; training takes more than is predicted"
    )


def _unused(raw: dict[str, Any], framework: str) -> str | None:
    """How a file names a discriminator that its framework never calls."""
    train = raw.get("train")
    if framework == "BasicSR" and raw.get("model_type") == "SRModel":
        return "is not used by model_type SRModel, which trains the generator alone"
    if framework == "traiNNer-redux" and isinstance(train, dict):
        _, gan = _adversarial_loss(train)
        if gan is None or number(gan.get("loss_weight", 0)) == 0:
            return "has no effect without an adversarial loss"
    return None


def _map(raw: dict[str, Any], framework: str, file: str | None, result: ImportedOptions) -> None:
    train, section = raw.get("train"), raw["network_d"]
    if not isinstance(train, dict):
        raise NotPredictedError("the file does not say how it is trained")
    model_type = raw.get("model_type")
    if framework == "BasicSR" and model_type not in _TRAINS_IT:
        raise NotPredictedError(f"the step of model_type {model_type} is not known here")
    if result.sections.get("training", {}).get("accumulate", 1) != 1:
        raise NotPredictedError("its step over several batches is not known here")
    origin, gan = _adversarial_loss(train)
    if gan is None:
        raise NotPredictedError("no adversarial loss is given")
    weight, kind = _loss(gan, framework)
    values: dict[str, tuple[Any, str]] = {
        "weight": (weight, f"{origin}.loss_weight"),
        "type": (kind, f"{origin}.gan_type"),
        "order": (ORDERS[framework], "network_d"),
        "relativistic": (framework == "BasicSR" and _TRAINS_IT[str(model_type)], "model_type"),
    }
    values |= _network(section, framework, file)
    optim_d = train.get("optim_d")
    given = optim_d.get("type") if isinstance(optim_d, dict) else None
    if given is None and framework != "BasicSR":
        raise NotPredictedError(f"{framework} needs train.optim_d for it")
    known = known_optimizer(given or "Adam")
    values["optimizer"] = (known or STAND_IN, "train.optim_d.type")
    put(values, result)
    if known is None:
        result.messages.append(stand_in_note("train.optim_d.type", given))
    whose = model_type if framework == "BasicSR" else framework
    result.messages.append(said(f"network_d {section['type']}", str(whose), values))
    _say_what_differs(train, origin, result)


def _adversarial_loss(train: dict[str, Any]) -> tuple[str, dict[str, Any] | None]:
    """Where it stands: `gan_opt`, or the first among traiNNer-redux' losses."""
    if isinstance(train.get("gan_opt"), dict):
        return "train.gan_opt", train["gan_opt"]
    listed = train.get("losses")
    for index, loss in enumerate(listed if isinstance(listed, list) else []):
        if isinstance(loss, dict) and "ganloss" in str(loss.get("type")).lower():
            return f"train.losses.{index}", loss
    return "train.gan_opt", None


def _loss(gan: dict[str, Any], framework: str) -> tuple[float, str]:
    """Weight and kind. Raises NotPredictedError."""
    name = str(gan.get("type"))
    if name.lower().replace("_", "") != "ganloss":
        raise NotPredictedError(f"its loss {name} is not known here")
    neosr = framework == "neosr"
    kinds, default = (_NEOSR_LOSSES, "bce") if neosr else (_LOSSES, "vanilla")
    given = gan.get("gan_type", default)
    if given not in kinds:
        raise NotPredictedError(f"its loss of gan_type {given} is not known here")
    weight = number(gan.get("loss_weight", 0.1 if neosr else 1.0))
    if weight is None or weight <= 0:
        raise NotPredictedError(f"its loss has the weight {gan.get('loss_weight')}")
    return weight, kinds[given]


def _network(section: dict[str, Any], framework: str, file: str | None) -> dict[str, tuple[Any, str]]:
    """Of a network that is known here, or of the class around the file. Raises NotPredictedError."""
    name = section.get("type")
    known = _NETWORKS.get(str(name).lower())
    # BasicSR's registry knows upper and lower case apart, and only neosr calls one "unet".
    if known is not None and (str(name).lower() == "unet") == (framework == "neosr"):
        values = {
            "discriminator": (known[0], "network_d.type"),
            "in_chans": (section.get("num_in_ch", 3), "network_d.num_in_ch"),
            "width": (section.get("num_feat", 64), "network_d.num_feat"),
        }
        if known[0] == "vgg":
            side = known[1] or section.get("input_size", 128)
            return values | {"input_size": (side, "network_d.input_size")}
        return values | {"skip_connection": (section.get("skip_connection", True), "network_d")}
    found = class_beside(framework, name, file)
    if found is None:
        raise NotPredictedError(
            f"no such network is known here, nor registered by code of {framework} around the file"
        )
    kwargs = {key: value for key, value in section.items() if key not in NOT_ARGUMENTS}
    command_line = ["-opt", str(Path(str(file)).absolute())] if framework == "neosr" else []
    return of_class(found, kwargs, command_line, "network_d")


def of_class(
    found: GivenClass, kwargs: dict[str, Any], command_line: list[str], origin: str
) -> dict[str, tuple[Any, str]]:
    """A discriminator that a framework's own code builds."""
    return {
        "discriminator": ("custom", f"{origin}.type"),
        "target": (found.target, origin),
        "target_folder": (found.target_folder, origin),
        "kwargs": ({k: None if k.endswith("_path") else v for k, v in kwargs.items()}, origin),
        "command_line": (command_line, origin),
    }


def put(values: dict[str, tuple[Any, str]], result: ImportedOptions) -> None:
    """Puts each value of the section with where it came from."""
    for key, (value, origin) in values.items():
        result.put(f"{PLACE}.{key}", value, origin)


def said(name: str, whose: str, values: dict[str, tuple[Any, str]]) -> str:
    """The line on a discriminator that is predicted. whose: the class, or framework, whose step it is."""
    text = (
        f"{name}: training is predicted as {whose}'s step, generator and discriminator each with its optimizer, one "
        "update each a step"
    )
    if "target" in values:
        text += (
            f"; {values['target'][0]} of the code around this file ({values['target_folder'][0]}) builds it, and "
            "--trust-config lets that code run"
        )
    return text


def _say_what_differs(train: dict[str, Any], origin: str, result: ImportedOptions) -> None:
    if train.get("net_d_iters", 1) not in (None, 1) or train.get("net_d_init_iters"):
        result.messages.append(
            "train.net_d_iters, net_d_init_iters: steps that update one network alone take less"
        )
    listed = train.get("losses")
    index = int(origin.rpartition(".")[2]) if origin.startswith("train.losses.") else None
    if index is not None and isinstance(listed, list):
        after = [
            loss.get("type")
            for loss in listed[index + 1 :]
            if isinstance(loss, dict) and number(loss.get("loss_weight", 1.0)) != 0
        ]
        if after:
            result.messages.append(
                f"{origin}: {', '.join(map(str, after))} stand behind the adversarial loss, which is taken as the last"
            )


def map_net_d(
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
        values = _kair_values(section, train, file)
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


def _kair_values(
    section: dict[str, Any], train: dict[str, Any], file: str | None
) -> dict[str, tuple[Any, str]]:
    kind = _KAIR_LOSSES.get(str(train.get("gan_type")))
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
