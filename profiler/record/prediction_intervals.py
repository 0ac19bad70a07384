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
            beyond = RESERVED_SHARES[self.layers]
            low, high = low - beyond, high + beyond
        if compute_capability != MEASURED_CAPABILITY and self.layers == "workspace":
            low, high = low * UNMEASURED_FACTOR, high * UNMEASURED_FACTOR
        if not self.cudnn_benchmark:
            # Another algorithm may need no workspace at all.
            low = min(low, (1 + low) * (1 - self.workspace_share) - 1)
        return round(low, 6), round(high, 6)

    @property
    def tried(self) -> tuple[float, str] | None:
        """The share of public records inside their interval, and of which; None: there are none."""
        return TRIED.get(("fp32" if self.precision == "fp32" else "16-bit", self.layers))

    @property
    def coverage(self) -> float | None:
        """Share of those inside."""
        return None if self.tried is None else round(self.tried[0], 3)

    @property
    def evidence(self) -> str:
        """What is known of how many lie inside, in words."""
        if self.tried is None:
            return "how many GPUs lie inside is not known"
        share, kind = self.tried
        inside = f"{share * 100:.0f} % of public records {kind} lie inside theirs"
        return f"{inside}, their family left out of the calibration"


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
    if basis.precision == "fp32" and basis.layers in ("convolution", "attention"):
        # Most networks with attention have a convolution, too: a patch embedding, a head.
        more = FP32_CONVOLUTION_BYTES
    outside = CONTEXT_BYTES if quantity == "process" else (0, 0)
    # Which ends of blocks are left over depends on the cache before: more or fewer than in an empty one. Never fewer
    # bytes than are alive.
    less = 0 if quantity == "live" else SPLIT_AFTER_ALL_BYTES * (basis.layers in ("workspace", "convolution"))
    low = math.floor(predicted_bytes * (1 + low_share)) - less + outside[0]
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
        evidence=basis.evidence,
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
