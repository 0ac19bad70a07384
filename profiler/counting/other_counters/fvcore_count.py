"""fvcore's figure for a model, and what fvcore gives with handles for the operators it lacks.

fvcore traces one real forward with jit and looks each traced operator up in its own table. Its total is kept as it
prints it (norms, upsampling and adaptive pooling in; attention kernels, recurrent layers and several products out).
Beside it stands an exact figure from the same trace: the MACs of a list of allowed operators, by handles of ours.
Both come from one trace, because a trace costs a real forward.
"""

from collections import Counter
from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch import nn

from swinmr_profiling.profiler.counting.dispatch.complex_numbers import REAL_PER_COMPLEX, THIRD_COUNTS
from swinmr_profiling.profiler.counting.formulas import attention, convolutions, recurrent

PRINTED, EXACT, COMPLEX = "printed", "exact", "complex"


def _shapes(values: Any) -> list[list[int]]:
    """The shapes of traced tensors. None, against the type, for what has none: a handle that needs it raises."""
    from fvcore.nn.jit_handles import get_shape

    return [get_shape(value) for value in values]


def _matmul(inputs: Any, outputs: Any) -> int:
    """prod(out) k: also right for vectors and for broadcast batches."""
    a, out = _shapes((inputs[0], outputs[0]))
    return prod(out) * a[-1]


def _first_matrix(inputs: Any, outputs: Any) -> int:
    """mv and dot: every element of the first factor is met once."""
    return prod(_shapes(inputs[:1])[0])


def _second_matrix(inputs: Any, outputs: Any) -> int:
    """addmv: the first input is added."""
    return prod(_shapes(inputs[1:2])[0])


def _added_product(inputs: Any, outputs: Any) -> int:
    """addmm, baddbmm and addbmm: the first input is added, the next two are multiplied."""
    a, b = _shapes(inputs[1:3])
    return prod(a) * b[-1]


def _grouped_product(inputs: Any, outputs: Any) -> int:
    a, b = _shapes(inputs[:2])  # as products.grouped_mm
    return prod(a[-2:] if len(a) > len(b) else a) * b[-1]


def _linear(inputs: Any, outputs: Any) -> int:
    x, weight = _shapes(inputs[:2])
    return prod(x) * weight[0]


def _convolution(inputs: Any, outputs: Any) -> int:
    x, weight, out = _shapes((*inputs[:2], outputs[0]))
    return convolutions.convolution_macs(x, prod(weight), out, bool(inputs[6].toIValue()))


def _plain_convolution(inputs: Any, outputs: Any) -> int:
    """Convolutions without a transposed flag: padding given as a word, deformable."""
    x, weight, out = _shapes((*inputs[:2], outputs[0]))
    return convolutions.convolution_macs(x, prod(weight), out, transposed=False)


def _time_batch_channel_convolution(inputs: Any, outputs: Any) -> int:
    weight, out = _shapes((inputs[1], outputs[0]))
    return out[0] * out[1] * prod(weight)


def _attention(inputs: Any, outputs: Any) -> int:
    return attention.attention_macs(*_shapes(inputs[:3]))


def _recurrent(inputs: Any, outputs: Any) -> int:
    """lstm, gru, rnn: the weights are the longest list among the inputs."""
    lists = [list(v.node().inputs()) for v in inputs if v.node().kind() == "prim::ListConstruct"]
    weights = _shapes(max(lists, key=len))
    matrix_numel = sum(prod(shape) for shape in weights if shape and len(shape) == 2)
    return recurrent.rnn_macs(prod(_shapes(inputs[:1])[0][:-1]), matrix_numel)


def _recurrent_cell(inputs: Any, outputs: Any) -> int:
    """lstm_cell and its like: input, hidden state(s), then W_ih and W_hh."""
    x = _shapes(inputs[:1])[0]
    return prod(x[:-1]) * sum(map(prod, filter(None, _shapes(inputs[2:4]))))


def _multi_head_attention(inputs: Any, outputs: Any) -> int:
    """MultiheadAttention's fast path: 2 (N_q + N_k) D^2 of projections and 2 N_q N_k D of products, per sample."""
    (batch, n_q, dim), (_, n_k, _) = _shapes(inputs[:2])
    return batch * (2 * (n_q + n_k) * dim**2 + 2 * n_q * n_k * dim)


