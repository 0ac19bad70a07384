"""Operators nobody knows are listed, never silently nothing; users can teach the counter their own."""

import pytest
import torch
from torch import nn

from profiler.counting import count_forward, register_formula
from profiler.counting.free_operators import FREE
from profiler.counting.operator_table import COUNTED


@torch.library.custom_op("counting_tests::project", mutates_args=())
def project(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(x.detach().numpy() @ weight.detach().numpy().T)


@project.register_fake
def _(x, weight):
    return x.new_empty(x.shape[0], weight.shape[0])


@torch.library.custom_op("counting_tests::integers", mutates_args=())
def integers(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


@integers.register_fake
def _(x):
    return torch.empty_like(x)


class Projects(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(4, 8))
        self.layer = nn.Linear(8, 8)

    def forward(self, x):
        x = self.layer(x)
        return project(x, self.weight) + project(x, self.weight)


@pytest.fixture
def restored_table():
    before = dict(COUNTED)
    yield
    COUNTED.clear()
    COUNTED.update(before)


def test_an_unknown_operator_is_listed_with_its_calls():
    report = count_forward(Projects(), (torch.zeros(5, 8),))
    assert report.uncounted_operators == {"counting_tests::project": 2}
    assert report.macs == 5 * 8 * 8
    assert report.to_json()["uncounted_operators"] == {"counting_tests::project": 2}


def test_integers_alone_multiply_nothing_of_interest():
    class Shuffles(nn.Module):
        def forward(self, x):
            return integers(x)

    assert count_forward(Shuffles(), (torch.zeros(3, dtype=torch.long),)).uncounted_operators == {}


@pytest.mark.usefixtures("restored_table")
def test_a_registered_formula_counts():
    register_formula("counting_tests::project", lambda out, x, w: x.numel() * w.shape[0], kind="linear")
    report = count_forward(Projects(), (torch.zeros(5, 8),))
    assert report.uncounted_operators == {}
    assert report.macs == 5 * 8 * 8 + 2 * 5 * 8 * 4
    assert report.by_operator["counting_tests::project"] == 2 * 5 * 8 * 4
    assert report.by_kind["linear"] == report.macs


@pytest.mark.usefixtures("restored_table")
def test_a_formula_that_fails_is_remarked_and_its_operator_listed():
    register_formula("counting_tests::project", lambda out, x: x.numel())
    report = count_forward(Projects(), (torch.zeros(5, 8),))
    assert report.uncounted_operators == {"counting_tests::project": 2}
    assert "the formula of counting_tests::project failed (TypeError" in report.note


@pytest.mark.parametrize(
    "name", ["project", "counting_tests::", "::project", "counting_tests::project.default"]
)
def test_a_name_without_namespace_or_with_overload_is_refused(name):
    with pytest.raises(ValueError, match="namespace::name"):
        register_formula(name, lambda out: 0)


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="expected one of convolution, linear"):
        register_formula("counting_tests::project", lambda out: 0, kind="conv")


def test_linear_algebra_is_not_passed_off_as_free():
    class Solves(nn.Module):
        def forward(self, a, b):
            return torch.linalg.solve(a, b)

    report = count_forward(Solves(), (torch.eye(4), torch.ones(4)))
    assert report.uncounted_operators == {"aten::_linalg_solve_ex": 1}


def test_a_sparse_product_is_listed_and_not_counted_as_dense():
    class Sparse(nn.Module):
        def forward(self, x):
            return torch.sparse.mm(torch.eye(8).to_sparse(), x)

    report = count_forward(Sparse(), (torch.ones(8, 4),))
    assert report.macs == 0
    assert report.uncounted_operators != {}


def test_the_three_sets_do_not_overlap():
    assert not COUNTED.keys() & FREE.keys()


def test_names_are_whole_dispatcher_names():
    # Exact names only: a stray overload or a name without namespace would never match.
    assert all(name.count("::") == 1 and "." not in name for name in (*COUNTED, *FREE))


def test_every_counted_operator_of_aten_exists():
    # A misspelt name would leave its operator unknown. Those that some builds lack are named here.
    not_everywhere = {
        "aten::_foreach_mm",
        "aten::_scaled_mm_v2",
        "aten::_scaled_grouped_mm_v2",
        "aten::_scaled_grouped_mm",
        "aten::_grouped_mm",
        "aten::_cudnn_attention_forward",
        "aten::_cudnn_attention_backward",
        "aten::_weight_int4pack_mm_with_scales_and_zeros",
        "aten::_dyn_quant_matmul_4bit",
    }
    known = {name.split(".")[0] for name in torch._C._dispatch_get_all_op_names()}
    wanted = {name for name in COUNTED if name.startswith("aten::")} - not_everywhere
    assert wanted <= known
