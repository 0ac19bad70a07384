"""Steps that are not ours against real runs on the CPU, by the allocator's own events."""

import gc
from functools import partial

import pytest
import torch
from torch import nn

from swinmr_profiling import OwnStepError, predict_training
from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.profiler.own_step.prediction import ModuleStep, on_meta
from swinmr_profiling.profiler.prediction.own_step_trace import trace_step, without_data
from swinmr_profiling.training.step.configured_step import configured_step
from swinmr_profiling.training.step.own_step import modules_of, optimizers_of, resized
from tests.profiler.own_step.example_steps import (
    Distillation,
    GanStep,
    HuggingFace,
    Lightning,
    LowRank,
    Unrolled,
    bytes_at_the_end,
    mlp,
    real_peak_bytes,
)

CPU = torch.device("cpu")


EXAMPLES = [GanStep, Distillation, Unrolled, LowRank, HuggingFace, Lightning]
NEEDS = {LowRank: "peft", HuggingFace: "transformers", Lightning: "pytorch_lightning"}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("make", EXAMPLES)
@pytest.mark.parametrize("batch_size", [3, 64])
def test_live_bytes_are_those_of_a_real_run(make, batch_size):
    if make in NEEDS:
        pytest.importorskip(NEEDS[make])
    trace = trace_step(on_meta(make()), None, batch_size, {}, as_on_cuda=False)
    assert int(trace.live_bytes().max()) == pytest.approx(real_peak_bytes(make(), batch_size), rel=0.002)


# Of the six those whose modules torch's tracker can hook: it refuses frozen ones, and calls of one in one forward pass.
@pytest.mark.sampled(1)
@pytest.mark.parametrize("make", [Distillation, HuggingFace, Lightning])
def test_categories_are_those_of_torch_s_own_tracker(make):
    from torch.distributed._tools.mem_tracker import MemTracker

    if make in NEEDS:
        pytest.importorskip(NEEDS[make])
    step = make()
    step.setup(CPU)
    tracker = MemTracker()
    tracker.track_external(*modules_of(step), *optimizers_of(step).values())
    with tracker:
        for _ in range(2):
            gc.collect()
            step.step(step.batch(64))
            tracker.reset_mod_stats()
    [at_peak] = tracker.get_tracker_snapshot("peak").values()
    [at_end] = (
        {str(name): value for name, value in found.items()}
        for found in tracker.get_tracker_snapshot("current").values()
    )
    trace = trace_step(on_meta(make()), None, 64, {}, as_on_cuda=False)
    assert int(trace.live_bytes().max()) == pytest.approx(at_peak["Total"], rel=0.002)
    ours = bytes_at_the_end(trace)
    assert ours["parameters"] == at_end["_MemRefType.PARAM"] + at_end["_MemRefType.BUFFER"]
    assert ours["gradients"] == at_end["_MemRefType.GRAD"]
    # Adam counts its steps in a number for each parameter, which stays on the host beside a GPU.
    states = (state for one in optimizers_of(step).values() for state in one.state.values())
    on_host = sum(4 for state in states if "step" in state)
    assert ours["optimizer_state"] == at_end["_MemRefType.OPT"] - on_host


@pytest.mark.slow
def test_live_bytes_by_hand():
    """256 -> 128 without a bias, plain SGD, the mean of the output as loss, batch 4, fp32.

    The peak is where the weight's gradient is made: weight and gradient 128 x 256 x 4 B each, input 4 x 256 x 4,
    output 4 x 128 x 4 and its gradient as much; the loss and backward's seed, one number each, take 512 B each.
    """
    model = nn.Linear(256, 128, bias=False)
    sgd = partial(torch.optim.SGD, lr=0.1)
    memory = predict_training(model, torch.zeros(2, 256), optimizer=sgd, batch_sizes=(4,))
    assert memory.config_setting.sizes["4"].live_bytes == 2 * 131_072 + 4_096 + 2 * 2_048 + 2 * 512
    assert memory.config_setting.peak.phase == "backward"
    # One segment of 2 MiB for the small tensors; none is over 1 MiB.
    assert memory.config_setting.sizes["4"].reserved_bytes == 2 * 2**20


