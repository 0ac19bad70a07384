"""What of a GPU's memory is whose: arithmetic on figures of the driver and of torch's allocator, in bytes."""

from __future__ import annotations


def reserved_by_others(total_bytes: int, free_bytes: int, own_bytes: int) -> int:
    """Bytes of a GPU that other processes hold, from `torch.cuda.mem_get_info` and what this process holds itself.

    own_bytes: of the process that asked, its CUDA context and what its allocator has reserved, both out of
    `free_bytes` already. What the allocator has handed out lies inside what it has reserved and appears nowhere.
    """
    return max(0, total_bytes - free_bytes - own_bytes)


def process_needs(
    reserved_bytes: int, process_bytes: int | None, context_bytes: int | None, assumed_context_bytes: int
) -> int:
    """What a process takes of the GPU: the driver's figure has everything in it, where there is one."""
    if context_bytes is None:
        context_bytes = assumed_context_bytes if process_bytes is None else 0
    return max(process_bytes or 0, context_bytes + reserved_bytes)
