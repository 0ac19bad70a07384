"""count_forward at large: the copy on meta, the fall-back, the record."""

import json
import warnings
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from swinmr_profiling.profiler.counting import count_forward
from swinmr_profiling.profiler.counting.meta_copy import copy_to

X = torch.zeros(5, 8)


def test_the_record_is_json():
    report = count_forward(nn.Sequential(nn.Linear(8, 4), nn.ReLU()), (X,))
    written = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert written["macs"] == 160
    assert written["flops"] == 320
    assert written["by_kind"] == {"convolution": 0, "linear": 160, "attention": 0, "recurrent": 0, "other": 0}
    assert written["by_operator"] == {"aten::addmm": 160}
    assert written["by_module"]["children"][0]["class"] == "Linear"
    assert written["input_shapes"] == [[5, 8]]
    assert (written["parameters"], written["trainable_parameters"]) == (36, 36)
    assert (written["counted_on"], written["note"]) == ("meta", None)
    assert written["elementwise_flops"] == 20


def test_frozen_parameters_are_no_trainable_ones():
    module = nn.Sequential(nn.Linear(8, 4).requires_grad_(False), nn.Linear(4, 2))
    report = count_forward(module, (X,))
    assert (report.parameters, report.trainable_parameters) == (46, 10)


def test_keyword_arguments_and_containers():
    @dataclass
    class Batch:
        image: torch.Tensor
        extras: dict

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 4)

        def forward(self, batch, *, scale):
            return self.layer(batch.image * scale) + batch.extras["shift"][0]

    batch = Batch(X, {"shift": [torch.zeros(4)]})
    report = count_forward(Network(), (batch,), {"scale": torch.ones(())})
    assert (report.macs, report.counted_on) == (160, "meta")
    assert not batch.image.is_meta


def test_a_model_that_reads_values_runs_for_real_and_says_so():
    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x):
            return self.layer(self.layer(x)) if x.sum() > 0 else self.layer(x)

    report = count_forward(Branches(), (torch.ones(5, 8),))
    assert report.macs == 2 * 5 * 8 * 8
    assert report.counted_on == "cpu"
    assert report.note.startswith("counted in a real run on cpu: the model does not run on the meta device (")


def test_a_wrong_input_raises_what_the_model_raises():
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        count_forward(nn.Linear(8, 4), (torch.zeros(5, 7),))


def test_a_model_already_on_meta_has_no_real_run_to_fall_back_on():
    class Branches(nn.Linear):
        def forward(self, x):
            return super().forward(x) if x.sum() > 0 else x

    with pytest.raises(RuntimeError, match="meta"):
        count_forward(Branches(8, 4, device="meta"), (X,))


def test_constants_made_on_the_cpu_in_the_forward():
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x):
            return self.layer(x + torch.arange(8.0)) * torch.tensor([2.0])

    report = count_forward(Mixed(), (X,))
    assert (report.macs, report.counted_on) == (5 * 8 * 8, "meta")


def test_a_cpu_tensor_filled_from_meta_is_not_trusted():
    # The branch reads a CPU tensor that the forward has filled: on meta it would be read unfilled.
    class Fills(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x):
            flags = torch.zeros(5)
            flags[:] = x[:, 0]
            return self.layer(self.layer(x)) if flags.sum() > 0 else self.layer(x)

    report = count_forward(Fills(), (torch.ones(5, 8),))
    assert (report.macs, report.counted_on) == (2 * 5 * 8 * 8, "cpu")


def test_the_copy_keeps_what_is_shared_shared():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(10, 8)
            self.head = nn.Linear(8, 10, bias=False)
            self.head.weight = self.embedding.weight
            self.plain = torch.ones(3)
            self.nested = {"list": [self.plain, nn.Parameter(torch.ones(2))]}
            self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    module = Tied()
    copied, (given,) = copy_to(module, (module.embedding.weight,))
    assert copied.head.weight is copied.embedding.weight is given
    assert copied.nested["list"][0] is copied.plain
    assert isinstance(copied.nested["list"][1], nn.Parameter)
    tensors = [copied.plain, copied.nested["list"][1], copied.steps, *copied.parameters()]
    assert all(t.is_meta for t in tensors)
    assert copied.steps.dtype == torch.long
    assert not any(t.is_meta for t in (module.plain, module.steps, *module.parameters()))
    assert sum(p.numel() for p in copied.parameters()) == 80


def test_a_leftover_of_old_weight_norm_is_no_obstacle():
    # It leaves a weight made by autograd on the module, which deepcopy refuses.
    with pytest.warns(FutureWarning, match="weight_norm"):
        module = nn.utils.weight_norm(nn.Linear(8, 4))
    module(X)
    report = count_forward(module, (X,))
    assert (report.macs, report.counted_on) == (160, "meta")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("No data. " + "x" * 200, "No data"),
        ("x" * 200 + ". More", "x" * 157 + "..."),
        ("No data. Take some.", "No data. Take some."),
    ],
)
def test_a_note_quotes_as_much_of_an_error_as_a_line_takes(said, told):
    class Refuses(nn.Linear):
        def forward(self, x):
            if x.is_meta:
                raise RuntimeError(said)
            return super().forward(x)

    assert f"(RuntimeError: {told})" in count_forward(Refuses(8, 10), (X,)).note


