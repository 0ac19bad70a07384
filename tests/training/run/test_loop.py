"""The loop: resumption bit for bit, validation of the average, logs, best checkpoint, stopping."""

import json

import pytest
import torch

from swinmr_profiling.configs.sections.training import EarlyStoppingSection
from swinmr_profiling.training.run.checkpoints import CheckpointError, read_checkpoint
from swinmr_profiling.training.run.stopping import Progress
from tests.training.run.resumed_runs import StopBefore


def tensors_of(content, prefix=""):
    """All tensors of nested dicts and lists, by path."""
    found = {}
    items = content.items() if isinstance(content, dict) else enumerate(content)
    for key, value in items:
        if isinstance(value, torch.Tensor):
            found[f"{prefix}{key}"] = value
        elif isinstance(value, (dict, list, tuple)):
            found.update(tensors_of(value, f"{prefix}{key}."))
    return found


def assert_same_bits(first, second):
    left, right = tensors_of(first), tensors_of(second)
    assert left.keys() == right.keys()
    assert len(left) > 20
    for key in left:
        assert torch.equal(left[key], right[key]), key


@pytest.mark.parametrize("accumulate", [1, 2])
def test_resumption_is_bit_for_bit(tiny_run, accumulate):
    """Six steps at once equal four, a new process's worth of state, and two: with dropped paths, averages,
    schedule, clipping and an epoch boundary (10 slices, batches of 2) between."""
    common = {"training.accumulate": accumulate, "model.drop_path_rate": 0.5, "model.drop_rate": 0.1}
    straight = tiny_run(common, folder="straight").run()
    stopped = tiny_run(common, folder="parts", stop=StopBefore(5)).run()
    assert (stopped.step, stopped.stopped_by) == (4, "SIGTERM")
    torch.manual_seed(999)  # what a new process would not have
    second = tiny_run(common, folder="parts")
    assert second.resume() is True
    assert second.state.step == 4
    resumed = second.run()
    assert resumed.step == straight.step == 6
    assert_same_bits(read_checkpoint(straight.checkpoint), read_checkpoint(resumed.checkpoint))
    assert read_checkpoint(straight.checkpoint)["progress"] == read_checkpoint(resumed.checkpoint)["progress"]


def test_position_continues_across_epochs(tiny_run):
    """Five batches an epoch: step 7 sees batch 1 of epoch 1, resumed or not."""
    run = tiny_run({"training.total_steps": 8})
    run.state.step = 6
    batch = next(run._stream())
    sampler = run.train_loader.batch_sampler
    assert (sampler.epoch, sampler.first_batch) == (1, 1)
    assert batch.inputs[0].shape == (2, 1, 16, 16)


def test_validation_uses_the_averaged_weights(tiny_run):
    run = tiny_run({"training.total_steps": 3})
    result = run.run()
    averaged, _ = run._validate(None)
    assert result.last_validation["val_psnr"] == pytest.approx(averaged.network.psnr_db)
    with torch.no_grad():
        for parameter in run.state.module.parameters():
            parameter.zero_()
    unchanged, _ = run._validate(None)
    assert unchanged.network.psnr_db == averaged.network.psnr_db
    with torch.no_grad():
        for parameter in run.state.ema.module.parameters():
            parameter.zero_()
    # x + conv_last(...) of zeros is x: the zero-filled input itself.
    identity, _ = run._validate(None)
    assert identity.network.psnr_db == pytest.approx(identity.zero_filled.psnr_db, abs=1e-4)


def test_log_and_checkpoint_tell_what_was_run(tiny_run, tmp_path):
    result = tiny_run({"training.accumulate": 2}).run()
    lines = [json.loads(line) for line in (tmp_path / "results/tiny/logs/log.jsonl").read_text().splitlines()]
    steps = [line["step"] for line in lines if line["kind"] == "train"]
    assert steps == [1, 2, 3, 4, 5, 6]
    # Warm-up over two steps, full rate, halved from step index 4 on.
    rates = [line["learning_rate"] for line in lines if line["kind"] == "train"]
    assert rates == pytest.approx([5e-4, 1e-3, 1e-3, 1e-3, 5e-4, 5e-4])
    validations = [line for line in lines if line["kind"] == "validation"]
    assert [line["step"] for line in validations] == [3, 6]
    assert validations[-1]["sampled_fraction"] == pytest.approx(0.3, abs=0.02)
    content = read_checkpoint(result.checkpoint)
    assert content["batch_sizes"] == {
        "batch_size_per_device": 2,
        "accumulate": 2,
        "devices": 1,
        "global_batch_size": 4,
    }
    assert content["config"]["experiment_name"] == "tiny"


