"""Reconstructions of a whole data set: an oracle, measured k-space, seeds, guidance, several samples."""

import copy

import pytest
import torch
from torch import nn
from torch.utils.data import default_collate

from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.training.data.dataset import build_dataset
from swinmr_profiling.training.data.loader import build_loader
from swinmr_profiling.training.degradation.data_consistency import (
    consistent,
    consistent_channels,
    sampled_error,
)
from swinmr_profiling.training.denoising.denoising_step import to_network_range
from swinmr_profiling.training.denoising.diffusion_reconstruction import build_sampler
from swinmr_profiling.training.denoising.noise_schedule import prediction_target
from swinmr_profiling.training.errors import LossError
from swinmr_profiling.training.evaluation.evaluation import EvaluationOptions, evaluate
from tests.training.conftest import TINY_RUN, merged
from tests.training.denoising.test_denoising_step import CPU, TINY_UNET


class Oracle(nn.Module):
    """Predicts what is right for the images it was given, in the order of the batch."""

    def __init__(self, images, denoising):
        super().__init__()
        self.images, self.denoising, self.calls = to_network_range(images), denoising, []

    def forward(self, x, timesteps):
        self.calls.append(tuple(x.shape))
        noisy = x[:, : self.images.shape[1]]
        signal, spread = self.denoising.schedule.factors(timesteps)
        noise = (noisy - signal * self.images) / spread
        return prediction_target(self.denoising.section.objective, self.images, noise, signal, spread)


class Garbage(nn.Module):
    """What an untrained network might say."""

    def forward(self, x, timesteps):
        channels = x.shape[1] // 2
        return torch.sin(5 * x[:, :channels]) + 0.3 * x[:, channels:].flip(-1)


def config_of(changes=None):
    base = {**TINY_UNET, "model.in_chans": 2, "evaluation.sampling.sampling_steps": 4}
    return config_from_dict(merged(TINY_RUN, copy.deepcopy({**base, **(changes or {})})))


def two_slices(config):
    dataset = build_dataset(config, "val")
    return dataset, default_collate([dataset[0], dataset[1]])


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("sampler", ["ddim", "ancestral"])
def test_an_oracle_gives_the_answer(sampler, channels):
    """Without help from k-space: one channel is the magnitude, two are real and imaginary part."""
    changes = {"evaluation.sampling.sampler": sampler, "model.in_chans": channels}
    config = config_of({**changes, "evaluation.sampling.data_consistency": False})
    dataset, batch = two_slices(config)
    ours = build_sampler(config, None)
    oracle = Oracle(batch["target"], ours.denoising)
    result = ours.reconstruct(oracle, batch, CPU, dataset)
    assert result.shape == (1, 2, channels, 32, 32)
    torch.testing.assert_close(result[0], batch["target"], rtol=0, atol=2e-5)
    assert oracle.calls == [(2, 2 * channels, 32, 32)] * 4


@pytest.mark.parametrize("coils", [1, 3])
def test_an_oracle_agrees_with_k_space_anyway(coils):
    config = config_of({"data.phantom.coils": coils})
    dataset, batch = two_slices(config)
    ours = build_sampler(config, None)
    result = ours.reconstruct(Oracle(batch["target"], ours.denoising), batch, CPU, dataset)
    torch.testing.assert_close(result[0], batch["target"], rtol=0, atol=1e-4)


@pytest.mark.parametrize("sampler", ["ddim", "ancestral"])
def test_measured_k_space_is_never_worse_than_zero_filled(sampler):
    """Whatever the network says: at sampled points a reconstruction is as near to the measurement as zero-filling."""
    config = config_of({"evaluation.sampling.sampler": sampler, "evaluation.sampling.samples_per_slice": 2})
    dataset, batch = two_slices(config)
    with_it = build_sampler(config, None)
    without = build_sampler(config, None, data_consistency=False)
    for one in (with_it, without):
        samples = one.reconstruct(Garbage(), batch, CPU, dataset)
        for index in range(2):
            degraded, mask = dataset.degraded(index)
            # Of the mean of the samples: agreement is linear.
            got, zero_filled = (
                sampled_error(image, degraded, mask, magnitude_only=False)
                for image in (samples.mean(0)[index], batch["input"][index])
            )
            assert zero_filled < 1e-6
            if one.section.data_consistency:
                assert got <= zero_filled + 1e-6
            else:
                assert got > 0.1


