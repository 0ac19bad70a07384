"""Forward and backward: three times the forward, less at first layers and frozen parts, recomputation apart."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.models.registry import build_model
from swinmr_profiling.profiler.counting import count_forward, count_training_step, forward_backward
from swinmr_profiling.profiler.counting.formulas.attention import attention_backward


def differentiable(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, requires_grad=True)


def count_both(module: nn.Module, inputs: tuple):
    return count_forward(module, inputs), count_training_step(forward_backward, module, inputs)


class Attention(nn.Module):
    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v)


class ReadsValues(nn.Module):
    """Makes a module run on real tensors: meta has no values to read."""

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module = module

    def forward(self, *inputs):
        assert inputs[0].sum().item() == inputs[0].sum().item()
        return self.module(*inputs)


CONVOLUTIONS = {
    "plain": lambda: nn.Conv2d(8, 16, 3, padding=1),
    "strided": lambda: nn.Conv2d(8, 16, 3, 2, 1),
    "grouped": lambda: nn.Conv2d(8, 16, 3, groups=2),
    "depthwise": lambda: nn.Conv2d(8, 8, 3, groups=8),
    "depthwise multiplier": lambda: nn.Conv2d(8, 16, 3, groups=8),
    "transposed": lambda: nn.ConvTranspose2d(8, 16, 3, 2),
    "transposed grouped": lambda: nn.ConvTranspose2d(8, 16, 3, groups=4),
}


@pytest.mark.parametrize("real", [False, True], ids=["meta", "cpu"])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_cost_three_times_the_forward(name, real):
    module = CONVOLUTIONS[name]()
    module = ReadsValues(module) if real else module
    forward, training = count_both(module, (differentiable(2, 8, 9, 9),))
    assert training.counted_on == ("cpu" if real else "meta")
    assert training.training_macs == training.macs == 3 * forward.macs
    assert training.recomputed_macs == 0
    assert training.by_kind["convolution"] == training.macs


@pytest.mark.parametrize("real", [False, True], ids=["meta", "cpu"])
@pytest.mark.parametrize("bias", [False, True])
def test_linear_costs_three_times_the_forward(bias, real):
    module = nn.Linear(16, 8, bias=bias)
    module = ReadsValues(module) if real else module
    forward, training = count_both(module, (differentiable(2, 5, 16),))
    assert training.macs == 3 * forward.macs == 3 * 2 * 5 * 16 * 8


def test_attention_costs_three_times_the_forward():
    inputs = (differentiable(2, 4, 10, 16), differentiable(2, 4, 7, 16), differentiable(2, 4, 7, 16))
    forward, training = count_both(Attention(), inputs)
    assert training.macs == 3 * forward.macs == 3 * 17_920
    assert training.recomputed_macs == 0


def test_queries_and_values_may_be_of_different_widths():
    """Scores 4 x 6, widths 8 (queries, keys) and 3 (values): forward 24 (8 + 3), backward 24 (2 x 8 + 2 x 3)."""
    inputs = (differentiable(1, 1, 4, 8), differentiable(1, 1, 6, 8), differentiable(1, 1, 6, 3))
    forward, training = count_both(Attention(), inputs)
    assert forward.macs == 264
    assert training.macs == 264 + 528


@pytest.mark.parametrize(
    ("wanted", "macs"),
    # dV = P'dO costs 24 x 3 alone; dQ and dK need dP = dO V' (24 x 3) and one product of 24 x 8 each.
    [
        ((True, True, True), 528),
        ((False, False, True), 72),
        ((True, False, False), 264),
        ((False, True, True), 336),
    ],
)
def test_the_fused_backward_makes_the_products_that_are_wanted(wanted, macs):
    q, k, v = (torch.empty(shape, device="meta") for shape in ((1, 1, 4, 8), (1, 1, 6, 8), (1, 1, 6, 3)))
    work = attention_backward((q, k, v), v, q, k, v, grad_input_mask=wanted)
    assert work == {"attention": macs, "recomputed": 24 * 8}


def test_a_fused_attention_backward_computes_the_scores_again():
    # Four products are the model's; the fifth, Q K' of 2 x 4 x 10 x 7 x 16, is recomputation.
    inputs = (differentiable(2, 4, 10, 16), differentiable(2, 4, 7, 16), differentiable(2, 4, 7, 16))
    training = count_training_step(forward_backward, ReadsValues(Attention()), inputs)
    assert training.counted_on == "cpu"
    assert "aten::_scaled_dot_product_flash_attention_for_cpu_backward" in training.by_operator
    assert training.macs == 3 * 17_920
    assert training.recomputed_macs == 2 * 4 * 10 * 7 * 16


@pytest.mark.parametrize(
    "module", [lambda: nn.MultiheadAttention(16, 2), lambda: nn.MultiheadAttention(16, 2, batch_first=True)]
)
def test_multihead_attention_costs_three_times_the_forward(module):
    x = differentiable(2, 9, 16)
    forward, training = count_both(module(), (x, x, x))
    assert training.macs == 3 * forward.macs


def test_the_first_layer_needs_no_input_gradient():
    # First layer: forward and weight gradient; second: forward and both.
    network = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 5, 3, padding=1))
    _, training = count_both(network, (torch.randn(1, 3, 8, 8),))
    first, second = 64 * 4 * 3 * 9, 64 * 5 * 4 * 9
    assert training.macs == 2 * first + 3 * second
    assert [child["macs"] for child in training.by_module["children"]] == [2 * first, 0, 3 * second]


def test_a_frozen_layer_passes_the_gradient_on():
    # The frozen layer: forward and input gradient. Before it everything is needed.
    network = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8))
    network[1].requires_grad_(False)
    _, training = count_both(network, (torch.randn(5, 8),))
    one = 5 * 8 * 8
    assert training.macs == 2 * one + 2 * one + 3 * one


def test_a_frozen_backbone_costs_its_forward():
    network = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8))
    network[0].requires_grad_(False)
    network[1].requires_grad_(False)
    _, training = count_both(network, (torch.randn(5, 8),))
    one = 5 * 8 * 8
    assert training.macs == one + one + 2 * one


def test_everything_frozen_is_a_clear_error():
    module = nn.Linear(8, 8).requires_grad_(False)
    with pytest.raises(ValueError, match="no output needs a gradient"):
        count_training_step(forward_backward, module, (torch.randn(5, 8),))


class Checkpointed(nn.Module):
    """A checkpointed pair of layers, then one outside."""

    def __init__(self, use_reentrant: bool):
        super().__init__()
        self.pair = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
        self.last = nn.Linear(8, 8)
        self.use_reentrant = use_reentrant

    def forward(self, x):
        return self.last(checkpoint(self.pair, x, use_reentrant=self.use_reentrant))


@pytest.mark.parametrize(
    ("use_reentrant", "recomputed_layers"),
    # The non-reentrant form stops when everything saved is there again: the second layer's input is, before it runs.
    [(True, 2), (False, 1)],
)
@pytest.mark.parametrize("real", [False, True], ids=["meta", "cpu"])
def test_a_checkpointed_pair(use_reentrant, recomputed_layers, real):
    module = Checkpointed(use_reentrant)
    plain = count_training_step(
        forward_backward, nn.Sequential(module.pair, module.last), (differentiable(5, 8),)
    )
    module = ReadsValues(module) if real else module
    training = count_training_step(forward_backward, module, (differentiable(5, 8),))
    one = 5 * 8 * 8
    assert training.macs == plain.macs == 9 * one
    assert training.recomputed_macs == recomputed_layers * one
    assert training.by_module["macs"] == training.macs


def test_a_checkpointed_function_without_modules():
    class Functional(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(8, 8))

        def forward(self, x):
            return checkpoint(lambda y: (y @ self.weight).relu() @ self.weight, x, use_reentrant=False)

    training = count_training_step(forward_backward, Functional(), (differentiable(5, 8),))
    assert training.macs == 6 * 5 * 8 * 8
    assert training.recomputed_macs == 5 * 8 * 8


def test_the_phases_of_a_layer():
    """One product forward, two backward: the gradients of the weight and of the input."""
    training = count_training_step(forward_backward, nn.Linear(8, 8), (differentiable(5, 8),))
    one = 5 * 8 * 8
    assert training.macs_by_phase == {"forward": one, "loss": 0, "backward": 2 * one, "optimizer": 0}


def test_a_gradient_penalty_is_no_recomputation():
    def step(module, x):
        (gradient,) = torch.autograd.grad(module(x).tanh().sum(), x, create_graph=True)
        gradient.square().sum().backward()

    training = count_training_step(step, nn.Linear(8, 8), (differentiable(5, 8),), create_graph=True)
    # Forward 1, gradient of the input 1; its backward 2 (gradient and weight); the forward's backward 2.
    assert training.macs == 6 * 5 * 8 * 8
    assert training.recomputed_macs == 0


@pytest.mark.parametrize(("again", "recomputed"), [(False, 0), (True, 2)])
def test_a_gradient_penalty_of_a_module_that_is_recomputed(again, recomputed):
    """Both backwards compute its first product again, outside of any module within it."""

    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(8, 8))

        def forward(self, x):
            return (x @ self.weight).tanh() @ self.weight

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.pair = Pair()

        def forward(self, x):
            return checkpoint(self.pair, x, use_reentrant=False) if again else self.pair(x)

    def step(module, x):
        (gradient,) = torch.autograd.grad(module(x).tanh().sum(), x, create_graph=True)
        gradient.square().sum().backward()

    training = count_training_step(step, Network(), (differentiable(5, 8),), create_graph=True)
    # Forward 2, gradient of the input 2; their backward 4 (both factors), the forward's 4 (input and weight).
    assert training.macs == 12 * 5 * 8 * 8
    assert training.recomputed_macs == recomputed * 5 * 8 * 8


def test_a_step_with_a_loss_network_and_an_optimizer():
    def step(module, loss_network, optimizer, x, target):
        loss = F.mse_loss(loss_network(module(x)), loss_network(target))
        loss.backward()
        optimizer.step()

    module, loss_network = nn.Linear(8, 8), nn.Linear(8, 4).requires_grad_(False)
    optimizer = torch.optim.AdamW(module.parameters())
    x, target = torch.randn(5, 8), torch.randn(5, 8)
    before = module.weight.clone()
    training = count_training_step(step, module, (loss_network, optimizer, x, target))
    # The module: forward and weight gradient. The loss network: two forwards, one input gradient.
    assert training.macs == 2 * 5 * 8 * 8 + 3 * 5 * 8 * 4
    assert training.macs_by_phase == {
        "forward": 5 * 8 * 8,
        "loss": 3 * 5 * 8 * 4,
        "backward": 5 * 8 * 8,
        "optimizer": 0,
    }
    assert training.uncounted_operators == {}
    assert training.counted_on == "meta"
    assert torch.equal(module.weight, before)
    assert module.weight.grad is None
    assert not optimizer.state


def test_a_loss_network_without_a_module_of_its_own_in_the_products():
    """A perceptual loss whose features are compared by Gram matrices in its forward; the network calls a stranger."""

    class Style(nn.Module):
        def __init__(self):
            super().__init__()
            self.features = nn.Linear(8, 4, bias=False).requires_grad_(False)

        def forward(self, x):
            y = self.features(x)
            return (y.T @ y).square().sum()

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            # In a list, so that it is none of its modules.
            self.others = [nn.Linear(8, 8)]

        def forward(self, x):
            return self.others[0](x)

    training = count_training_step(
        lambda module, loss, x: loss(module(x)).backward(), Network(), (Style(), torch.randn(5, 8))
    )
    # Features forward and by their input; the Gram matrix forward and by both factors, which are one tensor.
    assert training.macs_by_phase == {
        "forward": 5 * 8 * 8,
        "loss": 2 * 5 * 8 * 4 + 3 * 4 * 5 * 4,
        "backward": 5 * 8 * 8,
        "optimizer": 0,
    }


def test_a_recurrent_training_step():
    # Every step's four gates: forward 1, weight gradient 1, input gradient 1; the first step's zero state has none.
    forward, training = count_both(nn.LSTM(8, 16), (differentiable(9, 2, 8),))
    step_macs = 2 * 64 * 16
    assert training.macs == 3 * forward.macs - step_macs
    assert training.by_kind["recurrent"] == training.macs


@pytest.mark.parametrize("checkpointing", ["none", "full"])
def test_swinmr_training_at_its_patch_size(checkpointing):
    model = {"net_type": "swinir", "img_size": 96, "window_size": 8, "depths": [2, 2], "num_heads": [2, 2]}
    config = config_from_dict({"experiment_name": "tiny", "model": {**model, "embed_dim": 12}})
    module = build_model(config).module.train()
    module.gradient_checkpointing = checkpointing
    forward, training = count_both(module, (torch.zeros(2, 1, 96, 96),))
    # Only the first convolution's input, the image, needs no gradient: 12 x 9 per pixel.
    assert training.macs == 3 * forward.macs - 2 * 96 * 96 * 12 * 9
    assert (training.recomputed_macs > 0) == (checkpointing == "full")
    assert training.recomputed_macs < forward.macs
    assert training.by_module["macs"] == training.macs


def test_the_callers_gradient_mode_does_not_matter():
    for mode in (torch.no_grad, torch.inference_mode):
        x = torch.randn(5, 8)
        with mode():
            training = count_training_step(forward_backward, nn.Linear(8, 8), (x,))
        assert training.macs == 2 * 5 * 8 * 8