@pytest.mark.slow
def test_tensorboard_can_be_read_back(tiny_run, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    tiny_run({"logging.tensorboard": True}).run()
    events = EventAccumulator(str(tmp_path / "results/tiny/logs"))
    events.Reload()
    assert [event.step for event in events.Scalars("train/loss")] == [1, 2, 3, 4, 5, 6]
    lines = (tmp_path / "results/tiny/logs/log.jsonl").read_text().splitlines()
    first = next(line for line in map(json.loads, lines) if line["kind"] == "train")
    assert events.Scalars("train/loss")[0].value == pytest.approx(first["loss"], rel=1e-6)
    # Zero-filled, reconstruction and target of 32 x 32 side by side.
    image = events.Images("validation")[0]
    assert (image.height, image.width) == (32, 96)


def test_best_checkpoint_is_the_best_validation(tiny_run, tmp_path):
    run = tiny_run({"training.total_steps": 9})
    run.run()
    best = read_checkpoint(tmp_path / "results/tiny/checkpoints/best.pth")
    assert best["step"] == run.progress.best_step
    lines = (tmp_path / "results/tiny/logs/log.jsonl").read_text().splitlines()
    scores = {v["step"]: v["val_psnr"] for v in map(json.loads, lines) if v["kind"] == "validation"}
    assert run.progress.best_step == max(scores, key=scores.get)
    assert run.progress.best == pytest.approx(max(scores.values()))


def test_early_stopping(tiny_run):
    """Nothing improves by 1000 dB: the first validation is the best, and two more end the run at step 9."""
    stopping = {"enabled": True, "patience": 2, "min_delta": 1000.0}
    result = tiny_run({"training.total_steps": 30, "training.early_stopping": stopping}).run()
    assert result.stopped_by == "early stopping"
    assert result.step == 9


def test_progress_knows_which_way_is_better():
    falls = EarlyStoppingSection(metric="val_nmse", min_delta=0.1)
    progress = Progress()
    assert progress.update(1.0, 1, falls)
    assert not progress.update(0.95, 2, falls)
    assert progress.update(0.8, 3, falls)
    assert not progress.update(None, 4, falls)
    assert not progress.update(float("nan"), 5, falls)
    assert (progress.best, progress.best_step, progress.validations_without_improvement) == (0.8, 3, 2)


def test_stop_request_saves_the_step(tiny_run):
    result = tiny_run({"training.total_steps": 100}, stop=StopBefore(5)).run()
    assert result.stopped_by == "SIGTERM"
    assert read_checkpoint(result.checkpoint)["step"] == 4


def test_another_global_batch_is_refused(tiny_run):
    tiny_run({"training.total_steps": 2}).run()
    with pytest.raises(CheckpointError, match=r"global batch of 2 \(2 x 1 accumulated x 1 devices\).* has 4"):
        tiny_run({"training.accumulate": 2}).resume()
    # The same global batch in other parts is the same training, though not bit for bit.
    run = tiny_run({"training.accumulate": 2, "data.batch_size": 1})
    assert run.resume()
    assert any("not bit for bit" in message for message in run.messages)


def test_another_architecture_names_the_first_keys(tiny_run):
    tiny_run({"training.total_steps": 2}).run()
    with pytest.raises(CheckpointError, match=r"another architecture: .*conv_first.weight is \(8, 1, 3, 3\)"):
        tiny_run({"model.embed_dim": 12}).resume()


def test_nothing_to_resume(tiny_run):
    assert tiny_run().resume() is False


def test_end_of_run_by_epochs(tiny_run):
    """Ten slices in batches of two, accumulated twice: two epochs are ten batches, five steps."""
    run = tiny_run({"training.total_steps": None, "training.epochs": 2, "training.accumulate": 2})
    assert run.total_steps == 5


def test_compiled_network_leaves_no_prefix(tiny_run, monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda network: torch.nn.Sequential(network))  # a wrapper, like it
    result = tiny_run({"system.compile": True, "training.total_steps": 2}).run()
    content = read_checkpoint(result.checkpoint)
    assert "conv_first.weight" in content["params"]
    assert "conv_first.weight" in content["params_ema"]


def test_report_18_micro_accumulation_and_global_batch_are_in_the_checkpoint(tiny_run, tmp_path):
    """transformers 25956: resuming with another batch did not rescale the accumulation, silently.

    Here 2 x 2 can go on as 4 x 1 or 1 x 4, the same global batch, and as nothing else.
    """
    result = tiny_run({"training.accumulate": 2, "training.total_steps": 2}).run()
    was = read_checkpoint(result.checkpoint)["batch_sizes"]
    assert (was["batch_size_per_device"], was["accumulate"], was["devices"]) == (2, 2, 1)
    assert was["global_batch_size"] == 2 * 2 * 1
    same = tiny_run({"training.accumulate": 1, "data.batch_size": 4, "training.total_steps": 3})
    assert same.resume()
    assert any("same global batch" in line for line in same.messages)
    other = tiny_run({"training.accumulate": 2, "data.batch_size": 4, "training.total_steps": 3})
    with pytest.raises(CheckpointError, match=r"a global batch of 4 \(2 x 2 accumulated x 1 devices\)"):
        other.resume()
