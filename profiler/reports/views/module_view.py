"""Parameters and MACs by module, as a tree that a page can hold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

from swinmr_profiling.profiler.record.blocks.architecture import ModuleCount

# A page of more rows than this is slow on a phone; deeper levels are left out, and that is said.
MAX_NODES = 4000
MAX_DEPTH = 40


@dataclass(frozen=True)
class ModuleNode:
    """A module and those inside it.

    order: its place in the network's own order. hidden: descendants that are left out.
    """

    order: int
    name: str
    class_name: str
    macs: int | None
    parameters: int | None
    children: tuple[ModuleNode, ...]
    hidden: int = 0


def read_tree(block: ModuleCount | None) -> ModuleNode | None:
    """The tree of `architecture.by_module`, cut at the level where it would be too long."""
    if block is None:
        return None
    levels = _nodes_by_level(block)
    depth, total = 0, 0
    for nodes in levels[:MAX_DEPTH]:
        if total + nodes > MAX_NODES:
            break
        total += nodes
        depth += 1
    return _node(block, max(depth, 1), count())


def _nodes_by_level(block: ModuleCount) -> list[int]:
    levels, level = [], [block]
    while level:
        levels.append(len(level))
        level = [child for node in level for child in node.children]
    return levels


def _node(block: ModuleCount, depth: int, order: Iterator[int]) -> ModuleNode:
    children = block.children
    shown = depth > 1
    return ModuleNode(
        order=next(order),
        name=block.name or "(the network)",
        class_name=block.class_name,
        macs=block.macs,
        parameters=block.parameters,
        children=tuple(_node(child, depth - 1, order) for child in children) if shown else (),
        hidden=0 if shown or not children else sum(_nodes_by_level(block)) - 1,
    )
