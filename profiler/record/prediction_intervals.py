"""How far a predicted figure of memory may lie from a GPU's own: an interval for each network and quantity.

What a peak rests on decides. The shares come from 230 public measurements of 31 restoration networks (16-bit, RTX 4090;
results/reference/public_records/) and from published fp32 records of ResNet, ConvNeXt, VGG and transformers. Calibrated
on all families but one and tried on that one, 95 % of the 16-bit measurements lie inside (94 % where attention is in
the network, 98 % with a convolution's workspace at the peak, 94 % of other convolutional networks).
"""

from __future__ import annotations

import math
from typing import Literal

from swinmr_profiling.profiler.record.blocks.memory_model import (
    IntervalShares,
    Layers,
    MemorySetting,
    PeakBasis,
    RestsOn,
)

# Of profiles before there was an interval for each network.
INTERVAL_SHARES = {"live": (-0.01, 0.01), "reserved": (-0.05, 0.05)}
MIB = 2**20
Quantity = Literal["live", "allocated", "reserved", "process"]
QUANTITIES: tuple[Quantity, ...] = ("live", "allocated", "reserved", "process")
# Shares of the prediction, down and up, of live and allocated bytes. Measurements lie above more often than below:
# blocks that the allocator does not split. Residuals of the shared records end at 0.6, 1.6 and 0.8 % (94 of 100).
SHARES_16_BIT = {
    "workspace": (-0.004, 0.006),
    "attention": (-0.004, 0.0158),
    "convolution": (-0.004, 0.008),
    "other": (-0.004, 0.0158),
}
# fp32: VGG-16-bn trains with 3.5 % more; ResNets of batch 4 take some 10 MiB more in each forward pass.
SHARES_FP32 = {**SHARES_16_BIT, "convolution": (-0.004, 0.035)}
FP32_CONVOLUTION_BYTES = round(10.9 * MIB)
# Beside the shares: the end of a block that is too small to be split off, which small networks show.
UNSPLIT_BYTES = 1 * MIB
# The prediction has such ends as an empty cache gives them, of several blocks at once; in another cache they may not be
# there. RealPLKSRs in channels-last took up to 4 MiB less than predicted, none less than live bytes (1.4 of the 4 MiB
# are in the shares). Chosen on them, not tried on others.
SPLIT_AFTER_ALL_BYTES = 3 * MIB
# Public records whose network family was left out of the calibration: the share that lies inside, and what they are.
# 16-bit: of 230, held against live bytes. fp32: three ResNets of five without the MiB that ResNets showed, all three
# ConvNeXts, not VGG-16-bn; seven steps of transformers (BERT, GPT-2, RoBERTa, ViT), met to the byte or within 0.7 %.
INFERENCE = "of 16-bit inference (230 in all, allocated bytes)"
TRIED: dict[tuple[str, Layers], tuple[float, str]] = {
    ("16-bit", "workspace"): (0.98, INFERENCE),
    ("16-bit", "attention"): (0.94, INFERENCE),
    ("16-bit", "convolution"): (0.94, INFERENCE),
    ("fp32", "attention"): (
        7 / 7,
        "of fp32 training steps of transformers (7, allocated and reserved bytes)",
    ),
    ("fp32", "convolution"): (6 / 9, "of fp32 steps of ResNet, ConvNeXt and VGG (9, allocated bytes)"),
}
# Segments beyond blocks. Transformers' published reserved bytes lie within 0.7 %. Of convolutional networks none is
# published without a limit near by; of the brackets of an RTX 3090, which such a limit decides, those that are
# predicted wrong miss by less. By hand where nothing is known.
RESERVED_SHARES: dict[Layers, float] = {
    "attention": 0.01,
    "workspace": 0.03,
    "convolution": 0.03,
    "other": 0.05,
}
# By hand, no public record tells: between the contexts that were measured, and with more kernels loaded than assumed.
CONTEXT_BYTES = (-128 * MIB, 192 * MIB)
MEASURED_CAPABILITY = "8.9"
UNMEASURED_FACTOR = 1.5


