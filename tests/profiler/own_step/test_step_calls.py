"""How often a step is called until all that it keeps is there."""

import pytest
import torch

from swinmr_profiling import OwnStepError, predict_training
from swinmr_profiling.profiler.own_step.prediction import on_meta
from swinmr_profiling.profiler.prediction.own_step_trace import trace_step
from tests.profiler.own_step.example_steps import (
    Distillation,
    GanStep,
    bytes_at_the_end,
    mlp,
    real_peak_bytes,
)


class Accumulates(Distillation):
    """Steps its optimizer in every fourth call; gives only its loss in none."""

    calls = 0

    def step(self, batch):
        loss = self.student(batch).square().mean()
        loss.backward()
        self.calls += 1
        if self.calls % 4 == 0:
            self.optimizer.step()
            self.optimizer.zero_grad()
        return loss


class GivesItsLoss(Distillation):
    def step(self, batch):
        return self.student(batch).square().mean()


class GivesALossOfTwo(GanStep):
    def step(self, batch):
        return self.generator(batch[0]).mean()


@pytest.mark.slow
def test_a_step_is_called_until_its_optimizers_have_their_state():
    trace = trace_step(on_meta(Accumulates()), None, 8, {}, as_on_cuda=False)
    assert len(trace.step_starts) == 8
    # One momentum for each number of 64 x 128 + 128 + 128 x 10 + 10.
    assert bytes_at_the_end(trace)["optimizer_state"] == 4 * (64 * 128 + 128 + 1280 + 10)

    class Never(Distillation):
        def step(self, batch):
            self.student(batch).mean().backward()

    memory = predict_training(Never())
    assert any(
        "no step of optimizer in 64 calls: its state is not in it" in text for text in memory.assumptions
    )


@pytest.mark.slow
def test_a_step_that_only_gives_its_loss_is_finished():
    """Backward and the optimizer's step are made, as in a step that makes them itself."""

    class MakesThem(GivesItsLoss):
        def step(self, batch):
            loss = super().step(batch)
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            return loss.detach()

    left, made = (
        trace_step(on_meta(one()), None, 8, {}, as_on_cuda=False) for one in (GivesItsLoss, MakesThem)
    )
    assert left.sizes.tolist() == made.sizes.tolist()
    assert bytes_at_the_end(left)["optimizer_state"] == 4 * (64 * 128 + 128 + 1280 + 10)
    with pytest.raises(OwnStepError, match=r"holds 2 optimizers \(of_generator, of_discriminator\)"):
        predict_training(GivesALossOfTwo())


class Thaws(Distillation):
    """A layer joins the optimizer in the second call, as in gradual unfreezing."""

    def setup(self, device):
        self.student, self.calls = mlp(64, 128, 256).to(device), 0
        self.optimizer = torch.optim.Adam(self.student[0].parameters(), foreach=False)

    def step(self, batch):
        self.calls += 1
        if self.calls == 2:
            self.optimizer.add_param_group({"params": list(self.student[1].parameters())})
        self.student.zero_grad()
        self.student(batch).mean().backward()
        self.optimizer.step()


class Grows(Distillation):
    """Keeps one tensor more of each call, as a history that is not full yet."""

    def step(self, batch):
        self.student(batch).mean().backward()
        self.optimizer.step()
        kept = self.optimizer.state[self.student[0][0].weight].setdefault("history", [])
        kept.append(torch.zeros(3, device=batch.device))


def test_a_state_that_grows_is_waited_for_and_told():
    trace = trace_step(on_meta(Thaws()), None, 256, {}, as_on_cuda=False)
    assert len(trace.step_starts) == 3
    assert int(trace.live_bytes().max()) == pytest.approx(real_peak_bytes(Thaws(), 256, calls=4), rel=0.002)


def test_a_state_that_never_ends_growing_is_told():
    trace = trace_step(on_meta(Grows()), None, 2, {}, as_on_cuda=False)
    assert any("the state of optimizer still grew after 64 calls" in text for text in trace.assumptions)


class Plain(torch.optim.SGD):
    """An optimizer of somebody's who keeps a tensor itself, no dict, for each parameter."""

    def step(self, closure=None):
        for parameter in self.param_groups[0]["params"]:
            self.state[parameter] = torch.zeros_like(parameter)
        return super().step(closure)


class KeepsTensors(Distillation):
    def setup(self, device):
        super().setup(device)
        self.optimizer = Plain(self.student.parameters(), lr=0.1)


def test_an_optimizer_may_keep_its_state_as_it_likes():
    trace = trace_step(on_meta(KeepsTensors()), None, 8, {}, as_on_cuda=False)
    assert len(trace.step_starts) == 2
    assert not any("still grew" in text for text in trace.assumptions)
