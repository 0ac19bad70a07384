"""A step that goes wrong costs that step: the state before it is saved, and a mended run ends bit for bit the same."""

import json
import math
import os
import signal

import numpy as np
import pytest
import torch

from swinmr_profiling.stop_signals import STOP_SIGNALS
from swinmr_profiling.training.data.skipping import SkippedSample, SkippedSamples
from swinmr_profiling.training.errors import DataError
from swinmr_profiling.training.run import loop
from swinmr_profiling.training.run.batch_stream import BatchStream
from swinmr_profiling.training.run.checkpoints import LAST, read_checkpoint
from swinmr_profiling.training.run.step_guard import NonFiniteWeightsError, StepGuard, all_finite
from swinmr_profiling.training.run.stopping import stop_on_signals
from swinmr_profiling.training.step.training_step import (
    NonFiniteGradientError,
    NonFiniteLossError,
    TrainingState,
)
from tests.training.run.resumed_runs import StopBefore
from tests.training.run.test_loop import assert_same_bits

# Dropped paths draw random numbers in every step; nothing is saved on the way but by a fault.
COMMON = {"model.drop_path_rate": 0.5, "training.total_steps": 6}


@pytest.fixture
def slices(tmp_path):
    """Ten slices in one file, some of them spoiled by a value; the keys of a config that trains on them."""

    def write(*spoiled, value=np.nan, part="train"):
        folder = tmp_path / f"data_{part}"
        folder.mkdir(exist_ok=True)
        volume = np.random.default_rng(0).random((10, 32, 32), np.float32) + 0.5
        for index in spoiled:
            volume[index, 3:9, 5] = value
        np.save(folder / "volume.npy", volume)
        return {
            **COMMON,
            "data.source": "npy",
            f"data.{part}_dir": str(folder),
            "data.normalisation": "none",
            "data.phantom": {},
        }

    return write


def saved(folder):
    return sorted(file.name for file in (folder / "tiny/checkpoints").glob("*.pth"))


def ended(run):
    result = run.run()
    assert result.step == result.total_steps == 6
    return read_checkpoint(result.checkpoint)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        (np.nan, DataError, "volume.npy, slice 7: the image has 6 NaN"),
        # Finite itself; the loss is the square root of its square.
        (1e30, NonFiniteLossError, "volume.npy, slice 7"),
    ],
)
def test_a_bad_sample_loses_nothing(tiny_run, slices, tmp_path, value, error, words, accumulate):
    changes = {**slices(), "training.accumulate": accumulate}
    straight = ended(tiny_run(changes, folder="straight"))
    slices(7, value=value)
    run = tiny_run(changes, folder="parts")
    with pytest.raises(error, match=words):
        run.run()
    step = run.state.step
    # The file is read in the first epoch: five steps of two slices, two and a half of four.
    assert 1 <= step <= 5
    assert saved(tmp_path / "parts") == [LAST, f"step_{step:09d}.pth"]
    assert run.saved.name == f"step_{step:09d}.pth"
    slices()
    torch.manual_seed(999)
    second = tiny_run(changes, folder="parts")
    assert second.resume()
    assert_same_bits(straight, ended(second))


def test_a_gradient_that_is_no_number_never_reaches_the_weights(tiny_run, tmp_path):
    straight = ended(tiny_run(COMMON, folder="straight"))
    run = tiny_run({**COMMON, "training.gradient": {}}, folder="parts")
    weight = next(run.state.module.parameters())
    weight.register_hook(lambda gradient: gradient * math.nan if run.state.step == 4 else gradient)
    with pytest.raises(
        NonFiniteGradientError, match="the gradient of step 5 is not finite; samples: phantom"
    ):
        run.run()
    content = read_checkpoint(tmp_path / "parts/tiny/checkpoints" / LAST)
    assert content["step"] == 4
    assert all(value.isfinite().all() for value in content["params"].values())
    # Without a limit the gradient norm is left out, and the weights are other ones: the same run to its end.
    again = ended(tiny_run({**COMMON, "training.gradient": {}}, folder="unlimited"))
    second = tiny_run({**COMMON, "training.gradient": {}}, folder="parts")
    assert second.resume()
    assert_same_bits(again, ended(second))
    assert straight["step"] == 6


