"""Predictions made beforehand, in a process that sees no GPU: traces without data, replayed by the allocator."""

from __future__ import annotations

from typing import Any

from swinmr_profiling.profiler.gpu_check.subprocesses import serve

TABLE_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


def main() -> None:
    serve(predict)


def predict(request: dict[str, Any]) -> dict[str, Any]:
    """{"sizes": {batch: bytes of every kind}, "workspaces": where they come from, "aligned": bool}.

    request: config, mode ("training" or "inference"), sizes, torch_version, compute_capability, trust_config.
    """
    import torch

    from swinmr_profiling.configs import config_from_dict
    from swinmr_profiling.models.registry import build_model
    from swinmr_profiling.profiler.prediction import traced_step
    from swinmr_profiling.profiler.prediction.affine_trace import NotAlignedError, align

    config = config_from_dict(request["config"])
    torch.manual_seed(config.system.seed)
    built = build_model(config, trust_config=request["trust_config"])
    trace_of = getattr(traced_step, f"trace_{request['mode']}", None)
    if trace_of is None:
        raise NotImplementedError(f"no prediction of {request['mode']}")
    workspaces = workspaces_of(request["torch_version"], request["compute_capability"])
    traces = {size: trace_of(built, config, size) for size in (2, 3)}
    try:
        affine = align(traces[2], traces[3])
    except NotAlignedError:
        affine = None
    sizes = {}
    for size in request["sizes"]:
        try:
            if size == 1 or affine is None:
                trace = traces.get(size) or trace_of(built, config, size)
            else:
                trace = affine.at(size)
        except (NotAlignedError, OverflowError):
            continue
        sizes[str(size)] = replayed(trace, workspaces)
    return {"sizes": sizes, "workspaces": workspaces.source, "aligned": affine is not None}


def replayed(trace: Any, workspaces: Any) -> dict[str, Any]:
    """Bytes of a trace's peaks, with the default allocator and with expandable segments."""
    from swinmr_profiling.profiler.prediction.replay import replay

    plain = replay(trace, workspaces=workspaces)
    expandable = replay(trace, workspaces=workspaces, expandable=True)
    found = {
        "live_bytes": plain.training.live_bytes,
        "phase": plain.training.phase,
        "operator": plain.training.operator,
        "workspace_bytes": plain.workspace_bytes,
    }
    for name, result in (("default", plain), ("expandable", expandable)):
        validation = result.validation
        found[name] = {
            "allocated_bytes": result.training.allocated_bytes,
            "reserved_bytes": result.training.reserved_bytes,
            "validation_allocated_bytes": None if validation is None else validation.allocated_bytes,
            "validation_reserved_bytes": None if validation is None else validation.reserved_bytes,
        }
    return found


def workspaces_of(torch_version: str, compute_capability: str | None) -> Any:
    """The table's row; without a GPU, or where this checkout has no table, none, which `source` says."""
    from swinmr_profiling.profiler.allocator import workspaces

    if compute_capability is None:
        return workspaces.Workspaces(0, 0, 0, "none: no GPU")
    look_up = getattr(workspaces, "workspaces_for", None)
    if look_up is None:
        return workspaces.Workspaces(0, 0, 0, "none: no table of workspaces in this checkout")
    return look_up(torch_version, compute_capability)


def bytes_at(table: dict[str, Any], batch_size: int, allocator: str) -> int:
    """Reserved bytes of any batch: between two sizes of the table on the line through them, beyond it along the last.

    Raises ValueError for a table of fewer than two sizes.
    """
    sizes = sorted(map(int, table))
    if len(sizes) < 2:
        raise ValueError("a prediction of one batch size says nothing about others")
    above = next((place for place, size in enumerate(sizes) if size >= batch_size and place), len(sizes) - 1)
    low, high = sizes[above - 1], sizes[above]
    first, second = (needed_bytes(table[str(size)], allocator) for size in (low, high))
    return first + (second - first) * (batch_size - low) // (high - low)


def needed_bytes(row: dict[str, Any], allocator: str) -> int:
    """What training and validation reserve, the larger."""
    found = row[allocator]
    return max(found["reserved_bytes"], found["validation_reserved_bytes"] or 0)
