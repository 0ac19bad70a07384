"""Compiled extensions: by name where they are known, listed where they are not, never nothing.

The stand-ins take the arguments of the real functions and do the work where no operator is seen: in NumPy, into memory
that was only allocated, as the kernels of the real ones do on a GPU.
"""

import numpy as np
import pytest
import torch
from torch import nn

from swinmr_profiling.profiler.counting import (
    count_forward,
    count_training_step,
    forward_backward,
    register_formula,
)
from swinmr_profiling.profiler.counting.components import ComponentMode, ComponentTracker
from swinmr_profiling.profiler.counting.operators.extensions import FUNCTIONS
from tests.profiler.counting.made_extensions import (
    KNOWN,
    Calls,
    FlashAttnFunc,
    InNumpy,
    MambaInnerFn,
    OfOperators,
    SelectiveScanFn,
    SomebodysFn,
    kernel,
    tensors,
)


@pytest.mark.parametrize("name", KNOWN)
def test_known_functions_count_by_name(name):
    function, inputs, arguments, kind, macs = KNOWN[name]
    call = function.apply if isinstance(function, type) else function
    report = count_forward(Calls(call, *arguments), inputs)
    assert report.macs == report.by_kind[kind] == macs
    assert report.uncounted_operators == {}
    assert report.by_module["own"] == {kind: macs}


def test_a_selective_scan_counts_as_its_reference_in_pytorch():
    def reference(u, delta, a, b, c, d):
        """``selective_scan_ref`` of mamba_ssm, its core."""
        decay = torch.exp(torch.einsum("bdl,dn->bdln", delta, a))
        drive = torch.einsum("bdl,bnl,bdl->bdln", delta, b, u)
        state, ys = a.new_zeros((u.shape[0], *a.shape)), []
        for step in range(u.shape[2]):
            state = decay[:, :, step] * state + drive[:, :, step]
            ys.append(torch.einsum("bdn,bn->bd", state, c[:, :, step]))
        return torch.stack(ys, dim=2) + u * d[:, None]

    _, inputs, _, _, macs = KNOWN["selective scan"]
    assert count_forward(Calls(reference), inputs).macs == macs


def test_mambas_block_counts_its_linear_layers_as_operators_and_the_rest_by_name():
    batch, width, length, states, rank, taps, out = 2, 6, 5, 4, 3, 2, 7
    inputs = tensors(
        (batch, 2 * width, length), (width, 1, taps), (width,), (rank + 2 * states, width), (width, rank),
        (out, width), (out,), (width, states), (1,), (1,), (width,),
    )  # fmt: skip
    report = count_forward(Calls(MambaInnerFn.apply), inputs)
    tokens = batch * length
    assert report.by_kind["linear"] == tokens * (width * (rank + 2 * states) + rank * width + width * out)
    assert report.by_kind["convolution"] == tokens * width * taps
    assert report.by_kind["other"] == tokens * width * states
    assert report.uncounted_operators == {}


def test_the_backward_of_a_known_function_counts_too():
    # Forward, then dQ, dK, dV and dP: two products of each; the scores again.
    inputs = tuple(t.requires_grad_() for t in tensors((2, 10, 4, 16), (2, 7, 4, 16), (2, 7, 4, 16)))
    report = count_training_step(forward_backward, Calls(FlashAttnFunc.apply, 0.0, None, False), inputs)
    assert report.macs == 3 * 17_920
    assert report.recomputed_macs == 17_920 // 2
    assert report.uncounted_operators == {}
    scan = tuple(t.requires_grad_() for t in KNOWN["selective scan"][1])
    report = count_training_step(forward_backward, Calls(SelectiveScanFn.apply), scan)
    assert (report.macs, report.recomputed_macs) == (3 * 2 * 6 * 5 * 4, 0)


def test_gradients_of_an_extension_that_are_used_on_are_not_listed_where_it_is_known():
    layer = nn.Linear(16, 16)

    def network(x):
        q = layer(x).view(2, 10, 4, 4)
        return FlashAttnFunc.apply(q, q, q, 0.0, None, False)

    module = Calls(network)
    module.layer = layer
    report = count_training_step(forward_backward, module, tensors((2, 10, 16)))
    assert report.uncounted_operators == {}
    # The layer: forward and weight gradient, 20 x 16 x 16 each; attention 2 x 4 x 10 x 10 x 8, three times.
    assert report.macs == 2 * 20 * 16 * 16 + 3 * 2 * 4 * 10 * 10 * 8


def test_a_function_that_nobody_knows_is_listed():
    report = count_forward(Calls(SomebodysFn.apply), tensors((4, 4)))
    assert (report.macs, report.uncounted_operators) == (0, {"unseen::SomebodysFn": 1})


