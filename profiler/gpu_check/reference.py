"""SwinMR's forward pass beside the implementation it descends from, with the same weights, taken in turns."""

from __future__ import annotations

import statistics
from functools import partial
from typing import Any

from pydantic import BaseModel

from swinmr_profiling.profiler.gpu_check.record import Reference, Timed
from swinmr_profiling.profiler.gpu_check.subprocesses import SkippedError, serve

TURNS, WARMUP = 10, 3


class Network(BaseModel):
    """Side of the image in pixels; groups of six blocks."""

    side: int
    embed_dim: int
    groups: int
    batch_size: int


class ReferenceRequest(BaseModel):
    """What is compared, and where."""

    network: Network
    device: str


def main() -> None:
    serve(ReferenceRequest, compare)


def compare(request: ReferenceRequest) -> Reference:
    """Median milliseconds of both, in fp32 and bf16. Raises SkippedError without spandrel."""
    try:
        from spandrel.architectures.SwinIR.__arch.SwinIR import SwinIR as ReferenceSwinIR
    except ImportError as error:
        raise SkippedError(f"spandrel cannot be imported: {error}") from None
    import torch

    from swinmr_profiling.models.swin.swinir import SwinIR
    from swinmr_profiling.profiler.measure.machine.devices import open_device

    device = torch.device(request.device)
    network = request.network
    groups = network.groups
    options: Any = dict(
        img_size=network.side, in_chans=1, upscale=1, window_size=8, depths=[6] * groups, num_heads=[6] * groups,
        embed_dim=network.embed_dim, mlp_ratio=2, upsampler="", resi_connection="1conv", drop_path_rate=0.0,
    )  # fmt: skip
    torch.manual_seed(0)
    reference, ours = ReferenceSwinIR(**options).eval(), SwinIR(**options).eval()
    ours.load_state_dict(reference.state_dict())
    reference.to(device), ours.to(device)
    image = torch.rand(network.batch_size, 1, network.side, network.side).to(device)
    clock = open_device(device)
    found = {}
    with torch.inference_mode():
        for name, dtype in (("fp32", None), ("bf16", torch.bfloat16)):
            with torch.autocast(device.type, dtype, enabled=dtype is not None):
                difference = float((reference(image).float() - ours(image).float()).abs().max())
                times: dict[str, list[float]] = {"reference": [], "ours": []}
                for turn in range(WARMUP + TURNS):
                    for kind, forward in (("reference", reference), ("ours", ours)):
                        elapsed = clock.time_ms(partial(forward, image))
                        if turn >= WARMUP:
                            times[kind].append(elapsed)
            medians = {kind: statistics.median(samples) for kind, samples in times.items()}
            found[name] = Timed(
                reference_ms=medians["reference"],
                ours_ms=medians["ours"],
                speedup=medians["reference"] / medians["ours"],
                largest_difference=difference,
                num_runs=TURNS,
            )
    return Reference(status="measured", input_shape=list(image.shape), device=str(device), **found)
