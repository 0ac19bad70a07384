"""Which modules of a network are FSDP2 units: gathered for their forward pass as one, and let go after it."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn


def sharding_units(network: nn.Module) -> list[nn.Module]:
    """The outermost repeated blocks, in the network's order; what is in none of them belongs to the network itself.

    Repeated: the entries of an nn.ModuleList (lists in lists are looked through), and of an nn.Sequential whose entries
    are several of one class. These have a forward pass of their own, which is where FSDP2 gathers. Modules without
    parameters, and those that occur twice, are none.
    """
    found: dict[int, nn.Module] = {}
    for unit in _entries(network) if _is_repetition(network) else _repeated(network):
        if any(True for _ in unit.parameters()):
            found.setdefault(id(unit), unit)
    return list(found.values())


def _repeated(module: nn.Module) -> Iterator[nn.Module]:
    for child in module.children():
        if isinstance(child, nn.ModuleList) or _is_repetition(child):
            yield from _entries(child)
        else:
            yield from _repeated(child)


def _is_repetition(module: nn.Module) -> bool:
    kinds = {type(child) for child in module.children()}
    return type(module) is nn.Sequential and len(module) > 1 and len(kinds) == 1


def _entries(container: nn.Module) -> Iterator[nn.Module]:
    for child in container.children():
        if isinstance(child, (nn.ModuleList, nn.ModuleDict)):
            yield from _entries(child)
        elif type(child).forward is nn.Module.forward:  # whose parts are called one by one
            yield from _repeated(child)
        else:
            yield child
