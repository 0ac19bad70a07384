"""How far a predicted figure of memory may lie from a GPU's own: an interval for each network and quantity.

What a peak rests on decides. The shares come from 230 public measurements of 31 restoration networks (16-bit, RTX 4090;
results/reference/public_records/) and from published fp32 records of ResNet, ConvNeXt, VGG and transformers. Calibrated
on all families but one and tried on that one, 95 % of the 16-bit measurements lie inside (94 % where attention is in
the network, 98 % with a convolution's workspace at the peak, 94 % of other convolutional networks).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from swinmr_profiling.profiler.record.blocks.figures import Precision
from swinmr_profiling.profiler.record.blocks.memory_model import IntervalShares, MemorySetting, RestsOn

# Of profiles before there was an interval for each network.
INTERVAL_SHARES = {"live": (-0.01, 0.01), "reserved": (-0.05, 0.05)}
MIB = 2**20
Quantity = Literal["live", "allocated", "reserved", "process"]
QUANTITIES: tuple[Quantity, ...] = ("live", "allocated", "reserved", "process")
Layers = Literal["workspace", "attention", "convolution", "other"]
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
# Share of the 16-bit measurements that lie inside when their family is left out of the calibration.
COVERAGE = 0.95
# Segments beyond blocks, set by hand: the published reserved bytes lie within it, apart from runs near a card's limit.
RESERVED_SHARE = 0.05
# Set by hand: between the contexts that were measured, and with more kernels loaded than assumed.
CONTEXT_BYTES = (-128 * MIB, 192 * MIB)
MEASURED_CAPABILITY = "8.9"
UNMEASURED_FACTOR = 1.5


@dataclass(frozen=True)
class PeakBasis:
    """What a predicted peak rests on.

    layers: a convolution's workspace at the peak; a network with attention; one with convolutions;
    another. workspace_share: of the peak, what it is above the peak without any convolution's workspace.
    untested: rules at this peak that no GPU has confirmed, in words. cudnn_benchmark: whether the run sets it.
    """

    precision: Precision
    layers: Layers
    operator: str
    workspace_share: float
    untested: tuple[str, ...]
    cudnn_benchmark: bool

    def shares(
        self, quantity: str, compute_capability: str | None = MEASURED_CAPABILITY
    ) -> tuple[float, float]:
        """Down and up, of the predicted bytes; what is a number of bytes beside is in `interval`."""
        table = SHARES_FP32 if self.precision == "fp32" else SHARES_16_BIT
        low, high = table[self.layers]
        if quantity in ("reserved", "process"):
            low, high = low - RESERVED_SHARE, high + RESERVED_SHARE
        if compute_capability != MEASURED_CAPABILITY and self.layers == "workspace":
            low, high = low * UNMEASURED_FACTOR, high * UNMEASURED_FACTOR
        if not self.cudnn_benchmark:
            # Another algorithm may need no workspace at all.
            low = min(low, (1 + low) * (1 - self.workspace_share) - 1)
        return round(low, 6), round(high, 6)

    @property
    def coverage(self) -> float | None:
        """None for fp32, which has too few records to leave families out."""
        return None if self.precision == "fp32" else COVERAGE


@dataclass(frozen=True)
class PredictionInterval:
    """bytes: [low, high], rounded outwards. coverage: the share of records of other families inside theirs, which are
    of allocated bytes of inference; None where it is not known."""

    bytes: tuple[int, int]
    coverage: float | None


def interval(
    basis: PeakBasis,
    quantity: str,
    predicted_bytes: int,
    compute_capability: str | None = MEASURED_CAPABILITY,
) -> PredictionInterval:
    """Of one of QUANTITIES."""
    low_share, high_share = basis.shares(quantity, compute_capability)
    more = UNSPLIT_BYTES if basis.layers in ("workspace", "convolution") else 0
    if basis.precision == "fp32" and basis.layers == "convolution":
        more = FP32_CONVOLUTION_BYTES
    outside = CONTEXT_BYTES if quantity == "process" else (0, 0)
    low = math.floor(predicted_bytes * (1 + low_share)) + outside[0]
    high = math.ceil(predicted_bytes * (1 + high_share)) + more + outside[1]
    return PredictionInterval((max(low, 0), high), basis.coverage)


def interval_of(setting: MemorySetting, quantity: str, predicted_bytes: int) -> list[int]:
    """[low, high] of a setting of a `memory_model`; of one of earlier profiles, which keeps no basis, theirs."""
    if setting.rests_on is None:
        return interval_bytes("live" if quantity in ("live", "allocated") else "reserved", predicted_bytes)
    return list(interval(basis_of_block(setting.rests_on), quantity, predicted_bytes, None).bytes)


def shares_of(setting: MemorySetting) -> IntervalShares:
    """`memory_model.interval_shares`, of the config's own setting."""
    if setting.rests_on is None:
        return interval_shares()
    shares = setting.rests_on.shares
    return IntervalShares(live=shares["live"], reserved=shares["reserved"])


def basis_as_block(basis: PeakBasis) -> RestsOn:
    """`memory_model.settings[].rests_on`, with the interval's shares and coverage."""
    return RestsOn(
        precision=basis.precision,
        layers=basis.layers,
        operator=basis.operator,
        workspace_share=basis.workspace_share,
        cudnn_benchmark=basis.cudnn_benchmark,
        untested=list(basis.untested),
        shares={quantity: list(basis.shares(quantity, None)) for quantity in QUANTITIES},
        coverage=basis.coverage,
    )


def basis_of_block(kept: RestsOn) -> PeakBasis:
    return PeakBasis(
        kept.precision,
        kept.layers,
        kept.operator,
        kept.workspace_share,
        tuple(kept.untested),
        kept.cudnn_benchmark,
    )


def interval_bytes(quantity: str, predicted_bytes: int) -> list[int]:
    """[low, high] of a quantity of INTERVAL_SHARES, rounded outwards."""
    low, high = INTERVAL_SHARES[quantity]
    return [math.floor(predicted_bytes * (1 + low)), math.ceil(predicted_bytes * (1 + high))]


def interval_shares() -> IntervalShares:
    """`memory_model.interval_shares` of earlier profiles."""
    return IntervalShares(**{quantity: list(shares) for quantity, shares in INTERVAL_SHARES.items()})