def test_weights_that_are_no_numbers_never_become_the_last(tiny_run, tmp_path, monkeypatch):
    """A step that spoils the weights with a finite loss and gradient: an optimizer's mistake, a broken memory."""
    run = tiny_run({**COMMON, "training.checkpoint_every_steps": 2, "training.validate_every_steps": 100})
    real_step = loop.training_step

    def spoiling(state, *arguments):
        outcome = real_step(state, *arguments)
        if state.step == 4:
            with torch.no_grad():
                next(state.module.parameters()).view(-1)[0] = math.inf
        return outcome

    monkeypatch.setattr(loop, "training_step", spoiling)
    with pytest.raises(
        NonFiniteWeightsError, match=r"the weights of step 4 are not finite \(conv_first.weight\)"
    ):
        run.run()
    assert saved(tmp_path / "results") == [LAST, "nonfinite_step_000000004.pth", "step_000000002.pth"]
    assert read_checkpoint(tmp_path / "results/tiny/checkpoints" / LAST)["step"] == 2
    assert run.saved.name == "nonfinite_step_000000004.pth"
    monkeypatch.undo()
    again = tiny_run(COMMON)
    assert again.resume()
    assert again.state.step == 2


def test_memory_that_runs_out_in_a_step_loses_no_other(tiny_run, tmp_path):
    straight = ended(tiny_run(COMMON, folder="straight"))
    run = tiny_run(COMMON, folder="parts")
    run.state.module.register_forward_hook(lambda *_: torch.empty(2**60) if run.state.step == 4 else None)
    with pytest.raises(RuntimeError):
        run.run()
    assert read_checkpoint(tmp_path / "parts/tiny/checkpoints" / LAST)["step"] == 4
    second = tiny_run(COMMON, folder="parts")
    assert second.resume()
    assert_same_bits(straight, ended(second))


@pytest.mark.slow
def test_a_validation_that_fails_is_made_up_for(tiny_run, slices):
    """The state is saved, and the run that goes on validates before its first step."""
    changes = slices(part="val") | slices()
    straight = ended(tiny_run(changes, folder="straight"))
    slices(2, part="val")
    with pytest.raises(DataError, match=r"volume.npy, slice 2"):
        tiny_run(changes, folder="parts").run()
    slices(part="val")
    second = tiny_run(changes, folder="parts")
    assert second.resume()
    assert second.state.step == 3
    resumed = ended(second)
    assert_same_bits(straight, resumed)
    assert resumed["progress"] == straight["progress"]
    assert resumed["validation_is_due"] is False


def test_skipped_samples_are_named_and_resumed_over_bit_for_bit(tiny_run, slices, tmp_path, logged):
    changes = {**slices(3, 7, 8), "data.on_error": "skip", "data.max_skipped_samples": 3}
    result = tiny_run(changes).run()
    places = [(one.file, one.slice) for one in result.skipped]
    file = str(tmp_path / "data_train/volume.npy")
    assert sorted(places) == [(file, 3), (file, 7), (file, 8)]
    assert all(one.reason.startswith("the image has 6 NaN") for one in result.skipped)
    assert sorted(line["slice"] for line in logged("skipped", 0)) == [3, 7, 8]
    straight = read_checkpoint(result.checkpoint)
    assert tiny_run(changes, folder="parts", stop=StopBefore(5)).run().step == 4
    second = tiny_run({**changes, "data.num_workers": 1}, folder="parts")
    assert second.resume()
    resumed = ended(second)
    assert_same_bits(straight, resumed)
    assert resumed["skipped"] == straight["skipped"]


