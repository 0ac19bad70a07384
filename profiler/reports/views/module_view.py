"""Parameters, MACs, and where it was measured latency and memory, by module, as a tree that a page can hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count

from swinmr_profiling.profiler.record.blocks.architecture import ModuleCost, ModuleCosts, ModuleCount

# A page of more rows than this is slow on a phone; deeper levels are left out, and that is said.
MAX_NODES = 4000
MAX_DEPTH = 40


@dataclass(frozen=True)
class ModuleNode:
    """A module and those inside it.

    order: its place in the network's own order. hidden: descendants that are left out. latency_ms: of all its calls in
    one pass, with what is inside. memory_bytes: above what there was when it began, None where no allocator counts.
    """

    order: int
    name: str
    class_name: str
    macs: int | None
    parameters: int | None
    children: tuple[ModuleNode, ...]
    hidden: int = 0
    latency_ms: float | None = None
    memory_bytes: int | None = None


def read_tree(block: ModuleCount | None, costs: ModuleCosts | None = None) -> ModuleNode | None:
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
    by_path = {} if costs is None else {one.path: one for one in costs.modules}
    return _node(block, max(depth, 1), count(), by_path)


def _nodes_by_level(block: ModuleCount) -> list[int]:
    levels, level = [], [block]
    while level:
        levels.append(len(level))
        level = [child for node in level for child in node.children]
    return levels


def _node(
    block: ModuleCount, depth: int, order: Iterator[int], costs: Mapping[str, ModuleCost]
) -> ModuleNode:
    children = block.children
    cost = costs.get(block.path)
    shown = depth > 1
    return ModuleNode(
        order=next(order),
        name=block.name or "(the network)",
        class_name=block.class_name,
        macs=block.macs,
        parameters=block.parameters,
        children=tuple(_node(child, depth - 1, order, costs) for child in children) if shown else (),
        hidden=0 if shown or not children else sum(_nodes_by_level(block)) - 1,
        latency_ms=None if cost is None else cost.latency_ms,
        memory_bytes=None if cost is None else cost.peak_bytes,
    )