def peak_shares(
    basis: PeakBasis, quantity: str, compute_capability: str | None = MEASURED_CAPABILITY
) -> tuple[float, float]:
    """Down and up, of the predicted bytes; what is a number of bytes beside is in `interval`."""
    table = SHARES_FP32 if basis.precision == "fp32" else SHARES_16_BIT
    low, high = table[basis.layers]
    if quantity in ("reserved", "process"):
        beyond = RESERVED_SHARES[basis.layers]
        low, high = low - beyond, high + beyond
    if compute_capability != MEASURED_CAPABILITY and basis.layers == "workspace":
        low, high = low * UNMEASURED_FACTOR, high * UNMEASURED_FACTOR
    if not basis.cudnn_benchmark:
        # Another algorithm may need no workspace at all.
        low = min(low, (1 + low) * (1 - basis.workspace_share) - 1)
    return round(low, 6), round(high, 6)


def interval(
    basis: PeakBasis,
    quantity: str,
    predicted_bytes: int,
    compute_capability: str | None = MEASURED_CAPABILITY,
) -> tuple[int, int]:
    """[low, high] of one of QUANTITIES, bytes, rounded outwards."""
    low_share, high_share = peak_shares(basis, quantity, compute_capability)
    more = UNSPLIT_BYTES if basis.layers in ("workspace", "convolution") else 0
    if basis.precision == "fp32" and basis.layers in ("convolution", "attention"):
        # Most networks with attention have a convolution, too: a patch embedding, a head.
        more = FP32_CONVOLUTION_BYTES
    outside = CONTEXT_BYTES if quantity == "process" else (0, 0)
    # Which ends of blocks are left over depends on the cache before: more or fewer than in an empty one. Never fewer
    # bytes than are alive.
    less = 0 if quantity == "live" else SPLIT_AFTER_ALL_BYTES * (basis.layers in ("workspace", "convolution"))
    low = math.floor(predicted_bytes * (1 + low_share)) - less + outside[0]
    high = math.ceil(predicted_bytes * (1 + high_share)) + more + outside[1]
    return max(low, 0), high


def interval_of(setting: MemorySetting, quantity: str, predicted_bytes: int) -> list[int]:
    """[low, high] of a setting of a `memory_model`; of one of earlier profiles, which keeps no basis, theirs."""
    if setting.rests_on is None:
        return interval_bytes("live" if quantity in ("live", "allocated") else "reserved", predicted_bytes)
    return list(interval(setting.rests_on, quantity, predicted_bytes, None))


def shares_of(setting: MemorySetting) -> IntervalShares:
    """`memory_model.interval_shares`, of the config's own setting."""
    if setting.rests_on is None:
        return interval_shares()
    shares = setting.rests_on.shares
    return IntervalShares(live=shares["live"], reserved=shares["reserved"])


def rests_on(basis: PeakBasis) -> RestsOn:
    """`memory_model.settings[].rests_on`, with the interval's shares and how many public records lie inside theirs."""
    coverage: float | None = None
    evidence = "how many GPUs lie inside is not known"
    tried = TRIED.get(("fp32" if basis.precision == "fp32" else "16-bit", basis.layers))
    if tried is not None:
        share, kind = tried
        coverage, inside = round(share, 3), f"{share * 100:.0f} % of public records {kind} lie inside theirs"
        evidence = f"{inside}, their family left out of the calibration"
    return RestsOn(
        **dict(basis),
        shares={quantity: list(peak_shares(basis, quantity, None)) for quantity in QUANTITIES},
        coverage=coverage,
        evidence=evidence,
    )


def interval_bytes(quantity: str, predicted_bytes: int) -> list[int]:
    """[low, high] of a quantity of INTERVAL_SHARES, rounded outwards."""
    low, high = INTERVAL_SHARES[quantity]
    return [math.floor(predicted_bytes * (1 + low)), math.ceil(predicted_bytes * (1 + high))]


def interval_shares() -> IntervalShares:
    """`memory_model.interval_shares` of earlier profiles."""
    return IntervalShares(**{quantity: list(shares) for quantity, shares in INTERVAL_SHARES.items()})
