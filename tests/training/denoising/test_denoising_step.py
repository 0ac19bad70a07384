"""A denoiser's micro-batches by hand, its training bit for bit after a resumption, its loss, and that it learns."""

import copy
import json

import h5py
import numpy as np
import pytest
import torch
from torch.utils.data import default_collate

from swinmr_profiling.configs import config_from_dict, load_config
from swinmr_profiling.training.data.dataset import build_dataset
from swinmr_profiling.training.denoising.denoising_step import (
    build_denoising,
    build_preparation,
    from_network_range,
    to_network_range,
)
from swinmr_profiling.training.distributed import World
from swinmr_profiling.training.errors import DataError, LossError
from swinmr_profiling.training.run.checkpoints import read_checkpoint
from swinmr_profiling.training.run.loop import TrainingRun
from swinmr_profiling.training.run.stopping import StopRequest
from swinmr_profiling.training.setup.step_memory import estimate_step
from swinmr_profiling.training.step.losses import DenoisingLoss, WeightedTarget, build_loss
from swinmr_profiling.training.step.training_step import training_step
from tests.conftest import REPOSITORY
from tests.training.conftest import TINY_RUN, merged
from tests.training.run.test_loop import StopBefore, assert_same_bits

TINY_UNET = {
    "model": {
        "net_type": "unet_denoiser",
        "img_size": 32,
        "base_channels": 8,
        "channel_multipliers": [1, 2],
        "num_res_blocks": 1,
        "attention_resolutions": [16],
        "head_channels": 8,
        "num_groups": 4,
        "drop_rate": 0.1,
    },
    "training.diffusion": {
        "objective": "v",
        "schedule": "cosine",
        "min_snr_gamma": 5.0,
        "condition_dropout": 0.2,
    },
}
CPU = torch.device("cpu")


def config_of(changes=None):
    return config_from_dict(merged(TINY_RUN, copy.deepcopy({**TINY_UNET, **(changes or {})})))