def _encoder_layer(inputs: Any, outputs: Any) -> int:
    batch, tokens, dim = _shapes(inputs[:1])[0]
    matrices = sum(map(prod, _shapes(inputs[i] for i in (3, 5, 14, 16))))
    return batch * tokens * (matrices + 2 * tokens * dim)


def _bilinear(inputs: Any, outputs: Any) -> int:
    weight, out = _shapes((inputs[2], outputs[0]))
    rows = prod(out[:-1])
    return rows * prod(weight) + rows * weight[0] * weight[2]


def _tensordot(inputs: Any, outputs: Any) -> int:
    a, out = _shapes((inputs[0], outputs[0]))
    axes: list[int] = inputs[2].toIValue()
    if axes is None:
        axes = [value.toIValue() for value in inputs[2].node().inputs()]
    return prod(out) * prod(a[axis] for axis in axes)


def _einsum(inputs: Any, outputs: Any) -> int:
    """Two operands: a batched product over every index that is kept or summed against the other; else elementwise.

    Raises:
        NotImplementedError for more operands or an ellipsis: the order of the products decides.
    """
    equation = inputs[0].toIValue().replace(" ", "")
    operands = _shapes(inputs[1].node().inputs())
    left, arrow, kept = equation.partition("->")
    terms = left.split(",")
    if not arrow or "." in equation or len(terms) != 2:
        raise NotImplementedError(equation)
    sizes = {
        index: size
        for term, shape in zip(terms, operands, strict=True)
        for index, size in zip(term, shape, strict=True)
    }
    shared = set(terms[0]) & set(terms[1])
    if not shared - set(kept):
        return 0
    # An index of one operand alone that is not kept is summed before the product.
    return prod(size for index, size in sizes.items() if index in shared or index in kept)


def _affine_grid(inputs: Any, outputs: Any) -> int:
    """Every point of the grid times the matrix."""
    out = _shapes(outputs)[0]
    return prod(out) * (out[-1] + 1)


def _euclidean_distance(inputs: Any, outputs: Any) -> int:
    """cdist where torch takes the matrix product (see geometry.cdist)."""
    a, b, out = _shapes((*inputs[:2], outputs[0]))
    mode = inputs[3].toIValue()
    rows = max(a[-2], b[-2])
    by_product = inputs[2].toIValue() == 2 and (mode == 1 or (mode in (None, 0) and rows > 25))
    return prod(out) * a[-1] if by_product else 0


EXACT_HANDLES: dict[str, Callable[[Any, Any], int]] = {
    "aten::_convolution": _convolution,
    "aten::_convolution_mode": _plain_convolution,
    "torchvision::deform_conv2d": _plain_convolution,
    "aten::conv_tbc": _time_batch_channel_convolution,
    "aten::linear": _linear,
    **dict.fromkeys(
        ("aten::addmm", "aten::baddbmm", "aten::addbmm", "aten::addmm_", "aten::baddbmm_", "aten::addbmm_"),
        _added_product,
    ),
    "aten::_addmm_activation": _added_product,
    **dict.fromkeys(("aten::mm", "aten::bmm", "aten::matmul", "aten::inner", "aten::_int_mm"), _matmul),
    "aten::_grouped_mm": _grouped_product,
    "aten::tensordot": _tensordot,
    "aten::mv": _first_matrix,
    "aten::dot": _first_matrix,
    "aten::vdot": _first_matrix,
    "aten::addmv": _second_matrix,
    "aten::addmv_": _second_matrix,
    "aten::scaled_dot_product_attention": _attention,
    "aten::_native_multi_head_attention": _multi_head_attention,
    "aten::_transformer_encoder_layer_fwd": _encoder_layer,
    **dict.fromkeys(("aten::lstm", "aten::gru", "aten::rnn_tanh", "aten::rnn_relu"), _recurrent),
    **dict.fromkeys(
        ("aten::lstm_cell", "aten::gru_cell", "aten::rnn_tanh_cell", "aten::rnn_relu_cell"), _recurrent_cell
    ),
    "aten::bilinear": _bilinear,
    "aten::einsum": _einsum,
    "aten::affine_grid_generator": _affine_grid,
    "aten::cdist": _euclidean_distance,
}


