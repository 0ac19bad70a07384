"""How much memory a training run may take on one GPU. Whole bytes throughout: integers, rounded to the safe side."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from swinmr_profiling.profiler.allocator.workspaces import workspaces_for
from swinmr_profiling.profiler.record.blocks.recommended import BudgetBlock

# What is left free: fragmentation that grows over hours, a library's workspace at another shape, the interval of a
# prediction. Printed beside every recommendation.
DEFAULT_HEADROOM = Fraction(1, 10)
# bf16 arithmetic starts with Ampere; before it, torch emulates bf16 slower than fp32.
BF16_FROM_CAPABILITY = (8, 0)


@dataclass(frozen=True)
class Budget:
    """One GPU's memory, each byte of it counted once.

    Attributes:
        name: of the card, or the size as the user gave it.
        total_bytes: as CUDA reports it.
        reserved_elsewhere_bytes: taken by others: a desktop, other processes.
        headroom_share: of what is left, the part that stays free.
        context_bytes: this process's CUDA context, outside torch's allocator.
        workspace_bytes: of cuBLAS and cublasLt, inside the allocator, which a prediction does not hold.
        bf16_hardware: None where it is not known.
        is_this_machine: whether a batch can be tried on this very GPU; then only what ran is recommended.
    """

    name: str
    total_bytes: int
    reserved_elsewhere_bytes: int = 0
    headroom_share: Fraction = DEFAULT_HEADROOM
    context_bytes: int = 0
    workspace_bytes: int = 0
    bf16_hardware: bool | None = None
    is_this_machine: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.headroom_share < 1:
            raise ValueError(f"headroom {self.headroom_share}: a share of at least 0 and below 1")
        if min(self.total_bytes, self.reserved_elsewhere_bytes, self.context_bytes, self.workspace_bytes) < 0:
            raise ValueError(f"{self.name}: memory is never negative")

    @property
    def available_bytes(self) -> int:
        """What others leave, 0 where they leave nothing."""
        return max(0, self.total_bytes - self.reserved_elsewhere_bytes)

    @property
    def usable_bytes(self) -> int:
        """(total - reserved elsewhere) x (1 - headroom), rounded down."""
        return less_headroom(self.available_bytes, self.headroom_share)

    def as_block(self) -> BudgetBlock:
        return BudgetBlock(
            name=self.name,
            total_bytes=self.total_bytes,
            reserved_elsewhere_bytes=self.reserved_elsewhere_bytes,
            headroom_share=float(self.headroom_share),
            usable_bytes=self.usable_bytes,
            context_bytes=self.context_bytes,
            workspace_bytes=self.workspace_bytes,
        )


def budget_on(
    name: str,
    total_bytes: int,
    compute_capability: str | None,
    *,
    torch_version: str,
    reserved_elsewhere_bytes: int = 0,
    headroom_share: Fraction = DEFAULT_HEADROOM,
) -> Budget:
    """What a card leaves for training: its memory, less what others hold, headroom, workspaces and context."""
    workspaces = workspaces_for(torch_version, compute_capability)
    return Budget(
        name=name,
        total_bytes=total_bytes,
        reserved_elsewhere_bytes=reserved_elsewhere_bytes,
        headroom_share=headroom_share,
        context_bytes=workspaces.context_bytes,
        workspace_bytes=workspaces.process_bytes,
        bf16_hardware=has_bf16(compute_capability),
    )


def less_headroom(available_bytes: int, headroom_share: Fraction) -> int:
    """What may be used of what is there, rounded down."""
    share = Fraction(headroom_share)
    return available_bytes * (share.denominator - share.numerator) // share.denominator


def has_bf16(compute_capability: str | None) -> bool | None:
    """Whether a GPU computes in bf16 itself; None where its capability is not known. AMD's cards here all do."""
    if compute_capability is None:
        return None
    if compute_capability.startswith("gfx"):
        return True
    try:
        major, minor = compute_capability.split(".")
        return (int(major), int(minor)) >= BF16_FROM_CAPABILITY
    except ValueError:
        return None
