"""Nested, fake and sparse tensors, padding masks, bags of embeddings; and counts that depend on values say so."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses import FakeTensorMode

from swinmr_profiling.profiler.counting import count_forward, count_training_step

ANOTHER = "another input can give another count"
# Two sequences of 3 and 5 tokens of 16 numbers.
LENGTHS = (3, 5)


class Calls(nn.Module):
    def __init__(self, function, **modules):
        super().__init__()
        self.function = function
        for name, module in modules.items():
            setattr(self, name, module)

    def forward(self, *inputs):
        return self.function(self, *inputs)


def ragged(layout, width=16, **options):
    return torch.nested.nested_tensor([torch.ones(n, width) for n in LENGTHS], layout=layout, **options)


LAYOUTS = {"jagged": torch.jagged, "strided": torch.strided}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_a_linear_layer_of_nested_tensors(layout):
    report = count_forward(nn.Linear(16, 8), (ragged(layout),))
    assert (report.macs, report.by_kind["linear"], report.uncounted_operators) == (8 * 16 * 8, 8 * 16 * 8, {})
    assert report.input_shapes == [[3, 16], [5, 16]]


def test_a_jagged_linear_layer_needs_no_values():
    assert count_forward(nn.Linear(16, 8), (ragged(torch.jagged),)).counted_on == "meta"


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_a_block_of_nested_tensors(layout):
    def block(self, x):
        return (self.norm(self.layer(x).relu() + x).softmax(-1) * 2).to_padded_tensor(0.0)

    module = Calls(block, layer=nn.Linear(16, 16), norm=nn.LayerNorm(16))
    report = count_forward(module, (ragged(layout),))
    assert (report.macs, report.uncounted_operators) == (8 * 16 * 16, {})
    # relu, the sum and the product: one each of 8 x 16 numbers; the norm five.
    assert report.elementwise_flops == 8 * 16 * (1 + 1 + 1 + 5)
    assert report.softmax_macs == 2 * 8 * 16


def test_products_of_strided_nested_tensors():
    # 3 x 16 x 3 and 5 x 16 x 5.
    report = count_forward(Calls(lambda self, x: x @ x.transpose(1, 2)), (ragged(torch.strided),))
    assert (report.macs, report.uncounted_operators) == (16 * (9 + 25), {})


def test_attention_of_jagged_tensors():
    def attention(self, x):
        q = x.unflatten(-1, [2, 8]).transpose(1, 2)
        return F.scaled_dot_product_attention(q, q, q)

    # Two heads: every query meets the keys of its own sequence, 8 and 8 wide.
    report = count_forward(Calls(attention), (ragged(torch.jagged),))
    assert (report.macs, report.uncounted_operators) == (2 * (9 + 25) * 16, {})


def test_multi_head_attention_of_nested_tensors():
    mha = nn.MultiheadAttention(16, 2, batch_first=True).eval()
    module = Calls(lambda self, x: self.mha(x, x, x, need_weights=False)[0], mha=mha)
    report = count_forward(module, (ragged(torch.strided),))
    # Four projections of 8 tokens, and 2 x 16 for each pair.
    assert (report.macs, report.uncounted_operators) == (4 * 8 * 16**2 + 2 * 16 * (9 + 25), {})


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_training_on_nested_tensors(layout):
    def step(module, x):
        module(x).to_padded_tensor(0.0).sum().backward()

    report = count_training_step(step, nn.Linear(16, 8), (ragged(layout),))
    # Forward and weight gradient.
    assert (report.macs, report.uncounted_operators) == (2 * 8 * 16 * 8, {})


def encoder(layers=2):
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    return nn.TransformerEncoder(layer, layers).eval()


def test_an_encoder_skips_what_a_padding_mask_hides():
    mask = torch.zeros(2, 9, dtype=torch.bool)
    mask[0, 6:] = True
    report = count_forward(encoder(), (torch.ones(2, 9, 16),), {"src_key_padding_mask": mask})
    # 6 and 9 tokens: four projections and two layers of 16 x 32 each, 2 x 16 for each pair.
    tokens, pairs = 6 + 9, 36 + 81
    assert report.macs == 2 * (tokens * (4 * 16**2 + 2 * 16 * 32) + 2 * 16 * pairs)
    assert report.uncounted_operators == {}
    assert report.softmax_macs == 2 * 2 * 2 * pairs
    assert ANOTHER in report.note
    # In training nothing is skipped: 18 tokens.
    with_padding = count_forward(encoder().train(), (torch.ones(2, 9, 16),), {"src_key_padding_mask": mask})
    assert with_padding.macs == 2 * (18 * (4 * 16**2 + 2 * 16 * 32) + 2 * 16 * 2 * 81)
    assert with_padding.note is None


# name -> a forward whose work the values decide.
DECIDED = {
    "a number": lambda self, x: self.layer(x[: int(x.sum()) - 46]),
    "a mask": lambda self, x: self.layer(x[x[:, 0] > 0]),
    "positions": lambda self, x: self.layer(x[torch.nonzero(x[:, 0]).squeeze(-1)]),
    "a selection": lambda self, x: self.layer(torch.masked_select(x, x > 0).view(-1, 16)),
    "different ones": lambda self, x: self.layer(torch.unique(x, dim=0).expand(2, 16)),
    "repeats": lambda self, x: self.layer(x.repeat_interleave(x[:, 0].long(), dim=0)),
    "a branch": lambda self, x: self.layer(x) if x.sum() > 0 else x,
    "a loop": lambda self, x: self.layer(x) if max(x.tolist()[0]) > 0 else x,
    "in another place": lambda self, x: self.layer(x) if self.buffer.copy_(x).sum() > 0 else x,
}


@pytest.mark.parametrize("name", DECIDED)
def test_counts_that_values_decide_say_so(name):
    module = Calls(DECIDED[name], layer=nn.Linear(16, 8))
    module.register_buffer("buffer", torch.zeros(3, 16))
    report = count_forward(module, (torch.ones(3, 16),))
    assert report.counted_on == "cpu"
    assert report.macs > 0
    assert ANOTHER in report.note


NOT_DECIDED = {
    "a parameter": lambda self, x: self.layer(x) * (2 if self.layer.weight.sum() > 1e9 else 1),
    "a constant": lambda self, x: self.layer(x) * int(torch.tensor(3)),
    "its own shape": lambda self, x: self.layer(x[: x.shape[0] - 1]),
}


@pytest.mark.parametrize("name", NOT_DECIDED)
def test_counts_that_no_input_decides_do_not(name):
    report = count_forward(Calls(NOT_DECIDED[name], layer=nn.Linear(16, 8)), (torch.ones(3, 16),))
    assert ANOTHER not in (report.note or "")


def test_fake_tensors_meet_real_weights():
    layer = nn.Linear(16, 8)
    with FakeTensorMode(allow_non_fake_inputs=True):
        report = count_forward(layer, (torch.ones(3, 16),))
    assert (report.macs, report.uncounted_operators) == (3 * 16 * 8, {})


def test_a_forward_that_makes_fake_tensors():
    def forward(self, x):
        with FakeTensorMode(allow_non_fake_inputs=True):
            return self.layer(torch.ones(3, 16)).shape

    assert count_forward(Calls(forward, layer=nn.Linear(16, 8)), (torch.ones(1),)).macs == 3 * 16 * 8


def test_a_note_about_sparse_tensors_is_short():
    module = Calls(lambda self, x: self.layer(torch.sparse.mm(self.matrix, x)), layer=nn.Linear(16, 8))
    module.register_buffer("matrix", torch.eye(16).to_sparse())
    report = count_forward(module, (torch.ones(16, 16),))
    assert report.macs == 16 * 16 * 8
    assert report.uncounted_operators == {"aten::_sparse_addmm": 1}
    assert len(report.note) < 260
    assert "backends" not in report.note


def test_bags_of_embeddings_cost_the_rows_that_are_taken():
    bags = torch.zeros(3, 4, dtype=torch.int64)
    assert count_forward(nn.EmbeddingBag(1000, 16), (bags,)).elementwise_flops == 3 * 4 * 16
    step = count_training_step(
        lambda m, x: m(x).sum().backward(), nn.EmbeddingBag(1000, 16, mode="sum"), (bags,)
    )
    # Taken, and given back; the sum of 3 x 16.
    assert step.elementwise_flops >= 2 * 3 * 4 * 16
    assert step.elementwise_flops < 1000


def test_adding_to_places_costs_what_is_added():
    table, rows = torch.zeros(1000, 16), torch.ones(4, 16)
    where = torch.zeros(4, dtype=torch.int64)
    for name, call in {
        "index_add": lambda self, t, r, i: t.index_add(0, i, r),
        "index_put": lambda self, t, r, i: t.index_put((i,), r, accumulate=True),
        "scatter_add": lambda self, t, r, i: t.scatter_add(0, i[:, None].expand(4, 16), r),
    }.items():
        assert count_forward(Calls(call), (table, rows, where)).elementwise_flops == 4 * 16, name


@torch.jit.script
def branch(x, w):
    return x @ w


class Forks(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(16, 8))

    def forward(self, x):
        future = torch.jit.fork(branch, x, self.weight)
        return branch(x, self.weight) + torch.jit.wait(future)


@pytest.mark.parametrize("make", [lambda m: m, torch.jit.script], ids=["plain", "script"])
def test_forks_of_scripts_count(make):
    assert count_forward(make(Forks()), (torch.ones(3, 16),)).macs == 2 * 3 * 16 * 8


@pytest.mark.skipif(not hasattr(F, "linear_cross_entropy"), reason="newer than the oldest torch")
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_a_linear_layer_with_cross_entropy_in_chunks(reduction):
    options = nn.LinearCrossEntropyOptions(batch_chunk_size=2)

    def forward(self, x, target):
        return F.linear_cross_entropy(x, self.head.weight, target, reduction=reduction, options=options).sum()

    module = Calls(forward, head=nn.Linear(16, 10, bias=False))
    inputs = (torch.ones(6, 16), torch.zeros(6, dtype=torch.int64))
    report = count_forward(module, inputs)
    # 6 samples of 16 numbers by 10 classes.
    assert (report.macs, report.uncounted_operators) == (6 * 16 * 10, {})
    # The weights' gradient; the input needs none. With a mean it is made in the forward, without it in the backward,
    # chunk by chunk, for which the logits are computed again, and a loss: two sums over the samples of a product each.
    step = count_training_step(lambda m, *inputs: m(*inputs).backward(), module, inputs)
    assert (step.macs, step.uncounted_operators) == (2 * 6 * 16 * 10, {})
    assert step.recomputed_macs == (6 * 16 * 10 + 2 * 6 if reduction == "none" else 0)
    x = inputs[0].clone().requires_grad_()
    both = count_training_step(lambda m, *inputs: m(*inputs).backward(), module, (x, inputs[1]))
    assert both.macs == 3 * 6 * 16 * 10
    assert both.recomputed_macs == (6 * 16 * 10 + 2 * 6 if reduction == "none" else 0)