def test_agreement_keeps_both_channels():
    """The magnitude of what keeps real and imaginary part is what `consistent` returns."""
    config = config_of({"data.phantom.coils": 2})
    dataset = build_dataset(config, "val")
    degraded, mask = dataset.degraded(0)
    image = torch.randn(2, 32, 32, generator=torch.Generator().manual_seed(0))
    two = consistent_channels(image, degraded, mask, magnitude_only=False)
    assert two.shape == (2, 32, 32)
    torch.testing.assert_close(two.norm(dim=0), consistent(image, degraded, mask, magnitude_only=False))


def test_seeds_are_the_slices_own():
    """A slice has the same noise alone and in a batch; another seed, and another sample, have other noise."""
    config = config_of({"evaluation.sampling.samples_per_slice": 2})
    dataset, batch = two_slices(config)
    ours = build_sampler(config, None)
    together = ours.reconstruct(Garbage(), batch, CPU, dataset)
    alone = ours.reconstruct(Garbage(), default_collate([dataset[1]]), CPU, dataset)
    torch.testing.assert_close(together[:, 1], alone[:, 0])
    assert (together[0] - together[1]).abs().max() > 1e-3
    other = build_sampler(config, None, seed=1).reconstruct(Garbage(), batch, CPU, dataset)
    assert (together - other).abs().max() > 1e-3


def test_guidance_asks_twice_and_weighs_the_condition():
    """A network that predicts its condition: without it 0, so that guidance 2.5 gives 2.5 x the condition."""

    class Echo(nn.Module):
        def forward(self, x, timesteps):
            return x[:, 2:]

    changes = {
        "training.diffusion.objective": "x0",
        "evaluation.sampling": {
            "guidance": 2.5,
            "sampling_steps": 1,
            "data_consistency": False,
            "clip": False,
        },
    }
    config = config_of(changes)
    dataset, batch = two_slices(config)
    ours = build_sampler(config, None)
    assert ours.calls == 2
    result = ours.reconstruct(Echo(), batch, CPU, dataset)[0]
    torch.testing.assert_close(result, 2.5 * batch["input"])


def test_clipping_holds_the_estimate():
    class Loud(nn.Module):
        def forward(self, x, timesteps):
            return torch.full_like(x[:, :2], 7.0)

    changes = {"training.diffusion.objective": "x0", "evaluation.sampling.data_consistency": False}
    config = config_of(changes)
    dataset, batch = two_slices(config)
    ours = build_sampler(config, None)
    assert ours.reconstruct(Loud(), batch, CPU, dataset).unique().tolist() == [1.0]
    assert build_sampler(config, None, clip=False).reconstruct(Loud(), batch, CPU).unique().tolist() == [7.0]


def test_a_network_of_another_size_is_refused():
    class Wide(nn.Module):
        def forward(self, x, timesteps):
            return x

    config = config_of()
    dataset, batch = two_slices(config)
    with pytest.raises(LossError, match="a prediction has the size of its image"):
        build_sampler(config, None).reconstruct(Wide(), batch, CPU, dataset)


def test_evaluation_measures_the_mean_and_the_spread_of_samples():
    config = config_of({"evaluation.sampling.samples_per_slice": 3})
    dataset = build_dataset(config, "val")
    sampler = build_sampler(config, None)
    options = EvaluationOptions(sampler=sampler, pictures=1)
    loader = build_loader(config, "val", dataset=dataset)
    result = evaluate(Garbage(), loader, CPU, options)
    batch = default_collate([dataset[0]])
    samples = sampler.reconstruct(Garbage(), batch, CPU, dataset)[:, 0]
    scale, offset = float(batch["scale"]), float(batch["offset"])
    magnitudes = samples.norm(dim=1) * scale + offset
    first = result.slices[0]
    assert first.spread.samples == 3
    top = first.data_range
    assert first.spread.pixel_std == pytest.approx(float(magnitudes.std(0).mean()) / top, rel=1e-4)
    mean = samples.mean(0).norm(dim=0) * scale + offset
    target = batch["target"][0].norm(dim=0) * scale + offset
    error = float((mean - target).square().mean())
    assert first.reconstruction["psnr_db"] == pytest.approx(
        float(10 * torch.log10(torch.tensor(top**2 / error))), abs=1e-3
    )
    assert first.reconstruction["sampled_kspace_error"] < 1e-5
    assert result.pictures[0].deviation.shape == (32, 32)
