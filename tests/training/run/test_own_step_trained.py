"""train.py's loop with a training step of the user's own: the arithmetic, resuming bit for bit, what is refused."""

import pytest
import torch

from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.training.distributed import World
from swinmr_profiling.training.run.checkpoints import CheckpointError, read_checkpoint
from swinmr_profiling.training.run.loop import TrainingRun
from swinmr_profiling.training.run.stopping import StopRequest
from swinmr_profiling.training.step.own_step import OwnStepError
from swinmr_profiling.training.step.training_step import NonFiniteGradientError, NonFiniteLossError
from tests.training.conftest import TINY_RUN, merged
from tests.training.run.resumed_runs import StopBefore

STEPS = '''
import torch
from torch import nn

def network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.Dropout(0.5), nn.Conv2d(4, 1, 3, padding=1))

class Whole:
    """Makes the whole step, with a schedule of its own."""

    def setup(self, device):
        self.network = network().to(device)
        self.optimizer = torch.optim.AdamW(self.network.parameters(), lr=1e-2)
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 2, 0.5)

    def step(self, batch):
        loss = (self.network(batch["input"]) - batch["target"]).abs().mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.schedule.step()
        return loss

class LossAlone(Whole):
    def setup(self, device):
        super().setup(device)
        del self.schedule

    def step(self, batch):
        return (self.network(batch["input"]) - batch["target"]).abs().mean()

class Counts(LossAlone):
    count = 0

    def step(self, batch):
        self.count += 1
        return super().step(batch) / self.count

class Keeps(Counts):
    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, state):
        self.count = state["count"]

class Two(LossAlone):
    def setup(self, device):
        super().setup(device)
        self.judge = nn.Linear(4, 4)

class NoLoss(Whole):
    def step(self, batch):
        super().step(batch)

class NotANumber(LossAlone):
    def step(self, batch):
        return super().step(batch) * float("nan")

class NotANumberAlone(Whole):
    def step(self, batch):
        (self.network(batch["input"]).mean() * float("nan")).backward()
        self.optimizer.step()
        return 1.0

net = network()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

def function(batch):
    return (net(batch["input"]) - batch["target"]).square().mean()
'''


@pytest.fixture
def own_run(tmp_path):
    """Builds a run of a step of the file above: `own_run("Whole", {"training.total_steps": 9})`."""
    (tmp_path / "steps.py").write_text(STEPS)

    def build(name, changes=None, folder="results", stop=None):
        raw = merged(TINY_RUN, {"training.step": f"{tmp_path / 'steps.py'}:{name}", **(changes or {})})
        raw["paths"] = {"root": str(tmp_path / folder)}
        world = World(0, 1, torch.device("cpu"))
        return TrainingRun(
            config_from_dict(raw), world, StopRequest() if stop is None else stop, trust_config=True
        )

    return build


def weights(result):
    return read_checkpoint(result.checkpoint)["params"]


@pytest.mark.parametrize("name", ["Whole", "LossAlone", "Keeps", "function"])
def test_a_run_goes_on_bit_for_bit(own_run, name):
    straight = own_run(name, folder="straight").run()
    assert straight.step == 6
    stopped = own_run(name, stop=StopBefore(4)).run()
    assert stopped.step == 3
    later = own_run(name)
    assert later.resume()
    resumed = later.run()
    assert resumed.step == 6
    expected, found = weights(straight), weights(resumed)
    assert expected.keys() == found.keys() == {"0.weight", "0.bias", "2.weight", "2.bias"}
    assert all(torch.equal(expected[key], found[key]) for key in expected)
    moved = weights(stopped)
    assert any(not torch.equal(expected[key], moved[key]) for key in expected)


def test_the_rest_of_a_step_that_gives_a_loss_is_one_step_of_its_optimizer(own_run):
    run = own_run("function", {"training.total_steps": 1, "training.validate_every_steps": None})
    before = {name: p.detach().clone() for name, p in run.state.module.named_parameters()}
    again = own_run("function", {"training.total_steps": 1}, folder="again")
    batch = again.prepare(next(iter(again.train_loader)), torch.device("cpu"), 0, 0)
    again.state.module.train()
    again.state.own_step.step(batch).backward()
    # Plain gradient descent at the rate of the file, 0.1; no clipping, no schedule of the config.
    gradients = {name: p.grad for name, p in again.state.module.named_parameters()}
    torch.manual_seed(run.config.system.seed)  # as the other one began
    trained = weights(run.run())
    for name, value in before.items():
        torch.testing.assert_close(trained[name], value - 0.1 * gradients[name])


def test_what_is_not_used_is_said(own_run):
    run = own_run("Whole")
    assert any("its own loss, optimizer, schedule and precision" in line for line in run.messages)
    assert any("another than `model` names" in line for line in run.messages)
    assert run.state.ema is None


def test_what_cannot_be_trained_is_refused_by_name(own_run):
    with pytest.raises(OwnStepError, match=r"Two holds 2 networks: network .Sequential., judge .Linear."):
        own_run("Two")
    with pytest.raises(OwnStepError, match="returned NoneType: give the loss"):
        own_run("NoLoss").run()
    with pytest.raises(OwnStepError, match="count changes from step to step"):
        own_run("Counts", folder="counts").run()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("accumulate", 2),
        ("gradient_checkpointing", "full"),
        ("gradient_checkpointing", ["body"]),
        ("lora", {"targets": ["qkv"]}),
        ("strategy", "fsdp"),
        ("plan", "plan.json"),
    ],
)
def test_what_this_projects_step_alone_would_do_is_refused(own_run, key, value):
    with pytest.raises(Exception, match=f"{key}.* is for this project's step"):
        own_run("Whole", {f"training.{key}": value})


def test_numbers_that_are_none_reach_no_weights(own_run):
    run = own_run("NotANumber")
    before = {name: p.detach().clone() for name, p in run.state.module.named_parameters()}
    with pytest.raises(NonFiniteLossError):
        run.run()
    assert all(torch.equal(p, before[name]) for name, p in run.state.module.named_parameters())
    run = own_run("NotANumberAlone", folder="alone")
    with pytest.raises(NonFiniteGradientError):
        run.run()
    assert all(torch.isfinite(p).all() for p in run.state.module.parameters())


def test_a_checkpoint_of_another_step(own_run, tmp_path):
    own_run("Whole", stop=StopBefore(3)).run()
    with pytest.raises(CheckpointError, match=r"trained with AdamW, schedule, .* has AdamW:"):
        own_run("LossAlone").resume()
    with pytest.raises(CheckpointError, match=r"was trained by training.step"):
        own_run("Whole", {"training.step": None, "model.net_type": "swinir"}).resume()
    (tmp_path / "steps.py").write_text(STEPS + "\n")
    run = own_run("Whole")
    assert run.resume()
    assert any("was edited since the checkpoint" in line for line in run.messages)
