"""Operators nobody knows are listed, never silently nothing; users can teach the counter their own."""

import pytest
import torch
from torch import nn

from swinmr_profiling.profiler.counting import count_forward, register_formula
from swinmr_profiling.profiler.counting.operators.free_operators import FREE
from swinmr_profiling.profiler.counting.operators.operator_table import COUNTED


@torch.library.custom_op("counting_tests::project", mutates_args=())
def project(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(x.detach().numpy() @ weight.detach().numpy().T)


@project.register_fake
def _(x, weight):
    return x.new_empty(x.shape[0], weight.shape[0])


@torch.library.custom_op("counting_tests::integer_product", mutates_args=())
def integer_product(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x.int() @ weight.int().T


@integer_product.register_fake
def _(x, weight):
    return x.new_empty(x.shape[0], weight.shape[0], dtype=torch.int32)


@torch.library.custom_op("counting_tests::no_tensor", mutates_args=())
def no_tensor(rows: int) -> torch.Tensor:
    return torch.ones(rows, rows) @ torch.ones(rows, rows)


@no_tensor.register_fake
def _(rows):
    return torch.empty(rows, rows)


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


class Calls(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def filled(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.ones(*shape).to(dtype)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int64, torch.bool], ids=str)
def test_an_unknown_operator_is_listed_whatever_its_numbers(dtype):
    report = count_forward(Calls(integer_product), (filled(5, 8, dtype=dtype), filled(4, 8, dtype=dtype)))
    assert (report.macs, report.uncounted_operators) == (0, {"counting_tests::integer_product": 1})


def test_an_unknown_operator_without_a_tensor_is_listed():
    report = count_forward(Calls(lambda x: x + no_tensor(4)), (torch.ones(4, 4),))
    assert report.uncounted_operators == {"counting_tests::no_tensor": 1}


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.int64], ids=str)
def test_products_and_convolutions_of_integers_count(dtype):
    a, b = filled(2, 3, 4, dtype=dtype), filled(2, 4, 5, dtype=dtype)
    assert count_forward(Calls(torch.matmul), (a, b)).macs == 2 * 3 * 4 * 5
    assert count_forward(Calls(torch.mm), (a[0], b[0])).macs == 3 * 4 * 5
    assert count_forward(Calls(torch.mv), (a[0], b[0, :, 0])).macs == 3 * 4
    image, kernel = filled(1, 2, 8, 8, dtype=dtype), filled(4, 2, 3, 3, dtype=dtype)
    assert count_forward(Calls(nn.functional.conv2d), (image, kernel)).macs == 6 * 6 * 4 * 2 * 9


def test_what_networks_do_with_integers_is_known_to_be_free():
    """Token numbers, positions, masks, lengths, sorting, random choices, hashing: by name, not by their numbers."""

    def handles_tokens(tokens):
        positions = torch.arange(tokens.shape[1]).expand_as(tokens)
        mask = (tokens != 0) & (positions <= positions[:, :1] + 5) | ~(tokens > 3)
        lengths = mask.sum(1).clamp(min=1).cumsum(0)
        order = tokens.argsort(1).gather(1, positions).sort(1, descending=True).indices
        choice = torch.randint(0, 5, (2, 3)).repeat(1, 2).flip(1).roll(1, 1)
        counts = torch.bincount(tokens.flatten() % 7, minlength=7).to(torch.int32)
        packed = (tokens << 2) ^ (tokens >> 1) | tokens.bitwise_and(3) * 2 - tokens // 3
        unique, inverse = torch.unique(packed, return_inverse=True)
        rows = torch.nonzero(mask).flip(0).tril().max(0).values.tolist()
        shifted = torch.cat([tokens[:, 1:], tokens.new_zeros(2, 1)], 1).index_fill(1, choice[0, :1] % 6, 1)
        one_hot = nn.functional.one_hot(shifted % 4, 4).scatter_add(
            1, order[..., None] % 6, shifted[..., None]
        )
        found = torch.isin(torch.searchsorted(unique, packed), inverse) | tokens.any(1, keepdim=True)
        return (
            lengths,
            counts,
            rows,
            one_hot,
            found,
            torch.where(mask, tokens, 0).topk(2).values.equal(tokens),
        )

    tokens = torch.tensor([[3, 1, 4, 1, 5, 9], [2, 6, 5, 3, 5, 8]])
    report = count_forward(Calls(handles_tokens), (tokens,))
    assert (report.macs, report.uncounted_operators) == (0, {})


def test_sparse_layouts_of_integers_are_free():
    def compressed(x):
        return x.to_sparse_csr().to_sparse().to_dense()

    assert count_forward(Calls(compressed), (torch.eye(4, dtype=torch.int64),)).uncounted_operators == {}


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
