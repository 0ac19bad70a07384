"""Attribution to module paths: everything once, under the path that ran it."""

import torch
import torch.nn.functional as F
from torch import nn

from swinmr_profiling.profiler.counting import count_forward
from swinmr_profiling.scripts.counter_cases.case_modules import Recursive

X = torch.zeros(5, 8)
ONE = 5 * 8 * 8  # MACs of one Linear(8, 8) on X


def macs_by_path(report) -> dict[str, int]:
    def walk(node):
        yield node["path"], node["macs"]
        for child in node["children"]:
            yield from walk(child)

    return dict(walk(report.by_module))


def check_sums(node: dict) -> None:
    assert node["macs"] == sum(node["own"].values()) + sum(child["macs"] for child in node["children"])
    for child in node["children"]:
        check_sums(child)


def test_names_classes_and_parameters():
    report = count_forward(nn.Sequential(nn.Linear(8, 4), nn.Sequential(nn.ReLU(), nn.Linear(4, 2))), (X,))
    check_sums(report.by_module)
    first, inner = report.by_module["children"]
    assert first == {
        "name": "0",
        "path": "0",
        "class": "Linear",
        "macs": 5 * 8 * 4,
        "macs_complex_as_one": 5 * 8 * 4,
        "own": {"linear": 5 * 8 * 4},
        "parameters": 8 * 4 + 4,
        "children": [],
    }
    assert [child["path"] for child in inner["children"]] == ["1.0", "1.1"]
    assert inner["parameters"] == 4 * 2 + 2
    assert report.by_module["parameters"] == report.parameters == 36 + 10


def test_own_work_beside_the_childrens():
    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 8)
            self.weight = nn.Parameter(torch.zeros(8, 8))

        def forward(self, x):
            return self.layer(x) + F.linear(x, self.weight)

    report = count_forward(Residual(), (X,))
    assert report.by_module["own"] == {"linear": ONE}
    assert macs_by_path(report) == {"": 2 * ONE, "layer": ONE}


def test_a_module_shared_by_two_parents_is_found_under_each():
    class Parent(nn.Module):
        def __init__(self, layer):
            super().__init__()
            self.layer = layer

        def forward(self, x):
            return self.layer(x)

    shared = nn.Linear(8, 8)
    report = count_forward(nn.Sequential(Parent(shared), Parent(shared), Parent(shared)), (X,))
    paths = macs_by_path(report)
    assert paths[""] == 3 * ONE
    assert [paths[f"{i}.layer"] for i in range(3)] == [ONE] * 3
    # A shared parameter once in the whole, and beside each of the modules that hold it.
    assert report.by_module["parameters"] == 72
    assert [child["parameters"] for child in report.by_module["children"]] == [72] * 3


def test_a_module_registered_twice_in_one_parent_counts_both_calls():
    layer = nn.Linear(8, 8)
    report = count_forward(nn.Sequential(layer, layer), (X,))
    assert report.macs == 2 * ONE
    check_sums(report.by_module)


def test_recursion_is_counted_once_per_call():
    report = count_forward(Recursive(nn.Linear(8, 8), 3), (X,))
    assert macs_by_path(report) == {"": 3 * ONE, "layer": 3 * ONE}


def test_a_module_registered_inside_itself_makes_no_endless_tree():
    module = nn.Linear(8, 8)
    module.me = module
    assert macs_by_path(count_forward(module, (X,))) == {"": ONE}


def test_a_module_called_past_its_parents_forward():
    class Autoencoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = nn.Sequential(nn.Linear(8, 8))
            self.decoder = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))

        def forward(self, x):
            return self.decoder[1](x)

    paths = macs_by_path(count_forward(Autoencoder(), (X,)))
    assert paths == {"": ONE, "encoder": 0, "encoder.0": 0, "decoder": ONE, "decoder.0": 0, "decoder.1": ONE}


def test_modules_outside_the_tree_belong_to_the_caller():
    class Hides(nn.Module):
        def __init__(self):
            super().__init__()
            self.hidden = [nn.Linear(8, 8)]

        def forward(self, x):
            return self.hidden[0](x)

    report = count_forward(nn.Sequential(Hides()), (X,))
    assert macs_by_path(report) == {"": ONE, "0": ONE}
    assert report.counted_on == "meta"


def test_an_exception_that_the_model_catches_does_not_shift_the_rest():
    class Fails(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x):
            self.layer(x)
            raise LookupError

    class Catches(nn.Module):
        def __init__(self):
            super().__init__()
            self.fails = Fails()
            self.after = nn.Linear(8, 8)
            self.weight = nn.Parameter(torch.zeros(8, 8))

        def forward(self, x):
            try:
                self.fails(x)
            except LookupError:
                x = x @ self.weight
            return self.after(x)

    report = count_forward(Catches(), (X,))
    assert macs_by_path(report) == {"": 3 * ONE, "fails": ONE, "fails.layer": ONE, "after": ONE}
    assert report.by_module["own"] == {"linear": ONE}


def test_compiled_and_parallel_wrappers_leave_no_name():
    model = nn.Sequential(nn.Linear(8, 8))
    plain = count_forward(model, (X,))
    assert count_forward(torch.compile(model), (X,)) == plain
    assert count_forward(nn.DataParallel(model), (X,)) == plain
    model.compile()
    assert count_forward(model, (X,)) == plain


def test_kinds_of_batched_products():
    class Kinds(nn.Module):
        def __init__(self):
            super().__init__()
            self.experts = nn.Parameter(torch.zeros(2, 8, 4))
            self.norm = nn.LayerNorm(8)

        def forward(self, x):
            x = self.norm(x)
            scores = x @ x.transpose(1, 2)
            return scores @ torch.bmm(x, self.experts)

    # Scores and their product with values are computed by computed; the experts' is a weight.
    report = count_forward(Kinds(), (torch.zeros(2, 5, 8),))
    assert report.by_kind["attention"] == 2 * 5 * 5 * 8 + 2 * 5 * 5 * 4
    assert report.by_kind["linear"] == 2 * 5 * 8 * 4
