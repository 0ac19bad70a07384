"""Operator cases with MACs derived by hand: what benchmark_counters.py runs and what the counter's tests
check.

Each case is a small module, its inputs and the MACs of one call, written out as the product they are.
Convention: one MAC per real multiply-add of a matrix product, convolution or attention product, four per complex
one; nothing else; masks not discounted.
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from torchvision.ops import DeformConv2d

from swinmr_profiling.scripts.counter_cases.case_modules import (
    Call,
    Case,
    LinearSubclass,
    PackedLSTM,
    Recursive,
    SquareFunction,
    Twice,
    autocast,
    call,
    case,
    inference_mode,
    layer,
    quantized_linear,
    randn,
)

ATTENTION = "torch.nn.functional.scaled_dot_product_attention"
# Shapes of query, key and value: of 10 tokens among themselves, and of 10 tokens to 7 others.
SELF = ((2, 4, 10, 16),) * 3
CROSS = ((2, 4, 10, 16), (2, 4, 7, 16), (2, 4, 7, 16))
# Of 8 channels.
IMAGE = (1, 8, 16, 16)

CASES: tuple[Case, ...] = (
    # Linear: rows x in x out
    layer("Linear 2-D", 5 * 16 * 8, lambda: nn.Linear(16, 8), (5, 16)),
    layer("Linear 3-D", 2 * 5 * 16 * 8, lambda: nn.Linear(16, 8), (2, 5, 16)),
    layer("Linear vector", 16 * 8, lambda: nn.Linear(16, 8), (16,)),
    layer("Linear without bias", 2 * 5 * 16 * 8, lambda: nn.Linear(16, 8, bias=False), (2, 5, 16)),
    call(
        "Linear of a permuted input",
        2 * 5 * 16 * 8,
        lambda x, w: F.linear(x.transpose(1, 2), w),
        (2, 16, 5),
        w=(8, 16),
    ),
    layer("Linear subclass", 5 * 16 * 8, lambda: LinearSubclass(16, 8), (5, 16)),
    call("F.linear of a raw parameter", 5 * 16 * 8, "torch.nn.functional.linear", (5, 16), w=(8, 16)),
    layer(
        "Linear with weight norm",
        5 * 16 * 8,
        lambda: nn.utils.parametrizations.weight_norm(nn.Linear(16, 8)),
        (5, 16),
    ),
    layer("Linear, quantized dynamically", 5 * 16 * 8, quantized_linear, (5, 16)),
    layer("lazy Linear", 5 * 16 * 8, lambda: nn.LazyLinear(8), (5, 16)),
    # Matrix products: m n k, batch times m n k
    call("mm", 3 * 4 * 5, "torch.mm", (3, 4), (4, 5)),
    call("mm with out=", 3 * 4 * 5, lambda a, b: torch.mm(a, b, out=torch.empty(3, 5)), (3, 4), (4, 5)),
    call("mm in bfloat16", 3 * 4 * 5, "torch.mm", (3, 4), (4, 5), dtype=torch.bfloat16),
    call("mm of complex numbers", 4 * 3 * 4 * 5, "torch.mm", (3, 4), (4, 5), dtype=torch.complex64),
    # A real matrix meets the real and the imaginary part: two multiply-adds, not four.
    case(
        "mm of real and imaginary parts",
        2 * 3 * 4 * 5,
        lambda: Call(lambda x, w: torch.view_as_real(x).transpose(-1, -2) @ w),
        lambda: randn(3, 4, dtype=torch.complex64),
        lambda: randn(4, 5),
    ),
    case(
        "mm of int64",
        3 * 4 * 5,
        lambda: Call("torch.mm"),
        lambda: torch.ones(3, 4, dtype=torch.int64),
        lambda: torch.ones(4, 5, dtype=torch.int64),
    ),
    case(
        "mm of int8",
        32 * 16 * 8,
        lambda: Call("torch._int_mm"),
        lambda: torch.ones(32, 16, dtype=torch.int8),
        lambda: torch.ones(16, 8, dtype=torch.int8),
    ),
    call("addmm", 3 * 4 * 5, "torch.addmm", (3, 5), (3, 4), (4, 5)),
    call("addmm_", 3 * 4 * 5, lambda x, a, b: x.clone().addmm_(a, b), (3, 5), (3, 4), (4, 5)),
    call("addmm fused with an activation", 3 * 4 * 5, "torch._addmm_activation", (5,), (3, 4), (4, 5)),
    call("bmm", 2 * 3 * 4 * 5, "torch.bmm", (2, 3, 4), (2, 4, 5)),
    call("baddbmm", 2 * 3 * 4 * 5, "torch.baddbmm", (2, 3, 5), (2, 3, 4), (2, 4, 5)),
    call(
        "baddbmm_", 2 * 3 * 4 * 5, lambda x, a, b: x.clone().baddbmm_(a, b), (2, 3, 5), (2, 3, 4), (2, 4, 5)
    ),
    call("addbmm", 2 * 3 * 4 * 5, "torch.addbmm", (3, 5), (2, 3, 4), (2, 4, 5)),
    call("mv", 3 * 4, "torch.mv", (3, 4), (4,)),
    call("addmv", 3 * 4, "torch.addmv", (3,), (3, 4), (4,)),
    call("dot", 7, "torch.dot", (7,), (7,)),
    call("vdot", 7, "torch.vdot", (7,), (7,)),
    call("inner", 3 * 5 * 4, "torch.inner", (3, 4), (5, 4)),
    call("matmul matrix-vector", 3 * 4, "torch.matmul", (3, 4), (4,)),
    call("matmul vector-matrix", 4 * 5, "torch.matmul", (4,), (4, 5)),
    call("matmul vector-vector", 7, "torch.matmul", (7,), (7,)),
    call("matmul 3-D by 3-D", 2 * 3 * 4 * 5, "torch.matmul", (2, 3, 4), (2, 4, 5)),
    call("matmul 4-D by 2-D", 2 * 3 * 6 * 4 * 5, "torch.matmul", (2, 3, 6, 4), (4, 5)),
    call("matmul 2-D by 3-D", 2 * 3 * 4 * 5, "torch.matmul", (3, 4), (2, 4, 5)),
    # (1, 10, 16) is broadcast over 2 x 4 batches of (16, 12).
    call("matmul broadcast", 2 * 4 * 10 * 16 * 12, "torch.matmul", (1, 10, 16), (2, 4, 16, 12)),
    call("matmul of a raw parameter", 2 * 5 * 16 * 8, "torch.matmul", (2, 5, 16), w=(16, 8)),
    # The two last axes of one with the two first of the other: (2 x 3) rows, 4 x 5 summed, 6 columns.
    call("tensordot", 2 * 3 * 20 * 6, lambda a, b: torch.tensordot(a, b, 2), (2, 3, 4, 5), (4, 5, 6)),
    # (2, 3)(3, 4) then (2, 4)(4, 5): the cheaper order, 24 + 40, against 60 + 30 for the other.
    call(
        "multi_dot",
        2 * 3 * 4 + 2 * 4 * 5,
        lambda a, b, c: torch.linalg.multi_dot((a, b, c)),
        (2, 3),
        (3, 4),
        (4, 5),
    ),
    # A cubed is two products.
    call("matrix_power 3", 2 * 4**3, lambda a: torch.matrix_power(a, 3), (4, 4)),
    call(
        "einsum as linear",
        2 * 5 * 16 * 8,
        lambda x, w: torch.einsum("btc,dc->btd", x, w),
        (2, 5, 16),
        w=(8, 16),
    ),
    call(
        "einsum as scores",
        2 * 4 * 10 * 7 * 16,
        lambda q, k: torch.einsum("bhid,bhjd->bhij", q, k),
        (2, 4, 10, 16),
        (2, 4, 7, 16),
    ),
    call("einsum as matrix-vector", 3 * 4, lambda a, x: torch.einsum("ij,j->i", a, x), (3, 4), (4,)),
    # Nothing is summed: an outer product is elementwise.
    call("einsum outer product", 0, lambda a, b: torch.einsum("i,j->ij", a, b), (3,), (4,)),
    call("outer", 0, "torch.outer", (3,), (4,)),
    call("kron", 0, "torch.kron", (3, 4), (2, 2)),
    # Channels by channels over 8 x 8 places, per image.
    call("Gram matrix", 2 * 6 * 6 * 64, lambda x: x.flatten(2) @ x.flatten(2).transpose(1, 2), (2, 6, 8, 8)),
    call("vmap of mm", 6 * 3 * 4 * 5, lambda a, b: torch.vmap(torch.mm)(a, b), (6, 3, 4), (6, 4, 5)),
    # Mixture of experts: each of 24 rows meets one of three weights, wherever the groups are cut.
    case(
        "grouped products of experts",
        24 * 16 * 8,
        lambda: Call(lambda x, w, ends: torch._grouped_mm(x, w, offs=ends)),
        lambda: randn(24, 16, dtype=torch.bfloat16),
        lambda: randn(3, 16, 8, dtype=torch.bfloat16),
        lambda: torch.tensor([8, 8, 24], dtype=torch.int32),
    ),
    # Convolutions: N x output places x numel(W); numel(W) = out x in / groups x kernel
    layer("Conv1d", 2 * 20 * (8 * 4 * 3), lambda: nn.Conv1d(4, 8, 3, padding=1), (2, 4, 20)),
    layer("Conv2d", 16 * 16 * (16 * 8 * 9), lambda: nn.Conv2d(8, 16, 3, padding=1), IMAGE),
    layer("Conv2d unbatched", 294_912, lambda: nn.Conv2d(8, 16, 3, padding=1), (8, 16, 16)),
    layer("Conv3d", 6 * 6 * 6 * (8 * 4 * 27), lambda: nn.Conv3d(4, 8, 3), (1, 4, 8, 8, 8)),
    layer("Conv2d 1x1", 16 * 16 * (16 * 8), lambda: nn.Conv2d(8, 16, 1), IMAGE),
    layer("Conv2d stride 2", 8 * 8 * (16 * 8 * 9), lambda: nn.Conv2d(8, 16, 3, 2, 1), IMAGE),
    # Dilation 2 reaches 5 wide: 16 - 4 = 12 places a side.
    layer("Conv2d dilated", 12 * 12 * (16 * 8 * 9), lambda: nn.Conv2d(8, 16, 3, dilation=2), IMAGE),
    layer("Conv2d grouped", 16 * 16 * (16 * 2 * 9), lambda: nn.Conv2d(8, 16, 3, padding=1, groups=4), IMAGE),
    layer("Conv2d depthwise", 16 * 16 * (8 * 1 * 9), lambda: nn.Conv2d(8, 8, 3, padding=1, groups=8), IMAGE),
    layer(
        "Conv2d padding='same'",
        16 * 16 * (16 * 8 * 25),
        lambda: nn.Conv2d(8, 16, 5, padding="same"),
        IMAGE,
    ),
    layer(
        "Conv2d reflect padding",
        16 * 16 * (16 * 8 * 9),
        lambda: nn.Conv2d(8, 16, 3, padding=1, padding_mode="reflect"),
        IMAGE,
    ),
    layer("lazy Conv2d", 16 * 16 * (16 * 8 * 9), lambda: nn.LazyConv2d(16, 3, padding=1), IMAGE),
    call(
        "F.conv2d of a raw parameter",
        14 * 14 * (16 * 8 * 9),
        "torch.nn.functional.conv2d",
        IMAGE,
        w=(16, 8, 3, 3),
    ),
    # 16 x 16 places x 4 x 2 x 9, four real MACs each: PyTorch takes three real convolutions for it.
    case(
        "Conv2d of complex numbers",
        4 * 16 * 16 * (4 * 2 * 9),
        lambda: nn.Conv2d(2, 4, 3, padding=1, dtype=torch.complex64),
        lambda: randn(1, 2, 16, 16, dtype=torch.complex64),
    ),
    case(
        "ConvTranspose1d of complex numbers, grouped",
        4 * 2 * 10 * (4 * 3 * 5),
        lambda: nn.ConvTranspose1d(4, 6, 5, groups=2, dtype=torch.complex64),
        lambda: randn(2, 4, 10, dtype=torch.complex64),
    ),
    # Time-batch-channel: 8 places x 2 x (3 x 4 x 5)
    call("conv_tbc", 8 * 2 * (3 * 4 * 5), "torch.conv_tbc", (10, 2, 4), w=(3, 4, 5), b=(5,)),
    # Unfolded to 196 columns of 72, times 16 x 72.
    call("unfold and matmul", 196 * 72 * 16, lambda x, w: w @ F.unfold(x, 3), IMAGE, w=(16, 72)),
    # Transposed: N x input places x numel(W); numel(W) = in x out / groups x kernel
    layer("ConvTranspose1d", 2 * 10 * (4 * 8 * 4), lambda: nn.ConvTranspose1d(4, 8, 4, 2, 1), (2, 4, 10)),
    layer(
        "ConvTranspose2d", 8 * 8 * (16 * 32 * 16), lambda: nn.ConvTranspose2d(16, 32, 4, 2, 1), (1, 16, 8, 8)
    ),
    layer("ConvTranspose2d 2x2", 2 * 2 * (3 * 1 * 4), lambda: nn.ConvTranspose2d(3, 1, 2, 2), (1, 3, 2, 2)),
    layer(
        "ConvTranspose2d grouped",
        8 * 8 * (16 * 8 * 16),
        lambda: nn.ConvTranspose2d(16, 32, 4, 2, 1, groups=4),
        (1, 16, 8, 8),
    ),
    layer(
        "ConvTranspose2d, output padding",
        8 * 8 * (16 * 32 * 9),
        lambda: nn.ConvTranspose2d(16, 32, 3, 2, 1, output_padding=1),
        (1, 16, 8, 8),
    ),
    layer("ConvTranspose3d", 4**3 * (4 * 8 * 8), lambda: nn.ConvTranspose3d(4, 8, 2, 2), (1, 4, 4, 4, 4)),
    # 14 x 14 places x 16 x 8 x 9; sampling is interpolation. Offsets: two per tap.
    layer("DeformConv2d", 14 * 14 * (16 * 8 * 9), lambda: DeformConv2d(8, 16, 3), IMAGE, (1, 18, 14, 14)),
    # Attention: B H Nq Nk (d_k + d_v)
    call("attention, self", 2 * 4 * 10 * 10 * 32, ATTENTION, *SELF),
    call("attention, cross", 17_920, ATTENTION, *CROSS),
    call(
        "attention, causal (in full)",
        2 * 4 * 10 * 10 * 32,
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        *SELF,
    ),
    call("attention, masked", 2 * 4 * 10 * 7 * 32, ATTENTION, *CROSS, (10, 7)),
    call(
        "attention, wider values",
        2 * 4 * 10 * 7 * (16 + 24),
        ATTENTION,
        (2, 4, 10, 16),
        (2, 4, 7, 16),
        (2, 4, 7, 24),
    ),
    # 8 query heads share 2 key heads: the query's count.
    call(
        "attention, grouped queries",
        2 * 8 * 10 * 10 * 32,
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True),
        (2, 8, 10, 16),
        (2, 2, 10, 16),
        (2, 2, 10, 16),
    ),
    call("attention, 3-D", 4 * 10 * 7 * 32, ATTENTION, (4, 10, 16), (4, 7, 16), (4, 7, 16)),
    call(
        "attention, written out",
        2 * 4 * 10 * 7 * 32,
        lambda q, k, v: (q @ k.transpose(-2, -1)).softmax(-1) @ v,
        *CROSS,
    ),
    # K'V is 16 x 16 over 10 tokens, Q times it the same.
    call("attention, linear", 2 * 4 * 2 * 10 * 16 * 16, lambda q, k, v: q @ (k.transpose(-2, -1) @ v), *SELF),
    # Four projections of 1000 x 100 x 100, products of 2 x 1000 x 1000 x 100.
    layer(
        "MultiheadAttention, self",
        240_000_000,
        lambda: nn.MultiheadAttention(100, 1),
        (1000, 1, 100),
        (1000, 1, 100),
        (1000, 1, 100),
    ),
    layer(
        "MultiheadAttention, batch first",
        2 * (4 * 9 * 16**2 + 2 * 9 * 9 * 16),
        lambda: nn.MultiheadAttention(16, 2, batch_first=True),
        (2, 9, 16),
        (2, 9, 16),
        (2, 9, 16),
    ),
    # Query in and out 2 x 9, key and value 2 x 5 rows of 16 x 16.
    layer(
        "MultiheadAttention, cross",
        2 * ((2 * 9 + 2 * 5) * 16**2 + 2 * 9 * 5 * 16),
        lambda: nn.MultiheadAttention(16, 2, batch_first=True),
        (2, 9, 16),
        (2, 5, 16),
        (2, 5, 16),
    ),
    layer(
        "MultiheadAttention, kdim and vdim",
        2 * (2 * 9 * 16**2 + 5 * 16 * 8 + 5 * 16 * 6 + 2 * 9 * 5 * 16),
        lambda: nn.MultiheadAttention(16, 2, kdim=8, vdim=6, batch_first=True),
        (2, 9, 16),
        (2, 5, 8),
        (2, 5, 6),
    ),
    # Attention block, then 2 x 16 x 32 per token.
    layer(
        "TransformerEncoderLayer",
        2 * (4 * 9 * 16**2 + 2 * 9 * 9 * 16 + 9 * 2 * 16 * 32),
        lambda: nn.TransformerEncoderLayer(16, 2, 32, batch_first=True),
        (2, 9, 16),
    ),
    # Self-attention over 9, cross-attention over 5, feed-forward.
    layer(
        "TransformerDecoderLayer",
        2 * (4 * 9 * 16**2 + 2 * 9 * 9 * 16 + (2 * 9 + 2 * 5) * 16**2 + 2 * 9 * 5 * 16 + 9 * 2 * 16 * 32),
        lambda: nn.TransformerDecoderLayer(16, 2, 32, batch_first=True),
        (2, 9, 16),
        (2, 5, 16),
    ),
    # Recurrent: T B x the elements of the matrices
    layer("RNN tanh", 3 * 7 * (24 * 16 + 24 * 24), lambda: nn.RNN(16, 24), (3, 7, 16)),
    layer("RNN relu", 3 * 7 * (24 * 16 + 24 * 24), lambda: nn.RNN(16, 24, nonlinearity="relu"), (3, 7, 16)),
    layer("LSTM", 80_640, lambda: nn.LSTM(16, 24), (3, 7, 16)),
    # The second layer reads the first's 24.
    layer(
        "LSTM, 2 layers",
        3 * 7 * 4 * (24 * 16 + 24 * 24 + 2 * 24 * 24),
        lambda: nn.LSTM(16, 24, 2),
        (3, 7, 16),
    ),
    layer("LSTM, bidirectional", 2 * 80_640, lambda: nn.LSTM(16, 24, bidirectional=True), (3, 7, 16)),
    # Hidden state projected to 10: recurrent matrix 96 x 10 and projection 10 x 24.
    layer(
        "LSTM, projected",
        3 * 7 * (96 * 16 + 96 * 10 + 10 * 24),
        lambda: nn.LSTM(16, 24, proj_size=10),
        (3, 7, 16),
    ),
    # 5 + 3 + 1 steps of 4 x 16 x (8 + 16).
    Case("LSTM, packed sequence", 9 * 64 * 24, lambda: (PackedLSTM().eval(), (randn(3, 5, 8),))),
    layer("GRU", 3 * 7 * 3 * (24 * 16 + 24 * 24), lambda: nn.GRU(16, 24), (3, 7, 16)),
    layer("GRU, unbatched", 3 * 3 * (24 * 16 + 24 * 24), lambda: nn.GRU(16, 24), (3, 16)),
    layer("RNNCell", 7 * (24 * 16 + 24 * 24), lambda: nn.RNNCell(16, 24), (7, 16)),
    layer("LSTMCell", 7 * 4 * (24 * 16 + 24 * 24), lambda: nn.LSTMCell(16, 24), (7, 16)),
    layer("GRUCell", 7 * 3 * (24 * 16 + 24 * 24), lambda: nn.GRUCell(16, 24), (7, 16)),
    # Others
    # Per row and feature: 4 x 5 for x1' W, then 5 with x2.
    layer("Bilinear", 3 * 6 * (4 * 5 + 5), lambda: nn.Bilinear(4, 5, 6), (3, 4), (3, 5)),
    # Each point (x, y, 1) of the grid by 2 x 3, or (x, y, z, 1) by 3 x 4.
    call("affine_grid", 256 * 256 * 2 * 3, lambda t: F.affine_grid(t, [1, 3, 256, 256], False), (1, 2, 3)),
    call(
        "affine_grid, 3-D",
        2 * 4 * 5 * 6 * 3 * 4,
        lambda t: F.affine_grid(t, [2, 1, 4, 5, 6], True),
        (2, 3, 4),
    ),
    # More than 25 rows: a matrix product of 30 x 40 x 4.
    call("cdist by product", 2 * 30 * 40 * 4, "torch.cdist", (2, 30, 4), (2, 40, 4)),
    # Differences, element by element.
    call("cdist by differences", 0, "torch.cdist", (2, 3, 4), (2, 5, 4)),
    # Work that is not a MAC
    layer("LayerNorm", 0, lambda: nn.LayerNorm(16), (5, 16)),
    layer("BatchNorm2d", 0, lambda: nn.BatchNorm2d(8), (2, 8, 4, 4)),
    layer("GroupNorm", 0, lambda: nn.GroupNorm(2, 8), (2, 8, 4, 4)),
    layer("GELU", 0, nn.GELU, (5, 16)),
    layer("Softmax", 0, lambda: nn.Softmax(-1), (5, 16)),
    layer("MaxPool2d", 0, lambda: nn.MaxPool2d(2), (1, 8, 4, 4)),
    layer("AvgPool2d", 0, lambda: nn.AvgPool2d(2), (1, 8, 4, 4)),
    layer("AdaptiveAvgPool2d", 0, lambda: nn.AdaptiveAvgPool2d(1), (1, 8, 4, 4)),
    layer("Upsample bilinear", 0, lambda: nn.Upsample(scale_factor=2, mode="bilinear"), (1, 8, 4, 4)),
    layer("PixelShuffle", 0, lambda: nn.PixelShuffle(2), (1, 8, 4, 4)),
    case("Embedding", 0, lambda: nn.Embedding(10, 4), lambda: torch.arange(3)),
    call("FFT", 0, lambda x: torch.fft.ifft2(torch.fft.fft2(x)).real, (2, 8, 8)),
    call("grid_sample", 0, lambda x, g: F.grid_sample(x, g, align_corners=False), (1, 2, 4, 4), (1, 4, 4, 2)),
    # The ways a layer is called
    layer("shared layer", 2 * 5 * 8 * 8, lambda: Twice(nn.Linear(8, 8)), (5, 8)),
    layer("recursive module", 3 * 5 * 8 * 8, lambda: Recursive(nn.Linear(8, 8), 3), (5, 8)),
    layer(
        "checkpointed layer",
        5 * 8 * 8,
        lambda: Call(lambda x, w: checkpoint(F.linear, x, w, use_reentrant=False), w=randn(8, 8)),
        (5, 8),
    ),
    call("under inference_mode", 5 * 16 * 8, inference_mode(lambda x, w: F.linear(x, w)), (5, 16), w=(8, 16)),
    call(
        "attention under inference_mode",
        2 * 4 * 10 * 7 * 32,
        inference_mode(lambda *qkv: F.scaled_dot_product_attention(*qkv)),
        *CROSS,
    ),
    call("under autocast", 5 * 16 * 8, autocast(lambda x, w: F.linear(x, w)), (5, 16), w=(8, 16)),
    call("custom autograd function", 4**3, SquareFunction.apply, (4, 4)),
    # A branch on a value: cannot run without data.
    call(
        "branch on a value",
        5 * 16 * 8,
        lambda x, w: F.linear(x, w) if x.square().sum() > 0 else x,
        (5, 16),
        w=(8, 16),
    ),
)
