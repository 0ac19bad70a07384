"""Sampling against diffusers' schedulers, step for step, and with a denoiser that knows the answer."""

import pytest
import torch
from diffusers import DDIMScheduler, DDPMScheduler

from swinmr_profiling.configs.sections.denoiser import DiffusionSection
from swinmr_profiling.training.denoising.noise_schedule import (
    build_schedule,
    guided,
    predicted_image,
    prediction_target,
    sample,
    sampling_timesteps,
    spacing,
    step_back,
)

THEIR_PREDICTIONS = {"epsilon": "epsilon", "v": "v_prediction", "x0": "sample"}
THEIR_SCHEDULES = {"linear": "linear", "cosine": "squaredcos_cap_v2"}


def some_network(noisy, timestep):
    """Smooth in both arguments, of no use."""
    return torch.tanh(0.7 * noisy + timestep / 1000) * 0.9


def our_sample(schedule, objective, sampler, steps, start, generator):
    noises = [start]

    def estimate(noisy, timestep):
        signal, spread = schedule.factors(torch.tensor([timestep]))
        return predicted_image(objective, some_network(noisy, timestep), noisy, signal, spread)

    def draw():
        return noises.pop() if noises else torch.randn(start.shape, generator=generator)

    return sample(estimate, schedule, steps, sampler, draw)


# Divisors of 1000: of others diffusers' DDIM steps to a time step that is not its own next one.
@pytest.mark.parametrize("steps", [1, 8, 50])
@pytest.mark.parametrize(("name", "objective"), [("linear", "epsilon"), ("cosine", "v"), ("linear", "x0")])
@pytest.mark.parametrize("sampler", ["ddim", "ancestral"])
def test_every_step_is_that_of_diffusers(sampler, name, objective, steps):
    options = {
        "beta_schedule": THEIR_SCHEDULES[name],
        "prediction_type": THEIR_PREDICTIONS[objective],
        "clip_sample": False,
        "timestep_spacing": "trailing",
    }
    if sampler == "ddim":
        theirs = DDIMScheduler(**options, set_alpha_to_one=True)
    else:
        theirs = DDPMScheduler(**options, variance_type="fixed_small")
    theirs.set_timesteps(steps)
    assert theirs.timesteps.tolist() == sampling_timesteps(1000, steps)
    start = torch.randn(2, 1, 4, 4, generator=torch.Generator().manual_seed(1))
    noisy, generator = start, torch.Generator().manual_seed(2)
    for timestep in theirs.timesteps:
        output = some_network(noisy, int(timestep))
        noisy = theirs.step(output, timestep, noisy, generator=generator).prev_sample
    schedule = build_schedule(DiffusionSection(schedule=name))
    ours = our_sample(schedule, objective, sampler, steps, start, torch.Generator().manual_seed(2))
    # From pure noise an error in the last digit of a_t grows: the image is noise over sqrt(a) ~ 160.
    torch.testing.assert_close(ours, noisy, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("steps", [1, 3, 50, 1000])
@pytest.mark.parametrize("objective", ["epsilon", "v", "x0"])
@pytest.mark.parametrize("sampler", ["ddim", "ancestral"])
def test_a_denoiser_that_knows_the_answer_gives_it(sampler, objective, steps):
    generator = torch.Generator().manual_seed(0)
    answer = torch.randn(2, 1, 4, 4, generator=generator)
    schedule = build_schedule(DiffusionSection())

    def estimate(noisy, timestep):
        signal, spread = schedule.factors(torch.tensor([timestep]))
        noise = (noisy - signal * answer) / spread
        output = prediction_target(objective, answer, noise, signal, spread)
        return predicted_image(objective, output, noisy, signal, spread)

    result = sample(
        estimate, schedule, steps, sampler, lambda: torch.randn(answer.shape, generator=generator)
    )
    torch.testing.assert_close(result, answer, rtol=0, atol=1e-5)


def test_the_time_steps():
    assert sampling_timesteps(1000, 4) == [999, 749, 499, 249]
    assert sampling_timesteps(10, 10) == list(range(9, -1, -1))
    for steps in (0, 11):
        with pytest.raises(ValueError, match=f"{steps} sampling steps of 10"):
            sampling_timesteps(10, steps)


def test_a_step_by_hand():
    """kept 0.36 to 0.64: x = 0.6 y + 0.8 n becomes 0.8 y + 0.6 n; with eta 1 part of the noise is new.

    deviation^2 = 0.36 / 0.64 x (1 - 0.36 / 0.64) = 0.5625 x 0.4375.
    """
    image, noise, fresh = torch.tensor([2.0]), torch.tensor([1.0]), torch.tensor([-1.0])
    noisy = 0.6 * image + 0.8 * noise
    assert float(step_back(noisy, image, 0.36, 0.64, 0.0, None)) == pytest.approx(0.8 * 2 + 0.6)
    variance = 0.5625 * 0.4375
    expected = 0.8 * 2 + (0.36 - variance) ** 0.5 - variance**0.5
    assert float(step_back(noisy, image, 0.36, 0.64, 1.0, fresh)) == pytest.approx(expected)
    assert float(step_back(noisy, image, 0.36, 1.0, 1.0, None)) == pytest.approx(2.0)


def test_guidance_by_hand():
    with_condition, without = torch.tensor([3.0]), torch.tensor([1.0])
    assert [float(guided(with_condition, without, w)) for w in (0.0, 1.0, 2.5)] == [1.0, 3.0, 6.0]


@pytest.mark.parametrize("steps", [7, 30, 48, 999])
def test_steps_that_do_not_divide_the_schedule_say_what_diffusers_takes(steps):
    """1000 / 30 = 33.3: ours are round(1000 - 33.3 i) - 1; diffusers' "leading" are multiples of 33, from 957 on."""
    theirs = {}
    for spacing_ in ("trailing", "leading"):
        scheduler = DDIMScheduler(num_train_timesteps=1000, timestep_spacing=spacing_)
        scheduler.set_timesteps(steps)
        theirs[spacing_] = scheduler.timesteps.tolist()
    assert sampling_timesteps(1000, steps) == theirs["trailing"]
    text = spacing(1000, steps)
    own, leading = (theirs[key] for key in ("trailing", "leading"))
    assert f"trailing, {own[0]}, {own[1]}, ..., {own[-1]} of 1000" in text
    assert f"takes {leading[0]}, {leading[1]}, ..., {leading[-1]}" in text
