"""SwinMR's forward pass beside the implementation it descends from, with the same weights, taken in turns."""

from __future__ import annotations

import statistics
from typing import Any

from swinmr_profiling.profiler.gpu_check.subprocesses import serve

TURNS, WARMUP = 10, 3


def main() -> None:
    serve(compare)


def compare(request: dict[str, Any]) -> dict[str, Any]:
    """Median milliseconds of both, in fp32 and bf16; {"skipped": why} without spandrel.

    request: device, side, embed_dim, groups (of six blocks), batch_size.
    """
    try:
        from spandrel.architectures.SwinIR.__arch.SwinIR import SwinIR as ReferenceSwinIR
    except ImportError as error:
        return {"skipped": f"spandrel cannot be imported: {error}"}
    import torch

    from swinmr_profiling.models.swin.swinir import SwinIR
    from swinmr_profiling.profiler.measure.devices import open_device

    device = torch.device(request["device"])
    groups = request["groups"]
    options = dict(
        img_size=request["side"], in_chans=1, upscale=1, window_size=8, depths=[6] * groups, num_heads=[6] * groups,
        embed_dim=request["embed_dim"], mlp_ratio=2, upsampler="", resi_connection="1conv", drop_path_rate=0.0,
    )  # fmt: skip
    torch.manual_seed(0)
    reference, ours = ReferenceSwinIR(**options).eval(), SwinIR(**options).eval()
    ours.load_state_dict(reference.state_dict())
    reference.to(device), ours.to(device)
    image = torch.rand(request["batch_size"], 1, request["side"], request["side"]).to(device)
    clock = open_device(device)
    found: dict[str, Any] = {"input_shape": list(image.shape), "device": str(device)}
    with torch.inference_mode():
        for name, dtype in (("fp32", None), ("bf16", torch.bfloat16)):
            with torch.autocast(device.type, dtype, enabled=dtype is not None):
                difference = float((reference(image).float() - ours(image).float()).abs().max())
                times: dict[str, list[float]] = {"reference": [], "ours": []}
                for turn in range(WARMUP + TURNS):
                    for kind, network in (("reference", reference), ("ours", ours)):
                        elapsed = clock.time_ms(lambda network=network: network(image))
                        if turn >= WARMUP:
                            times[kind].append(elapsed)
            medians = {kind: statistics.median(samples) for kind, samples in times.items()}
            found[name] = {
                "reference_ms": medians["reference"],
                "ours_ms": medians["ours"],
                "speedup": medians["reference"] / medians["ours"],
                "largest_difference": difference,
                "num_runs": TURNS,
            }
    return found