def test_a_copy_of_lazy_parameters_makes_its_data_without_data():
    layer = nn.LazyLinear(4)
    copied, _ = copy_to(layer, ())
    assert copied(torch.empty(2, 8, device="meta")).is_meta
    assert (copied.weight.shape, copied.weight.is_meta) == ((4, 8), True)
    assert nn.parameter.is_lazy(layer.weight)


def test_a_lazy_model_keeps_being_lazy():
    module = nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d())
    report = count_forward(module, (torch.zeros(1, 2, 8, 8),))
    assert report.macs == 36 * 4 * 2 * 9
    assert report.parameters == 4 * 2 * 9 + 4 + 8
    assert nn.parameter.is_lazy(module[0].weight)


def test_scripted_models_are_counted():
    with warnings.catch_warnings():
        # Recent versions of torch announce its end.
        warnings.simplefilter("ignore")
        scripted = torch.jit.script(nn.Sequential(nn.Linear(8, 4), nn.ReLU()))
    assert count_forward(scripted, (X,)).macs == 160


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_precision_does_not_matter(dtype):
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.SiLU()).to(dtype)
    report = count_forward(module, (torch.zeros(1, 3, 8, 8, dtype=dtype),))
    assert (report.macs, report.counted_on) == (36 * 4 * 3 * 9, "meta")


@pytest.mark.slow
def test_functions_compiled_inside_the_model_run_eagerly():
    compiled = torch.compile(lambda x, w: F.gelu(F.linear(x, w)))

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(4, 8))

        def forward(self, x):
            return compiled(x, self.weight)

    report = count_forward(Network(), (X,))
    assert (report.macs, report.counted_on) == (160, "meta")


@pytest.mark.parametrize(("rows", "macs"), [(25, 0), (26, 26 * 3 * 4)])
def test_distances_are_products_from_26_rows_on(rows, macs):
    """torch's own rule: up to 25 rows on either side it takes differences."""

    class Distances(nn.Module):
        def forward(self, x, y):
            return torch.cdist(x, y)

    assert count_forward(Distances(), (torch.randn(rows, 4), torch.randn(3, 4))).macs == macs
    assert count_forward(Distances(), (torch.randn(3, 4), torch.randn(rows, 4))).macs == macs


def test_a_network_that_asks_for_the_autocast_of_its_inputs_device_is_counted_without_data():
    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.rotation, self.last = nn.Linear(8, 8), nn.Linear(8, 4)

        def forward(self, x):
            with torch.autocast(device_type=x.device.type, enabled=False):
                rotated = self.rotation(x.float())
            with torch.autocast(x.device.type, dtype=torch.bfloat16):
                return self.last(rotated)

    report = count_forward(Network(), (torch.randn(3, 8),))
    assert (report.macs, report.counted_on, report.note) == (3 * 8 * 8 + 3 * 8 * 4, "meta", None)


def test_second_derivatives_are_counted_and_their_parts_known():
    """On tensors without data, PyTorch writes them with operators of `prims`, beside the products of a real run."""

    class Curvature(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.randn(8, 8))

        def forward(self, x):
            return torch.func.hessian(lambda y: torch.tanh(y @ self.w).square().sum())(x)

    module, x = Curvature(), torch.randn(8)
    report = count_forward(module, (x,))
    with torch.no_grad(), FlopCounterMode(display=False) as mode:
        module(x)
    assert report.uncounted_operators == {}
    assert report.counted_on == "meta"
    assert report.macs == mode.get_total_flops() // 2 > 0


@pytest.mark.parametrize(
    ("a_shape", "b_shape", "ends", "macs"),
    [
        ((24, 16), (3, 16, 8), [8, 8, 24], 24 * 16 * 8),  # every row meets one weight
        ((3, 8, 16), (3, 16, 32), None, 3 * 8 * 16 * 32),  # a batch
        ((8, 48), (48, 32), [16, 16, 48], 8 * 48 * 32),  # one product in three pieces
        ((3, 8, 16), (16, 32), [8, 16, 32], 8 * 16 * 32),  # every column meets one of three
    ],
)
def test_grouped_products_by_what_is_cut(a_shape, b_shape, ends, macs):
    class Grouped(torch.nn.Module):
        def forward(self, a, b):
            offsets = None if ends is None else torch.tensor(ends, dtype=torch.int32, device=a.device)
            return torch._grouped_mm(a, b, offs=offsets)

    inputs = tuple(torch.randn(shape, dtype=torch.bfloat16) for shape in (a_shape, b_shape))
    assert count_forward(Grouped(), inputs).macs == macs
