"""thop's figure for a model, leaf module by leaf module.

thop hooks modules of the types in its table and sees nothing of what happens in a forward between them: no matmul, no
attention, no raw parameter. Its figure is inexact in both directions and bounds nothing.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from torch import nn

CONVENTION = (
    "thop: multiply-adds (MACs) of the module types in its table, plus norms (2 to 4 per element), pooling and "
    "softmax; transposed convolutions by output size; 0 for what is done outside such modules"
)


class ThopUnit(NamedTuple):
    """One module that thop counts as a whole."""

    path: str
    module_class: str
    macs: float
    parameters: int


def count_with_thop(module: nn.Module, inputs: tuple[Any, ...]) -> tuple[float, int, list[ThopUnit]]:
    """thop's MACs and parameters of ``module(*inputs)``, and its units. Pass a copy: thop leaves traces behind.

    Raises:
        ImportError without thop (or, from Python 3.12, without setuptools, whose distutils it needs); whatever the
        forward raises.
    """
    import thop

    macs, parameters, layers = thop.profile(module, inputs, verbose=False, ret_layer_info=True)
    return macs, int(parameters), list(_units(module, layers, ""))


# By name: MACs, parameters and the layers inside.
ThopLayers = dict[str, tuple[float, float, "ThopLayers"]]


def _units(module: nn.Module, layers: ThopLayers, prefix: str) -> Iterator[ThopUnit]:
    from thop.profile import register_hooks

    for name, (macs, parameters, inner) in layers.items():
        child = module.get_submodule(name)
        path = f"{prefix}.{name}" if prefix else name
        # thop's own rule for what it takes as a whole.
        if type(child) in register_hooks and not isinstance(child, (nn.Sequential, nn.ModuleList)):
            yield ThopUnit(path, type(child).__name__, macs, int(parameters))
        else:
            yield from _units(child, inner, path)
