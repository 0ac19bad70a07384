"""The training step against hand-written loops and derived numbers."""

import math

import pytest
import torch
from torch import nn

from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.configs.sections.training import OptimizerSection, SchedulerSection
from swinmr_profiling.training.step.losses import LossValue
from swinmr_profiling.training.step.optimizers import build_optimizer, learning_rate_factor
from swinmr_profiling.training.step.training_step import (
    MicroBatch,
    NonFiniteLossError,
    StepSettings,
    autocast_dtype,
    build_state,
    training_step,
)
from tests.training.conftest import TINY_RUN, merged


class SquaredDifference(nn.Module):
    def forward(self, output, target):
        total = (output - target).square().mean()
        return LossValue(total, {"squared": total.detach()})


def state_of(module, changes=None):
    config = config_from_dict(merged(TINY_RUN, {"training.gradient": {}, **(changes or {})}))
    return build_state(config, module, SquaredDifference(), total_steps=10)


def batches(count, size=2, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [
        MicroBatch(
            (torch.randn(size, 3, generator=generator),),
            torch.randn(size, 2, generator=generator),
            ["a", "b"],
        )
        for _ in range(count)
    ]


def test_one_step_of_plain_gradient_descent_by_hand():
    """w <- w - lr dL/dw with L = mean (w x - y)^2, one weight: 2 - 0.1 x 2 x (2 x 3 - 5) x 3 = 1.4."""
    module = nn.Linear(1, 1, bias=False)
    nn.init.constant_(module.weight, 2.0)
    state = state_of(
        module,
        {
            "training.optimizer": {"type": "sgd", "lr": 0.1, "momentum": 0.0},
            "training.scheduler": {"type": "none"},
            "training.ema_decay": 0.9,
        },
    )
    batch = MicroBatch((torch.tensor([[3.0]]),), torch.tensor([[5.0]]))
    outcome = training_step(state, StepSettings("cpu"), [batch])
    assert outcome.loss.item() == pytest.approx(1.0)
    assert module.weight.item() == pytest.approx(1.4)
    assert state.step == 1
    # The average begins with the initial weight: 0.9 x 2 + 0.1 x 1.4, then 0.9 x 1.94 + 0.1 x w.
    assert state.ema.module.weight.item() == pytest.approx(1.94)
    training_step(state, StepSettings("cpu"), [batch])
    second = 1.4 - 0.1 * 2 * (1.4 * 3 - 5) * 3
    assert module.weight.item() == pytest.approx(second)
    assert state.ema.module.weight.item() == pytest.approx(0.9 * 1.94 + 0.1 * second)


def test_parts_of_the_loss_are_means_over_the_micro_batches():
    """w = 0: the squared differences are y^2: (9 + 25) / 2, of the first batch 9, of the second 25."""
    module = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(module.weight)
    both = [MicroBatch((torch.ones(1, 1),), torch.tensor([[y]])) for y in (3.0, 5.0)]
    outcome = training_step(state_of(module), StepSettings("cpu", accumulation=2), both)
    assert {name: part.item() for name, part in outcome.parts.items()} == {"squared": 17.0}
    assert outcome.loss.item() == 17.0


PLAIN_DESCENT = {
    "training.optimizer": {"type": "sgd", "lr": 1.0, "momentum": 0.0},
    "training.scheduler": {"type": "none"},
}


# The first step of Adam is the same for gradients of any scale; plain descent is not.
@pytest.mark.parametrize("changes", [None, PLAIN_DESCENT], ids=["adam", "descent"])
def test_accumulation_equals_one_large_batch(changes):
    torch.manual_seed(0)
    one, two = nn.Linear(3, 2), nn.Linear(3, 2)
    two.load_state_dict(one.state_dict())
    small = batches(4)
    large = MicroBatch(
        (torch.cat([b.inputs[0] for b in small]),), torch.cat([b.target for b in small]), ["all"]
    )
    accumulated = training_step(state_of(one, changes), StepSettings("cpu", accumulation=4), small)
    at_once = training_step(state_of(two, changes), StepSettings("cpu"), [large])
    torch.testing.assert_close(accumulated.loss, at_once.loss)
    torch.testing.assert_close(one.weight, two.weight)


def test_too_few_micro_batches_are_an_error():
    state = state_of(nn.Linear(3, 2))
    with pytest.raises(ValueError, match="3 micro-batches, not 2"):
        training_step(state, StepSettings("cpu", accumulation=3), batches(2))


def test_only_as_many_micro_batches_are_taken_as_needed():
    endless = iter(batches(5))
    training_step(state_of(nn.Linear(3, 2)), StepSettings("cpu", accumulation=2), endless)
    assert len(list(endless)) == 3


def test_clipping_limits_the_norm_and_reports_it_unclipped():
    module = nn.Linear(3, 2, bias=False)
    state = state_of(module, PLAIN_DESCENT)
    [batch] = batches(1)
    before = module.weight.detach().clone()
    gradient = torch.autograd.grad((module(batch.inputs[0]) - batch.target).square().mean(), module.weight)[0]
    outcome = training_step(state, StepSettings("cpu", clip_norm=0.01), [batch])
    assert outcome.grad_norm.item() == pytest.approx(gradient.norm().item(), rel=1e-5)
    assert (before - module.weight).norm().item() == pytest.approx(0.01, rel=1e-3)


def test_scaled_gradients_are_unscaled_before_they_are_clipped():
    """fp16's scaler makes them 1024 times too large; the norm that is reported and clipped is the gradients' own."""
    module = nn.Linear(3, 2, bias=False)
    state = state_of(module, PLAIN_DESCENT)
    state.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    [batch] = batches(1)
    before = module.weight.detach().clone()
    gradient = torch.autograd.grad((module(batch.inputs[0]) - batch.target).square().mean(), module.weight)[0]
    norm = gradient.norm().item()
    outcome = training_step(state, StepSettings("cpu", clip_norm=2 * norm), [batch])
    assert outcome.grad_norm.item() == pytest.approx(norm, rel=1e-5)
    # Below the limit nothing is clipped, so the step is the whole gradient.
    torch.testing.assert_close(module.weight.detach(), before - gradient)


def test_devices_average_gradients_once_a_step(tmp_path):
    """DistributedDataParallel would average with each of the three micro-batches."""
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1
    )
    try:
        averaged = []

        def hook(_, bucket):
            averaged.append(bucket.buffer().clone())
            future = torch.futures.Future()
            future.set_result(bucket.buffer())
            return future

        config = config_from_dict(merged(TINY_RUN, {"training.gradient": {}, **PLAIN_DESCENT}))
        module = nn.Linear(3, 2, bias=False)
        before = module.weight.detach().clone()
        parallel = nn.parallel.DistributedDataParallel(module)
        parallel.register_comm_hook(None, hook)
        state = build_state(config, module, SquaredDifference(), total_steps=10, wrap=lambda _: parallel)
        training_step(state, StepSettings("cpu", accumulation=3), batches(3))
    finally:
        torch.distributed.destroy_process_group()
    assert len(averaged) == 1
    # What was averaged is the sum over all three, and the step was made with it.
    torch.testing.assert_close(module.weight.detach(), before - averaged[0].view(2, 3))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_non_finite_loss_leaves_the_weights(bad):
    module = nn.Linear(3, 2)
    state = state_of(module)
    before = [p.detach().clone() for p in module.parameters()]
    good, spoiled = batches(2)
    spoiled.target[0, 0] = bad
    with pytest.raises(NonFiniteLossError, match=r"step 1 is not finite.*samples: a, b"):
        training_step(state, StepSettings("cpu", accumulation=2), [good, spoiled])
    assert all(torch.equal(a, b) for a, b in zip(before, module.parameters(), strict=True))
    assert state.step == 0


