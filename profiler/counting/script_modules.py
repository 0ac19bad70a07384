"""Scripts (torch.jit) of which a count by the dispatcher sees only a part."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn


def check_script(module: nn.Module, path: str) -> None:
    """Refuses a script whose operators do not pass the dispatcher.

    Raises:
        ValueError: ``torch.jit.optimize_for_inference`` has been over it.
    """
    if not isinstance(module, torch.jit.ScriptModule):
        return
    hidden = sorted({node.kind() for node in _nodes(module) if _hides_a_kernel(node.kind())})
    if hidden:
        name = f"module {path}" if path else "the network"
        original = getattr(module, "original_name", type(module).__name__)
        raise ValueError(
            f"{name} ({original}) is a script after torch.jit.optimize_for_inference: its {', '.join(hidden)} do not "
            "pass PyTorch's dispatcher and cannot be counted; count the module that the script was made of"
        )


def _hides_a_kernel(kind: str) -> bool:
    """A node that the interpreter runs without asking the dispatcher: what that function makes, or a fused group."""
    return kind.startswith("prim::") and ("mkldnn" in kind.lower() or kind.endswith("Group"))


def frozen_numbers(module: nn.Module) -> int:
    """Numbers that stand as constants in the code of scripts without parameters, as freezing leaves a script's."""
    constants = (
        node.t("value")
        for script in _outermost_scripts(module)
        if not any(True for _ in script.parameters())
        for node in _nodes(script)
        if node.kind() == "prim::Constant" and node.hasAttribute("value") and node.kindOf("value") == "t"
    )
    return sum(t.numel() for t in constants if t.dim() > 0 and (t.is_floating_point() or t.is_complex()))


def _outermost_scripts(module: nn.Module) -> Iterator[torch.jit.ScriptModule]:
    # modules() passes each module once, parents first, also where one is registered inside itself.
    inside: set[nn.Module] = set()
    for child in module.modules():
        if isinstance(child, torch.jit.ScriptModule) and child not in inside:
            inside.update(child.modules())
            yield child


def _nodes(script: torch.jit.ScriptModule) -> Iterator[torch._C.Node]:
    """Every node of a script's forward, and of what it calls; of none for a script without a forward."""
    if script._c._has_method("forward"):
        yield from _nodes_of_block(script.inlined_graph)


def _nodes_of_block(block: Any) -> Iterator[torch._C.Node]:
    for node in block.nodes():
        yield node
        for inner in node.blocks():
            yield from _nodes_of_block(inner)
