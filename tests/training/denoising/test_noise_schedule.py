"""Schedules and predictions against diffusers' own schedulers; weights by hand."""

import pytest
import torch
from diffusers import DDPMScheduler

from swinmr_profiling.configs.sections.denoiser import DiffusionSection
from swinmr_profiling.training.denoising.noise_schedule import (
    build_schedule,
    min_snr_weights,
    predicted_image,
    prediction_target,
)

THEIR_NAMES = {"linear": "linear", "cosine": "squaredcos_cap_v2"}


def schedule_of(name, timesteps=1000, **keys):
    return build_schedule(DiffusionSection(schedule=name, timesteps=timesteps, **keys))


@pytest.mark.parametrize("timesteps", [10, 1000])
@pytest.mark.parametrize("name", THEIR_NAMES)
def test_schedules_are_diffusers_own(name, timesteps):
    theirs = DDPMScheduler(num_train_timesteps=timesteps, beta_schedule=THEIR_NAMES[name])
    ours = schedule_of(name, timesteps)
    assert ours.timesteps == timesteps
    torch.testing.assert_close(ours.kept.float(), theirs.alphas_cumprod, rtol=0, atol=1e-6)


def test_other_betas_reach_the_schedule():
    theirs = DDPMScheduler(beta_start=0.001, beta_end=0.01)
    ours = schedule_of("linear", beta_start=0.001, beta_end=0.01)
    torch.testing.assert_close(ours.kept.float(), theirs.alphas_cumprod, rtol=0, atol=1e-6)


def test_the_first_and_last_step_by_hand():
    """a_0 = 1 - 1e-4; of two steps of 0.1 and 0.5: 0.9 and 0.9 x 0.5. The cosine's last beta is held at 0.999."""
    assert float(schedule_of("linear").kept[0]) == pytest.approx(1 - 1e-4, abs=1e-12)
    assert schedule_of("linear", 2, beta_start=0.1, beta_end=0.5).kept.tolist() == pytest.approx([0.9, 0.45])
    cosine = schedule_of("cosine").kept
    assert float(cosine[-1] / cosine[-2]) == pytest.approx(0.001)


def test_noise_and_velocity_are_diffusers_own():
    generator = torch.Generator().manual_seed(0)
    image, noise = (torch.randn(4, 2, 5, 5, generator=generator) for _ in range(2))
    timesteps = torch.tensor([0, 10, 500, 999])
    theirs = DDPMScheduler(beta_schedule="squaredcos_cap_v2")
    signal, spread = schedule_of("cosine").factors(timesteps)
    noisy = signal * image + spread * noise
    torch.testing.assert_close(noisy, theirs.add_noise(image, noise, timesteps), rtol=1e-5, atol=1e-5)
    velocity = prediction_target("v", image, noise, signal, spread)
    torch.testing.assert_close(velocity, theirs.get_velocity(image, noise, timesteps), rtol=1e-5, atol=1e-5)
    assert prediction_target("epsilon", image, noise, signal, spread) is noise
    assert prediction_target("x0", image, noise, signal, spread) is image


@pytest.mark.parametrize("objective", ["epsilon", "v", "x0"])
def test_a_right_prediction_gives_the_image(objective):
    generator = torch.Generator().manual_seed(0)
    image, noise = (torch.randn(3, 1, 4, 4, generator=generator, dtype=torch.float64) for _ in range(2))
    signal, spread = (x.double() for x in schedule_of("linear").factors(torch.tensor([0, 400, 900])))
    target = prediction_target(objective, image, noise, signal, spread)
    noisy = signal * image + spread * noise
    # float32 factors do not lie on the unit circle to the last digit, which v relies on.
    torch.testing.assert_close(
        predicted_image(objective, target, noisy, signal, spread), image, rtol=0, atol=1e-6
    )


def test_min_snr_weights_by_hand():
    """SNR 0.25, 5 and 20, gamma 5: capped 0.25, 5, 5."""
    snr = torch.tensor([0.25, 5.0, 20.0])
    assert min_snr_weights("x0", snr, 5.0).tolist() == [0.25, 5.0, 5.0]
    assert min_snr_weights("epsilon", snr, 5.0).tolist() == [1.0, 1.0, 0.25]
    assert min_snr_weights("v", snr, 5.0).tolist() == pytest.approx([0.2, 5 / 6, 5 / 21])
    assert min_snr_weights("v", snr, None).tolist() == [1.0, 1.0, 1.0]


def test_signal_to_noise_by_hand():
    """Kept 0.9 and 0.45: 9 and 9 / 11."""
    schedule = schedule_of("linear", 2, beta_start=0.1, beta_end=0.5)
    assert schedule.signal_to_noise(torch.tensor([0, 1])).tolist() == pytest.approx([9, 9 / 11])