def _times(inputs: Any) -> int:
    """How often each product of a traced operator counts: by its numbers, as in our own count."""
    if any(value.isCompleteTensor() and value.type().dtype().is_complex for value in inputs):
        return REAL_PER_COMPLEX
    # A trace has a complex convolution as its three real ones; the third is of sums of real and imaginary parts.
    is_third = len(inputs) > 1 and all(_is_sum_of_parts(value.node()) for value in inputs[:2])
    return THIRD_COUNTS if is_third else 1


def _is_sum_of_parts(node: Any) -> bool:
    if node.kind() != "aten::add":
        return False
    parts = [value.node() for value in list(node.inputs())[:2]]
    if [part.kind() for part in parts] != ["aten::select"] * 2:
        return False
    wholes = [next(part.inputs()) for part in parts]
    return bool(wholes[0] == wholes[1]) and bool(wholes[0].node().kind() == "aten::view_as_real")


class FvcoreFigures:
    """What one trace gave.

    printed: operator -> what fvcore counts for it by itself; its sum is what fvcore prints.
    exact: operator -> MACs by the handles above, four for each complex multiply-add.
    complex_extra: operator -> what of that is there because a complex multiply-add is four, in operators that
        fvcore counts by itself.
    unsupported: operators without any handle -> calls, as fvcore warns of them.
    failures: operators whose own fvcore handle raises; fvcore by itself prints no figure then.
    """

    def __init__(
        self,
        printed: dict[str, float],
        exact: dict[str, float],
        complex_extra: dict[str, float],
        unsupported: dict[str, int],
        failures: list[str],
    ) -> None:
        self.printed, self.exact, self.complex_extra = printed, exact, complex_extra
        self.unsupported, self.failures = unsupported, failures


def count_with_fvcore(module: nn.Module, inputs: tuple[Any, ...]) -> FvcoreFigures:
    """Traces ``module(*inputs)`` in evaluation mode without gradients. Pass a copy: tracing runs the real forward.

    Raises:
        ImportError without fvcore; whatever tracing raises.
    """
    from fvcore.nn import FlopCountAnalysis
    from fvcore.nn.flop_count import _DEFAULT_SUPPORTED_OPS

    failures: list[str] = []

    def both(
        name: str, own: Callable[..., Any] | None, exact: Callable[[Any, Any], int] | None
    ) -> Callable[..., Any]:
        def handle(node_inputs: Any, node_outputs: Any) -> Counter[tuple[str, str]]:
            # fvcore asks for a Counter; a number of its own may have a fraction.
            counts: Counter[Any] = Counter()
            try:
                printed = own(node_inputs, node_outputs) if own else 0
            except Exception as error:
                failures.append(f"{name}: {type(error).__name__}: {error}")
                printed = 0
            # Its convolution handle returns a Counter, its others a number.
            counts[PRINTED, name] = whole_or_not(
                sum(printed.values()) if isinstance(printed, Counter) else printed
            )
            if exact:
                try:
                    products = exact(node_inputs, node_outputs)
                except NotImplementedError:
                    # Not derivable from the node alone: fvcore's own figure is the best there is.
                    products = counts[PRINTED, name]
                counts[EXACT, name] = products * _times(node_inputs)
                if counts[PRINTED, name]:
                    counts[COMPLEX, name] = counts[EXACT, name] - products
            return counts

        return handle

    names = {*EXACT_HANDLES, *_DEFAULT_SUPPORTED_OPS}
    handles = {name: both(name, _DEFAULT_SUPPORTED_OPS.get(name), EXACT_HANDLES.get(name)) for name in names}
    analysis = FlopCountAnalysis(module.eval(), inputs).set_op_handle(**handles)
    analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False).tracer_warnings("none")
    with torch.no_grad():
        by_operator = analysis.by_operator()
    return FvcoreFigures(
        printed={name: n for (which, name), n in by_operator.items() if which == PRINTED},
        exact={name: whole_or_not(n) for (which, name), n in by_operator.items() if which == EXACT},
        complex_extra={name: whole_or_not(n) for (which, name), n in by_operator.items() if which == COMPLEX},
        unsupported=dict(analysis.unsupported_ops()),
        failures=sorted(set(failures)),
    )


def whole_or_not(number: Any) -> Any:
    """A number of a counter: an int where it is one."""
    return int(number) if float(number).is_integer() else float(number)
