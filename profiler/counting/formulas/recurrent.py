"""MACs of recurrent layers. The handles' signature and unit are those of the folder's."""

from typing import Any

from torch import Tensor

from swinmr_profiling.profiler.counting.formulas import Work
from swinmr_profiling.profiler.counting.formulas.products import numel_of_matrices


def rnn_macs(step_count: int, matrix_numel: int) -> int:
    """T B x the elements of the 2-D weights: input, hidden and projection matrices meet every token once."""
    return step_count * matrix_numel


def rnn_flat_weights(out: Any, x: Tensor, weights: Any, *args: Any, **kwargs: Any) -> Work:
    """cuDNN and MIOpen: (T, B, C) or packed (tokens, C) input and every layer's weights in one list."""
    return rnn_macs(x.numel() // x.shape[-1], numel_of_matrices(weights))


def rnn_flat_weights_backward(
    out: Any, x: Tensor, weights: Any, weight_stride0: Any, *args: Any, **kwargs: Any
) -> Work:
    """2 x forward, less what output_mask (input, hx, cx, weights) leaves out.

    Without the input's gradient the first layer's input matrices are met once: weights[0], and in a
    bidirectional layer that of the other direction, weight_stride0 places on.
    """
    bidirectional, output_mask = args[-5], args[-1]
    steps = x.numel() // x.shape[-1]
    macs = rnn_macs(steps, numel_of_matrices(weights)) * (1 + int(output_mask[3]))
    if not output_mask[0]:
        first = weights[: weight_stride0 * (2 if bidirectional else 1) : weight_stride0]
        macs -= rnn_macs(steps, numel_of_matrices(first))
    return macs


def lstm_mps(out: Any, x: Tensor, hx: Tensor, weights: Any, *args: Any, **kwargs: Any) -> Work:
    """The forward on Apple GPUs; the weights follow the states."""
    return rnn_macs(x.numel() // x.shape[-1], numel_of_matrices(weights))


def mkldnn_rnn_layer(
    out: Any, x: Tensor, weight_ih: Tensor, weight_hh: Tensor, *args: Any, **kwargs: Any
) -> Work:
    """One layer in one direction: T B (numel(W_ih) + numel(W_hh))."""
    return rnn_macs(x.numel() // x.shape[-1], weight_ih.numel() + weight_hh.numel())


def mkldnn_rnn_layer_backward(
    out: Any, x: Tensor, weight_ih: Tensor, weight_hh: Tensor, *args: Any, **kwargs: Any
) -> Work:
    """2 x forward: the operator has no mask and always computes the input's gradient too."""
    return 2 * rnn_macs(x.numel() // x.shape[-1], weight_ih.numel() + weight_hh.numel())
