"""Scripts: counted, or refused in one line where their operators pass the dispatcher by."""

import pytest
import torch
from torch import nn

from swinmr_profiling.profiler.counting import count_forward

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

X = torch.zeros(1, 3, 16, 16)
MACS = 14 * 14 * 8 * 3 * 9 + 8 * 14 * 14 * 4


def network() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 14 * 14, 4)).eval()


def optimized() -> nn.Module:
    return torch.jit.optimize_for_inference(torch.jit.script(network()))


class InAList(nn.Module):
    """A script that is not a submodule."""

    def __init__(self):
        super().__init__()
        self.scripts = [optimized()]

    def forward(self, x):
        return self.scripts[0](x)


@pytest.mark.skipif(
    not torch.backends.mkldnn.is_available(), reason="this torch has no mkldnn to optimize for"
)
@pytest.mark.parametrize(
    ("make", "name"),
    [
        (optimized, "the network (Sequential)"),
        (lambda: nn.Sequential(nn.Identity(), optimized()), "module 1 (Sequential)"),
        (InAList, "(Sequential)"),
        (
            lambda: torch.jit.optimize_for_inference(torch.jit.freeze(torch.jit.trace(network(), X))),
            "the network (Sequential)",
        ),
    ],
    ids=["itself", "as a submodule", "in a list", "traced and frozen before"],
)
def test_a_script_optimized_for_inference_is_refused_by_name(make, name):
    with pytest.raises(ValueError, match=r"optimize_for_inference") as refusal:
        count_forward(make(), (X,))
    assert name in str(refusal.value)
    assert "prim::mkldnn_convolution" in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("make", [torch.jit.script, lambda module: torch.jit.trace(module, X)])
def test_scripts_are_counted_and_frozen_ones_say_where_their_weights_are(make):
    report = count_forward(make(network()), (X,))
    assert (report.macs, report.parameters, report.note) == (MACS, 6500, None)
    frozen = count_forward(torch.jit.freeze(make(network())), (X,))
    assert (frozen.macs, frozen.parameters, frozen.uncounted_operators) == (MACS, 0, {})
    assert frozen.note == "6,500 numbers are constants of frozen scripts and not among the parameters"
    inside = count_forward(nn.Sequential(torch.jit.freeze(make(network())), nn.Linear(4, 4)), (X,))
    assert (inside.macs, inside.parameters) == (MACS + 16, 20)
    assert "6,500 numbers" in inside.note