def test_a_formula_for_a_function_of_ones_own():
    register_formula("function::SomebodysFn", lambda out, x: x.numel() * x.shape[-1], kind="linear")
    try:
        x = torch.ones(4, 4, requires_grad=True)
        report = count_training_step(forward_backward, Calls(SomebodysFn.apply), (x,))
    finally:
        del FUNCTIONS["SomebodysFn"]
    assert (report.macs, report.by_kind["linear"], report.uncounted_operators) == (3 * 64, 3 * 64, {})


def test_a_function_that_works_in_numpy_is_listed():
    report = count_forward(Calls(InNumpy.apply), tensors((4, 4)))
    assert (report.macs, report.uncounted_operators) == (0, {"unseen::Tensor.numpy": 1})


def test_what_a_function_does_inside_is_listed_once_as_its():
    class Inner(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return kernel(*x.shape) * x

    def twice(x):
        return Inner.apply(x) + Inner.apply(x)

    report = count_forward(Calls(twice), tensors((4, 4)))
    assert report.uncounted_operators == {"unseen::Inner": 2}


def test_a_kernel_without_a_function_is_listed_by_the_code_that_allocated():
    report = count_forward(Calls(lambda x: kernel(4, 4) + x), tensors((4, 4)))
    assert report.uncounted_operators == {"unseen::made_extensions.kernel": 1}


def test_what_a_network_returns_counts_as_read():
    report = count_forward(Calls(lambda x: kernel(4, 4)), tensors((4, 4)))
    assert report.uncounted_operators == {"unseen::made_extensions.kernel": 1}


def test_the_gradient_of_an_unknown_function_is_listed():
    x = torch.ones(4, 4, requires_grad=True)
    report = count_training_step(forward_backward, Calls(lambda x: SomebodysFn.apply(x * 2)), (x,))
    assert report.uncounted_operators == {"unseen::SomebodysFn": 1, "unseen::SomebodysFn.backward": 1}


def test_a_function_of_operators_alone_is_not_listed():
    report = count_forward(Calls(OfOperators.apply), tensors((4, 6)))
    assert (report.macs, report.uncounted_operators) == (4 * 6 * 4, {})


def test_values_that_leave_for_another_library_are_listed():
    before = dict(vars(torch.Tensor))

    def forward(x):
        there = np.from_dlpack(x.detach())
        return torch.from_numpy(there @ there)

    report = count_forward(Calls(forward), tensors((4, 4)))
    assert (report.macs, report.uncounted_operators) == (0, {"unseen::Tensor.__dlpack__": 1})
    assert dict(vars(torch.Tensor)) == before


def test_values_that_leave_for_numpy_are_listed_and_constants_are_not():
    leaves = count_forward(Calls(lambda x: x + torch.from_numpy(x.numpy() * 2)), tensors((4, 4)))
    assert leaves.uncounted_operators == {"unseen::Tensor.numpy": 1}
    constant = torch.ones(4, 4)
    stays = count_forward(Calls(lambda x: x @ torch.from_numpy(constant.numpy())), tensors((4, 4)))
    assert (stays.macs, stays.uncounted_operators) == (64, {})


def test_afterwards_pytorch_is_as_it_was():
    with pytest.raises(ZeroDivisionError):
        count_forward(Calls(lambda x: 1 // 0), tensors((1,)))
    count_forward(Calls(SomebodysFn.apply), tensors((4, 4)))
    assert not {"numpy", "tolist"} & vars(torch.Tensor).keys()


def test_memory_that_a_product_is_handed_with_a_beta_of_0_is_not_read():
    def scores(beta):
        # What diffusers' plain attention does: baddbmm wants a tensor to add to, and multiplies it by 0.
        return lambda x: torch.baddbmm(torch.empty(1, 4, 4, device=x.device), x, x, beta=beta)

    report = count_forward(Calls(scores(0)), tensors((1, 4, 4)))
    assert (report.macs, report.uncounted_operators) == (4 * 4 * 4, {})
    report = count_forward(Calls(scores(1)), tensors((1, 4, 4)))
    assert (report.macs, len(report.uncounted_operators)) == (4 * 4 * 4, 1)


def test_attention_of_a_function_of_the_user_s_runs_without_compilation():
    from torch.nn.attention.flex_attention import flex_attention

    query = torch.randn(1, 2, 16, 8)
    mode = ComponentMode(ComponentTracker({"network": nn.Identity()}))
    with torch.no_grad(), mode:
        result = flex_attention(query, query, query)
    assert result.shape == query.shape
    # Two products of 16 x 16 x 8 for each of 2 heads.
    assert mode.tallies.by_operator == {"higher_order::flex_attention": 2 * 2 * 16 * 16 * 8}