def test_what_stands_in_is_drawn_as_the_skipped_slice(tiny_run, slices):
    run = tiny_run({**slices(7), "data.on_error": "skip"})
    samples = run.train_loader.dataset
    key = next(key for batch in run.train_loader.batch_sampler for key in batch if key.index == 7)
    stood_in, plain = samples[key], samples[key._replace(index=8)]
    assert stood_in["name"] == plain["name"] == "volume.npy, slice 8"
    assert stood_in["skipped"] == [SkippedSample(*run.dataset.place(7), "the image has 6 NaN or infinite values; "
                                                 "repair the file or leave it out")]  # fmt: skip
    assert not torch.equal(stood_in["input"], plain["input"])  # another mask and crop
    assert torch.equal(stood_in["input"], run.dataset[key._replace(index=8, drawn_as=7)]["input"])


def test_more_bad_samples_than_allowed_end_the_run_with_its_state_saved(tiny_run, slices):
    changes = {**slices(1, 3, 5, 7), "data.on_error": "skip", "data.max_skipped_samples": 3}
    run = tiny_run(changes)
    with pytest.raises(DataError, match=r"more than 3 samples cannot be read \(data.max_skipped_samples\)"):
        run.run()
    assert run.saved is not None or run.state.step == 0
    every = {**slices(*range(10)), "data.on_error": "skip", "data.max_skipped_samples": 3}
    with pytest.raises(DataError, match="more than 3 samples"):
        tiny_run(every, folder="every").run()


def test_the_limit_counts_slices_once_and_over_resumptions():
    samples = SkippedSamples(limit=2)
    first, second, third = (SkippedSample("a.npy", index, "bad") for index in range(3))
    assert samples.add([first, second, first]) == [first, second]
    assert samples.add([second]) == []
    resumed = SkippedSamples(limit=2)
    resumed.restore(json.loads(json.dumps(samples.to_json())))
    for _ in range(2):  # however often it goes on
        with pytest.raises(DataError, match=r"a\.npy, slice 2: bad; more than 2"):
            resumed.add([third])


def test_a_bad_step_leaves_no_trace_in_running_statistics():
    module = torch.nn.Sequential(torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 1))
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    state = TrainingState(module, module, None, optimizer, None, None, None)
    guard = StepGuard(state, lambda: ["a sample"])
    before = {name: value.clone() for name, value in module.state_dict().items()}
    drawn = torch.get_rng_state()
    guard.begin()
    torch.rand(3)
    module(torch.full((4, 3), math.nan)).sum().backward()
    with pytest.raises(NonFiniteGradientError, match=r"step 1 .*a sample"):
        optimizer.step()
    assert not guard.is_updating
    guard.undo()
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert torch.equal(torch.get_rng_state(), drawn)


def test_finite_values_whose_norm_overflows_are_finite():
    large = torch.full((8,), 3e38)
    assert all_finite([large, torch.zeros(0), torch.tensor([1e300], dtype=torch.float64)])
    assert all_finite([torch.full((2,), 1 + 1j)])
    assert not all_finite([large, torch.tensor([math.nan])])
    assert not all_finite([torch.tensor([complex(0, math.inf)])])
    sparse = torch.sparse_coo_tensor([[1]], [math.inf], (4,))
    assert not all_finite([sparse])


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_every_stop_signal_asks_for_a_stop(number):
    """SLURM's --signal=USR1 and USR2, and a used-up processor time, killed a run."""
    with stop_on_signals() as stop:
        os.kill(os.getpid(), number)
        assert stop
        assert stop.signal_name == signal.Signals(number).name


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed. "),
        ConnectionResetError(104, "Connection reset by peer"),  # while it handed over a batch
        EOFError(),
    ],
)
def test_a_loader_process_that_is_gone_is_an_error_of_the_data(error):
    class Sampler:
        batches_per_epoch = 3

        def seek(self, epoch, batch):
            raise error

    class Loader:
        batch_sampler = Sampler()

    stream = BatchStream(Loader(), torch.device("cpu"), step=0, accumulation=1, prepare=None)
    with pytest.raises(DataError, match=r"^a loader process ended: .*; fewer data.num_workers"):
        stream.draw()