@pytest.mark.slow
def test_allocated_bytes_of_the_distillation_by_hand():
    """Teacher 64 -> 512 -> 10, student 64 -> 128 -> 10, SGD with momentum, batch 64, fp32; blocks of 512 bytes.

    The peak is where the teacher's hidden layer is passed through its GELU, which no gradient keeps: input and output
    of 64 x 512 numbers each. Beside them are both networks, the student's momentum, the batch of 64 x 64, and the loss
    of the step before.
    """

    def held(*counts):
        return sum(-(-4 * count // 512) * 512 for count in counts)

    teacher, student = held(64 * 512, 512, 512 * 10, 10), held(64 * 128, 128, 128 * 10, 10)
    hidden, batch, loss = held(64 * 512), held(64 * 64), held(1)
    size = predict_training(Distillation(), batch_sizes=(64,)).config_setting.sizes["64"]
    assert size.allocated_bytes == teacher + 2 * student + 2 * hidden + batch + loss


@pytest.mark.slow
def test_a_network_of_yours_is_left_as_it_is():
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout())
    model.eval()
    model[0].weight.grad = torch.ones(8, 8)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    memory = predict_training(model, torch.zeros(2, 8))
    assert any(
        "batch 1 is inferred" in text and "Expected more than 1" in text for text in memory.assumptions
    )
    assert torch.rand(1) == expected
    assert not model.training
    assert torch.equal(model[0].weight.grad, torch.ones(8, 8))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.slow
def test_a_method_of_a_trainer():
    class Trainer:
        def __init__(self):
            self.net = nn.Linear(64, 64)
            self.optimizer = torch.optim.Adam(self.net.parameters())
            self.losses = []

        def training_step(self, batch):
            loss = self.net(batch["x"]).square().mean()
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.losses.append(loss.detach())

    trainer = Trainer()
    memory = predict_training(trainer.training_step, {"x": torch.zeros(2, 64), "name": "a"})
    assert memory.config_setting.ddp_bucket_bytes == (64 * 64 + 64) * 4
    by_category = memory.config_setting.peak.by_category
    assert by_category["parameters"] == 64 * 64 * 4 + 512
    assert trainer.losses == []
    assert not trainer.optimizer.state


@pytest.mark.slow
def test_a_function_that_closes_over_its_network():
    net = nn.Linear(64, 64)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def step(batch):
        net(batch).mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    before = net.weight.clone()
    assert predict_training(step, torch.zeros(2, 64)).config_setting.sizes["1"].live_bytes > 2 * 64 * 64 * 4
    assert torch.equal(net.weight, before)
    assert net.weight.grad is None


NETWORK = nn.Linear(4, 4)


def of_a_global(batch):
    NETWORK(batch).mean().backward()


class AsksForAValue(Distillation):
    def step(self, batch):
        loss = self.student(batch).mean()
        if loss.item() > 0.5:
            loss = loss * 2
        loss.backward()


class Raises(Distillation):
    def step(self, batch):
        raise KeyError("scale")


def line_of(function, text):
    import inspect

    lines, first = inspect.getsourcelines(function)
    return f"test_own_steps.py:{first + next(n for n, line in enumerate(lines) if text in line)}"


@pytest.mark.slow
def test_what_cannot_be_traced_is_one_line_with_its_place():
    with pytest.raises(OwnStepError, match="uses the global NETWORK") as e:
        predict_training(of_a_global, torch.zeros(2, 4))
    assert "\n" not in str(e.value)
    place = line_of(AsksForAValue.step, "item()")
    with pytest.raises(OwnStepError, match=place) as e:
        predict_training(AsksForAValue())
    assert f'assume={{"{place}": 0.0}}' in str(e.value)
    assert "\n" not in str(e.value)
    with pytest.raises(OwnStepError, match=f"{line_of(Raises.step, 'raise')}: KeyError: 'scale'"):
        predict_training(Raises())


class Selects(Distillation):
    def step(self, batch):
        output = self.student(batch)
        chosen = output[output.detach() > 0]
        chosen.sum().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


@pytest.mark.slow
def test_a_mask_selects_the_share_that_is_assumed():
    place = line_of(Selects.step, "> 0]")
    with pytest.raises(OwnStepError, match="selects by a mask's values") as e:
        predict_training(Selects())
    assert place in str(e.value)
    with pytest.raises(OwnStepError, match="0 to 1, not 3"):
        predict_training(Selects(), assume={place: 3})
    trace = trace_step(on_meta(Selects()), None, 64, {place: 0.25}, as_on_cuda=False)
    # Of 64 x 10 outputs 160 are chosen; their places are two int64 numbers each.
    selected = [
        (trace.operator_names[operator], size)
        for operator, size in zip(trace.operators.tolist(), trace.sizes.tolist(), strict=True)
        if trace.operator_names[operator] in ("aten.nonzero.default", "aten.index.Tensor")
    ]
    # In each step: forward's choice, and backward's places anew.
    assert selected[:2] == [("aten.nonzero.default", 160 * 2 * 8), ("aten.index.Tensor", 160 * 4)]
    assert selected.count(("aten.nonzero.default", 160 * 2 * 8)) == 4


class Reports(Distillation):
    def step(self, batch):
        return self.student(batch).mean().detach().cpu()


@pytest.mark.slow
def test_a_copy_to_the_host_is_refused_by_its_line():
    with pytest.raises(OwnStepError, match=line_of(Reports.step, "cpu()")) as e:
        predict_training(Reports())
    assert "copies a tensor to the CPU" in str(e.value)


@pytest.mark.slow
def test_an_assumed_value_decides_and_is_told():
    place = line_of(AsksForAValue.step, "item()")
    low, high = (predict_training(AsksForAValue(), assume={place: value}) for value in (0.0, 1.0))
    assert f"{place} gives 0.0 (assume)" in low.assumptions
    assert f"{place} gives 1.0 (assume)" in high.assumptions
    assert low.memory_fingerprint != high.memory_fingerprint


def test_a_step_is_told_from_a_network_s_options():
    with pytest.raises(OwnStepError, match="belong to a network"):
        predict_training(Distillation(), loss=nn.MSELoss())
    with pytest.raises(OwnStepError, match="is a class: give an instance"):
        predict_training(Distillation)
    with pytest.raises(OwnStepError, match="needs an example"):
        predict_training(nn.Linear(4, 4))
    with pytest.raises(OwnStepError, match="no tensor with a batch axis"):
        predict_training(nn.Linear(4, 4), torch.zeros(()))


@pytest.mark.slow
def test_autocast_and_a_loss_with_targets():
    model, target = mlp(64, 64, 10), torch.zeros(2, dtype=torch.int64)
    options = {"targets": (target,), "loss": nn.functional.cross_entropy, "batch_sizes": (256,)}
    full, half = (
        predict_training(model, torch.zeros(2, 64), precision=precision, **options)
        for precision in ("fp32", "bf16")
    )
    assert full.loss == "cross_entropy"
    # Autocast keeps activations of half the size, and casts of the weights.
    assert half.config_setting.sizes["256"].live_bytes < full.config_setting.sizes["256"].live_bytes


def test_the_plain_step_is_the_step_of_a_real_run():
    def loss(output, target):
        return (output - target).square().mean()

    def fresh():
        torch.manual_seed(0)
        return mlp(64, 256, 64)

    trace = trace_step(
        ModuleStep(on_meta_module(fresh()), partial(torch.optim.AdamW, foreach=False), loss, None),
        ((torch.zeros(2, 64),), {}, (torch.zeros(2, 64),)),
        64,
        {},
        as_on_cuda=False,
    )

    class Real(ModuleStep):
        def setup(self, device):
            self.module = fresh()
            super().setup(device)

        def batch(self, size):
            return (torch.zeros(size, 64),), {}, (torch.zeros(size, 64),)

    real = Real(None, partial(torch.optim.AdamW, foreach=False), loss, None)
    assert int(trace.live_bytes().max()) == pytest.approx(real_peak_bytes(real, 64), rel=0.002)


def on_meta_module(module):
    from swinmr_profiling.profiler.counting.meta_copy import copy_to

    return copy_to(module, ())[0]


def test_a_precision_of_the_weights_is_the_networks_own():
    with pytest.raises(OwnStepError, match="hand over a network in bf16"):
        predict_training(nn.Linear(2, 2), torch.zeros(2, 2), precision="pure_bf16")


FILE = """
import torch
from torch import nn

first = nn.Linear(4, 4)
of_first = torch.optim.SGD(first.parameters(), 0.1)
second = nn.Linear(64, 64)
of_second = torch.optim.Adam(second.parameters())
log = open(__file__)


class Trainer:
    def __init__(self):
        self.net = nn.Linear(64, 64)
        self.optimizer = torch.optim.Adam(self.net.parameters())
        self.scaler = None

    def training_step(self, batch):
        self.scaler = self.scaler or torch.amp.GradScaler("cuda")
        with torch.autocast(batch.device.type, torch.float16):
            loss = self.net(batch).float().square().mean()
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()


class Judge:
    def loss(self, x):
        return second(x).square().mean()


def judged(batch):
    return Judge().loss(batch)


def of_the_second(batch):
    log.readline()
    return judged(batch)


trainer = Trainer()
method = trainer.training_step
"""


@pytest.mark.slow
def test_a_file_with_several_steps_gives_the_one_that_is_named(tmp_path):
    (tmp_path / "steps.py").write_text(FILE)

    def made(name):
        step = f"{tmp_path / 'steps.py'}:{name}"
        config = config_from_dict({"model": {"net_type": "unet_denoiser"}, "training": {"step": step}})
        return configured_step(config, trust_config=True)

    step = made("of_the_second")
    held = step.made()
    assert (len(modules_of(held)), list(optimizers_of(held))) == (1, ["held.of_second"])
    numbers = 64 * 64 + 64
    for _ in range(2):  # each begins with networks and optimizers as the file made them
        trace = trace_step(step.made(without_data), torch.zeros(2, 64), 8, {}, as_on_cuda=False)
        ours = bytes_at_the_end(trace)
        assert (ours["parameters"], ours["optimizer_state"]) == (4 * numbers, 8 * numbers)
    trace = trace_step(made("method").made(without_data), torch.zeros(2, 64), 8, {})
    assert trace.autocast == ["float16"]
    assert trace.assumptions == ["no gradient overflows its scale"]
    assert bytes_at_the_end(trace)["optimizer_state"] == 8 * numbers


def test_what_has_the_batch_axis_is_resized_and_nothing_else():
    """The first tensor says what a batch is: 4. A mean, a table of 7 and a word stay."""
    example = {
        "image": torch.zeros(4, 3),
        "mean": torch.tensor(0.5),
        "table": torch.zeros(7, 2),
        "mode": "train",
    }
    given = resized(example, 16)
    assert [tuple(given[key].shape) for key in ("image", "mean", "table")] == [(16, 3), (), (7, 2)]
    assert given["mode"] == "train"
