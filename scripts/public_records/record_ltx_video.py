"""The public record of selective checkpointing: diffusers' LTX-Video, on tensors without data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from diffusers import LTXVideoTransformer3DModel

from swinmr_profiling.models.recomputation.recomputed_modules import recompute_modules
from swinmr_profiling.profiler.prediction.cuda.cuda_emulation import cuda_on_meta
from swinmr_profiling.profiler.prediction.replay import replay
from swinmr_profiling.profiler.prediction.trace.storage_trace import StorageTrace, tensors_in_moving_order

# github.com/huggingface/diffusers/pull/10611 (2025-01-20): LTXVideoTransformer3DModel in bf16, one video of 81 frames
# of 512 x 768. GB by every how many-th block is checkpointed, 0: none.
PUBLISHED = {0: 26.664, 4: 22.188, 2: 17.658, 1: 9.316}
FRAMES, HEIGHT, WIDTH = 1 + (81 - 1) // 8, 512 // 32, 768 // 32
# Not said there. From 128 to 256 the differences below change by 0.2 % at most.
TEXT_TOKENS = 128
STEPS = 2


@dataclass(frozen=True)
class Checkpointed:
    """reserved_bytes: predicted most; kept: with gradients that are never let go."""

    every: int
    published: float
    kept_bytes: int
    let_go_bytes: int


def ltx_video() -> list[Checkpointed]:
    """Each way of the record, predicted with gradients that stay from pass to pass and with new ones each time."""
    return [
        Checkpointed(every, published, *(reserved_bytes(every, keeps=keeps) for keeps in (True, False)))
        for every, published in PUBLISHED.items()
    ]


def reserved_bytes(every: int, *, keeps: bool) -> int:
    """Most that PyTorch's allocator reserves in two forward and backward passes."""
    with torch.device("meta"):
        network: Any = LTXVideoTransformer3DModel()  # diffusers has no types
    for tensor in network.parameters():
        tensor.data = tensor.data.to(torch.bfloat16)
    network.train()
    blocks = range(len(network.transformer_blocks))
    if every:
        recompute_modules(network, [f"transformer_blocks.{n}" for n in blocks if n % every == 0])
    with cuda_on_meta(), StorageTrace() as trace:
        trace.category = "parameters"
        for tensor in tensors_in_moving_order(network):
            trace.enter(tensor, "module.to(device)")
        trace.category = "inputs"
        tokens, text = FRAMES * HEIGHT * WIDTH, TEXT_TOKENS
        latents = torch.empty(1, tokens, 128, dtype=torch.bfloat16, device="meta")
        prompt = torch.empty(1, text, 4096, dtype=torch.bfloat16, device="meta")
        mask = torch.ones(1, text, dtype=torch.bool, device="meta")
        timestep = torch.empty(1, dtype=torch.bfloat16, device="meta")
        trace.category = None
        for _ in range(STEPS):
            trace.start_step()
            trace.phase = "forward"
            output = network(
                latents,
                encoder_hidden_states=prompt,
                timestep=timestep,
                encoder_attention_mask=mask,
                num_frames=FRAMES,
                height=HEIGHT,
                width=WIDTH,
                rope_interpolation_scale=(8 / 25, 32, 32),
                return_dict=False,
            )[0]
            loss = output.mean()
            trace.phase = "backward"
            loss.backward()
            del output, loss
            if not keeps:
                network.zero_grad(set_to_none=True)
        found = trace.finish(1, [])
    return replay(found).peak_reserved_bytes


def ltx_table(rows: list[Checkpointed]) -> str:
    """Markdown: GiB, and what each way saves beside none."""
    plain = rows[0]
    lines = [
        "| checkpointed | published | predicted, GiB | saved, published | saved, predicted | off by | saved with new "
        "gradients each pass |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    words = {0: "none", 1: "all", 2: "every second", 4: "every fourth"}
    for row in rows:
        cells = [words[row.every], f"{row.published:.3f}", f"{row.kept_bytes / 2**30:.3f}"]
        if row.every:
            theirs = plain.published - row.published
            ours = (plain.kept_bytes - row.kept_bytes) / 2**30
            fresh = (plain.let_go_bytes - row.let_go_bytes) / 2**30
            cells += [f"{theirs:.3f}", f"{ours:.3f}", f"{ours / theirs - 1:+.1%}", f"{fresh:.3f}"]
        else:
            cells += [""] * 4
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)
