"""PyTorch's FlopCounterMode in our unit, and by the names that our count has for operators."""

from __future__ import annotations

from torch.utils.flop_counter import FlopCounterMode


def operator_name(operator: object) -> str:
    """`aten::mm` of the packet that prints as `aten.mm`."""
    return str(operator).replace(".", "::", 1)


def macs_by_operator(counter: FlopCounterMode) -> dict[str, int]:
    """Its FLOPs / 2 by operator; empty where nothing was counted."""
    counts = counter.get_flop_counts().get("Global", {})
    return {operator_name(operator): flops // 2 for operator, flops in counts.items()}


def differences(ours: dict[str, int], theirs: dict[str, int]) -> dict[str, int]:
    """Our MACs less theirs, of the operators where they differ."""
    return {
        operator: difference
        for operator in sorted(ours.keys() | theirs.keys())
        if (difference := ours.get(operator, 0) - theirs.get(operator, 0))
    }
