"""The weight initialisers that KAIR and SwinMR option files name (`init_type`, `init_gain`)."""

from __future__ import annotations

from torch import nn


def initialise(module: nn.Module, init_type: str, gain: float) -> None:
    """Initialises every convolution and linear layer as KAIR does, weights scaled by `gain`, biases 0.

    "default" and "none" keep the network's own initialisation. Raises ValueError for an unknown type.
    """
    if init_type in ("default", "none"):
        return
    fill = {
        "normal": lambda w: nn.init.normal_(w, 0.0, 0.1).clamp_(-1, 1).mul_(gain),
        "uniform": lambda w: nn.init.uniform_(w, -0.2, 0.2).mul_(gain),
        "xavier_normal": lambda w: nn.init.xavier_normal_(w, gain=gain).clamp_(-1, 1),
        "xavier_uniform": lambda w: nn.init.xavier_uniform_(w, gain=gain),
        "kaiming_normal": lambda w: (
            nn.init.kaiming_normal_(w, mode="fan_in", nonlinearity="relu").clamp_(-1, 1).mul_(gain)
        ),
        "kaiming_uniform": lambda w: nn.init.kaiming_uniform_(w, mode="fan_in", nonlinearity="relu").mul_(
            gain
        ),
        "orthogonal": lambda w: nn.init.orthogonal_(w, gain=gain),
    }.get(init_type)
    if fill is None:
        raise ValueError(f"init_type {init_type!r} is not known")
    for layer in module.modules():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            fill(layer.weight.data)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
