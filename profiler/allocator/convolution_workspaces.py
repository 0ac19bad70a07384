"""What cuDNN takes from the allocator while one convolution runs: arithmetic of shapes, layout and precision.

Found in public measurements of 31 networks on an RTX 4090 (torch of early 2025, cudnn.benchmark on; see
results/reference/public_records/): a 16-bit convolution in NCHW runs on tensor cores, whose kernels read and write
NHWC, so that copies of x, w and y are alive beside the originals. Exact to the byte wherever such a convolution sits at
the peak (ESRGAN, Compact, ArtCNN, SwinIR-L, PLKSR, RealPLKSR, RealCUGAN).

Not copied: what is in NHWC already; 1 x 1 kernels, which are matrix products in either layout (SPAN, RealPLKSR x4,
DCTLSA, LMLT); depthwise kernels; narrow convolutions of large images, where copying would take longer than the
convolution (ESRGAN-lite x4). Not known: other GPUs and versions, cudnn.benchmark off, grouped convolutions, and what
fp32 takes (about 10 MiB for ResNets of batch 4), which is not part of this.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

HALF_BYTES = 2
# More than the three copies, in each of the records: parts are aligned.
ALIGNMENT_BYTES = 512
# No more channels than these on either side, and images that no cache holds (72 MiB, an RTX 4090's).
NARROW_CHANNELS = 32
CACHE_BYTES = 72 * 2**20
KINDS = ("forward", "backward_data", "backward_weight")


@dataclass(frozen=True)
class ConvolutionCall:
    """One call of cuDNN.

    kind: one of KINDS. x, w, y: shapes (batch, channels, ...), (out, in / groups, ...), (batch, out, ...); of a
    transposed convolution w is (in, out / groups, ...). element_bytes: of one number. channels_last: NHWC or NDHWC.
    """

    kind: str
    x: tuple[int, ...]
    w: tuple[int, ...]
    y: tuple[int, ...]
    groups: int
    element_bytes: int
    channels_last: bool

    @property
    def is_depthwise(self) -> bool:
        return self.groups > 1 and self.groups == self.x[1]

    @property
    def is_pointwise(self) -> bool:
        return prod(self.w[2:]) == 1

    @property
    def is_narrow(self) -> bool:
        """Few channels, large images."""
        images = self.element_bytes * (prod(self.x) + prod(self.y))
        return max(self.x[1], self.y[1]) <= NARROW_CHANNELS and images > CACHE_BYTES


def workspace_bytes(call: ConvolutionCall) -> int:
    """Bytes that are alive while the call runs; backward passes as the forward one, which is assumed."""
    if call.channels_last or call.element_bytes != HALF_BYTES:
        return 0
    if call.is_pointwise or call.is_depthwise or call.is_narrow:
        return 0
    return call.element_bytes * (prod(call.x) + prod(call.w) + prod(call.y)) + ALIGNMENT_BYTES