def test_gradients_are_freed_and_the_network_trains():
    module = nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.5)).eval()
    state = state_of(module)
    training_step(state, StepSettings("cpu"), batches(1))
    assert all(p.grad is None for p in module.parameters())
    assert module.training


def test_frozen_parameters_stay():
    module = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    module[0].requires_grad_(False)
    before = module[0].weight.clone()
    training_step(state_of(module), StepSettings("cpu"), batches(1))
    assert torch.equal(module[0].weight, before)


def test_autocast_reaches_the_network_and_not_the_loss():
    seen = {}

    class Watch(nn.Linear):
        def forward(self, x):
            out = super().forward(x)
            seen["output"] = out.dtype
            return out

    class InFloat32(SquaredDifference):
        def forward(self, output, target):
            # A product, which autocast would make in bf16 whatever it is given.
            seen["loss"] = (output.float() @ torch.eye(2)).dtype
            return super().forward(output.float(), target)

    state = state_of(Watch(3, 2))
    state.loss = InFloat32()
    outcome = training_step(state, StepSettings("cpu", torch.bfloat16), batches(1))
    assert seen["output"] is torch.bfloat16
    assert seen["loss"] is torch.float32
    assert outcome.loss.dtype is torch.float32


@pytest.mark.parametrize(
    ("precision", "dtype"),
    [(False, None), (True, torch.bfloat16), ("bf16", torch.bfloat16), ("fp16", torch.float16)],
)
def test_mixed_precision_of_the_config(precision, dtype):
    assert (
        autocast_dtype(config_from_dict(merged(TINY_RUN, {"system.mixed_precision": precision})), "cpu")
        is dtype
    )


@pytest.mark.parametrize(
    ("kind", "expected"), [("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW), ("sgd", torch.optim.SGD)]
)
def test_optimizers(kind, expected):
    section = OptimizerSection(type=kind, lr=0.5, weight_decay=0.25)
    optimizer = build_optimizer(nn.Linear(2, 2).parameters(), section)
    assert type(optimizer) is expected
    assert optimizer.defaults["lr"] == 0.5
    assert optimizer.defaults["weight_decay"] == 0.25


def test_published_schedule():
    """2e-4, halved at 50k, 70k, 90k, 100k and 110k steps."""
    section = SchedulerSection()
    rates = {s: learning_rate_factor(s, section, 120_000, 2e-4) for s in (0, 49_999, 50_000, 69_999, 110_000)}
    assert rates == {0: 1.0, 49_999: 1.0, 50_000: 0.5, 69_999: 0.5, 110_000: 2**-5}


def test_cosine_with_warm_up():
    section = SchedulerSection(type="cosine", warmup_steps=10, min_lr=1e-5)
    at = lambda step: learning_rate_factor(step, section, 110, 1e-3)  # noqa: E731
    assert [at(0), at(4), at(9)] == pytest.approx([0.1, 0.5, 1.0])
    assert at(10) == pytest.approx(1.0)
    # Half of the 100 steps after the rise: the mean of 1 and min_lr / lr = 0.01.
    assert at(60) == pytest.approx((1 + 0.01) / 2)
    assert at(35) == pytest.approx(0.01 + 0.99 * (1 + math.cos(math.pi / 4)) / 2)
    assert at(110) == pytest.approx(0.01)
    assert at(500) == pytest.approx(0.01)