def batch_of(channels=1, size=4, count=2, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shape = (count, channels, size, size)
    return {
        "input": torch.rand(shape, generator=generator),
        "target": torch.rand(shape, generator=generator),
        "name": [f"slice {number}" for number in range(count)],
    }


def test_ranges():
    magnitudes, parts = torch.tensor([0.0, 0.5, 1.0]).reshape(1, 1, 1, 3), torch.rand(1, 2, 1, 3)
    assert to_network_range(magnitudes).flatten().tolist() == [-1, 0, 1]
    assert torch.equal(from_network_range(to_network_range(magnitudes)), magnitudes)
    assert to_network_range(parts) is parts


def test_a_micro_batch_by_hand():
    """The image of 0..1 becomes -1..1, the condition stands behind it, a dropped condition is 0."""
    denoising = build_denoising(config_of({"training.diffusion.objective": "epsilon"}))
    batch, noise = batch_of(), torch.randn(2, 1, 4, 4)
    times = torch.tensor([100, 900])
    made = denoising.micro_batch(batch, CPU, times, noise, torch.tensor([False, True]))
    kept = denoising.schedule.kept[times].float()
    for sample in range(2):
        image = 2 * batch["target"][sample] - 1
        noisy = kept[sample].sqrt() * image + (1 - kept[sample]).sqrt() * noise[sample]
        torch.testing.assert_close(made.inputs[0][sample, :1], noisy)
    torch.testing.assert_close(made.inputs[0][0, 1:], 2 * batch["input"][0] - 1)
    assert not made.inputs[0][1, 1:].any()
    assert torch.equal(made.inputs[1], times)
    assert torch.equal(made.target.value, noise)
    snr = kept / (1 - kept)
    torch.testing.assert_close(made.target.weight, snr.clamp_max(5) / snr)
    assert made.names == ["slice 0", "slice 1"]


def test_without_a_condition_the_image_is_alone():
    changes = {"model.conditional": False, "training.diffusion.condition_dropout": 0.0}
    prepare = build_preparation(config_of(changes))
    assert prepare(batch_of(), CPU, 0, 0).inputs[0].shape == (2, 1, 4, 4)


def test_the_loss_by_hand():
    """Errors 1 and 3 in two samples of two pixels: squares 1 and 9, weights 0.5 and 2: (0.5 + 18) / 2."""
    output = torch.tensor([[1.0, -1.0], [3.0, 3.0]]).reshape(2, 1, 1, 2)
    target = WeightedTarget(torch.zeros(2, 1, 1, 2), torch.tensor([0.5, 2.0]))
    value = DenoisingLoss("mse", "v")(output, target)
    assert float(value.total) == pytest.approx(9.25)
    assert {name: float(part) for name, part in value.parts.items()} == {"mse": pytest.approx(9.25)}
    assert float(DenoisingLoss("l1", "v")(output, target).total) == pytest.approx((0.5 + 6) / 2)
    assert float(DenoisingLoss("mse", "v")(output, torch.zeros(2, 1, 1, 2)).total) == pytest.approx(5.0)
    with pytest.raises(LossError, match="compares equal shapes"):
        DenoisingLoss("mse", "v")(output, torch.zeros(2, 1, 2, 1))


def test_a_denoisers_config_names_its_loss():
    assert build_loss(config_of()).label == "mse of v, min-SNR weights (gamma 5)"
    plain = config_of({"training.loss.type": "l1", "training.diffusion": {}})
    assert build_loss(plain).label == "l1 of epsilon"


def test_noise_is_the_samples_own_whatever_the_devices():
    """Two ranks with 2 samples each draw what one process with 4 draws; the next batch and epoch draw anew."""
    config, four = config_of(), batch_of(count=4)
    whole = build_preparation(config)(four, CPU, 3, 1)
    halves = []
    for rank in range(2):
        part = {key: value[2 * rank : 2 * rank + 2] for key, value in four.items()}
        halves.append(build_preparation(config, rank, 2)(part, CPU, 3, 1))
    for position in range(2):
        joined = torch.cat([half.inputs[position] for half in halves])
        assert torch.equal(whole.inputs[position], joined)
    for epoch, number in ((3, 2), (4, 1)):
        assert not torch.equal(build_preparation(config)(four, CPU, epoch, number).inputs[0], whole.inputs[0])


def test_time_steps_are_uniform_and_conditions_dropped_as_often_as_asked():
    prepare = build_preparation(config_of())
    made = prepare(batch_of(count=4000, size=1), CPU, 0, 0)
    times = made.inputs[1].numpy()
    assert (times.min(), times.max()) == (0, 999)
    assert np.histogram(times, 4, (0, 1000))[0] == pytest.approx([1000] * 4, abs=120)
    assert float((made.inputs[0][:, 1] == 0).float().mean()) == pytest.approx(0.2, abs=0.025)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("accumulate", [1, 2])
def test_resumption_is_bit_for_bit(tiny_run, accumulate):
    common = {**TINY_UNET, "training.accumulate": accumulate}
    straight = tiny_run(common, folder="straight").run()
    stopped = tiny_run(common, folder="parts", stop=StopBefore(5)).run()
    assert (stopped.step, stopped.stopped_by) == (4, "SIGTERM")
    torch.manual_seed(999)  # what a new process would not have
    second = tiny_run(common, folder="parts")
    assert second.resume() is True
    resumed = second.run()
    assert_same_bits(read_checkpoint(straight.checkpoint), read_checkpoint(resumed.checkpoint))


def test_validation_is_the_loss_and_picks_the_best_by_it(tiny_run, tmp_path):
    run = tiny_run(TINY_UNET)
    result = run.run()
    values = result.last_validation
    assert values["val_psnr"] is None
    assert values["zero_filled_psnr"] > 10
    assert run.progress.best == pytest.approx(
        min(
            line["val_loss"]
            for line in map(json.loads, (tmp_path / "results/tiny/logs/log.jsonl").read_text().splitlines())
            if line["kind"] == "validation"
        )
    )
    assert (tmp_path / "results/tiny/checkpoints/best.pth").exists()
    # The same noise every time: two validations of the same weights agree to the last digit.
    assert run._validate(None)[0].loss == run._validate(None)[0].loss == values["val_loss"]


def test_validation_samples_where_it_is_asked_to(tiny_run):
    result = tiny_run({**TINY_UNET, "evaluation.sampling.validation_steps": 2}).run()
    assert result.last_validation["val_psnr"] is not None


def test_validation_by_k_space_needs_the_coils_sensitivities(tiny_run, tmp_path):
    """Refused before the first step: a sampler that keeps measured k-space cannot do so for unknown coils."""
    coils = np.ones((2, 3, 32, 32), dtype=np.complex64)
    with h5py.File(tmp_path / "scan.h5", "w") as opened:
        opened["kspace"] = coils
    data = {"data.source": "fastmri", "data.train_dir": str(tmp_path), "data.val_dir": str(tmp_path)}
    asked = {**TINY_UNET, **data, "evaluation.sampling.validation_steps": 2}
    with pytest.raises(
        DataError, match=r"scan\.h5 has several coils without sensitivities, which data consistency"
    ):
        tiny_run(asked)
    # Without k-space, or without images, nothing of the coils is asked for.
    for allowed in (
        {"evaluation.sampling.data_consistency": False},
        {"evaluation.sampling.validation_steps": 0},
    ):
        tiny_run({**asked, **allowed})


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ({"net_type": "dit_denoiser", "img_size": 32, "num_classes": 10}, "the data has no classes"),
        ({"net_type": "dit_denoiser", "img_size": 32, "out_chans": 2}, "model.out_chans is 2"),
        (
            {
                "net_type": "diffusers",
                "class": "UNet2DConditionModel",
                "config": {"in_channels": 1},
                "inputs": {"encoder_hidden_states": [7, 12]},
            },
            "the data has no encoder_hidden_states",
        ),
    ],
)
def test_what_can_only_be_profiled_is_not_trained(model, said):
    raw = merged(TINY_RUN, {"model": model})
    with pytest.raises(LossError, match=said):
        build_preparation(config_from_dict(raw))


@pytest.mark.slow
def test_a_step_is_estimated_without_running_it():
    from swinmr_profiling.models.registry import build_model

    config = config_of()
    estimate = estimate_step(build_model(config), config)
    assert estimate.step_bytes > estimate.parameter_bytes > 0


def test_the_dataset_gives_a_denoiser_what_it_needs():
    config = config_of({"model.in_chans": 2})
    batch = default_collate([build_dataset(config, "train")[0]])
    made = build_preparation(config)(batch, CPU, 0, 0)
    assert made.inputs[0].shape == (1, 4, 16, 16)
    assert made.target.value.shape == (1, 2, 16, 16)


@pytest.mark.slow
def test_two_hundred_steps_on_packaged_mri(tmp_path):
    """The small U-Net of configs/, its own seed: the last 50 steps' mean loss is at most 0.8 of the first 50's."""
    raw = load_config(REPOSITORY / "configs/denoiser_unet_small.json").config.model_dump(mode="json")
    raw["paths"]["root"] = str(tmp_path)
    raw["data"]["num_workers"] = 0
    raw["training"]["total_steps"] = 200
    run = TrainingRun(config_from_dict(raw), World(0, 1, CPU), StopRequest())
    batches = run._stream()
    losses = [float(training_step(run.state, run.settings, batches).loss) for _ in range(200)]
    assert np.mean(losses[-50:]) <= 0.8 * np.mean(losses[:50])
