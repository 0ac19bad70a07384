"""Calls: of the scheduler, of guidance, of text encoders."""

import pytest

from swinmr_profiling.profiler.pipelines.defined.component_counts import ComponentCounts
from swinmr_profiling.profiler.pipelines.defined.cost import cost_pipeline
from swinmr_profiling.profiler.pipelines.defined.cost_records import PipelineRequest
from swinmr_profiling.profiler.pipelines.defined.definition import load_pipeline
from swinmr_profiling.profiler.pipelines.defined.schedule import (
    count_timesteps,
    make_scheduler,
    replace_scheduler,
    scheduler_class_name,
)
from swinmr_profiling.profiler.pipelines.errors import PipelineError

pytest.importorskip("diffusers")
SMALL = {"height": 64, "width": 64}


@pytest.fixture(scope="module")
def counts():
    return ComponentCounts()


@pytest.mark.parametrize(
    ("scheduler", "calls"),
    [
        ("PNDM", 11),  # with skip_prk_steps, as Stable Diffusion has it
        ("Heun", 19),
        ("KDPM2", 19),
        ("KDPM2A", 19),
        ("DDIM", 10),
        ("Euler", 10),
        ("DPM++ 2M", 10),
        ("UniPC", 10),
        ("LCM", 10),
        ("DDPM", 10),
    ],
)
def test_denoiser_times_of_10_steps(scheduler, calls):
    own = make_scheduler("PNDMScheduler", {"skip_prk_steps": True, "steps_offset": 1})
    assert count_timesteps(replace_scheduler(own, scheduler), 10) == calls


def test_pndm_with_its_runge_kutta_start():
    # 4 calls for each of the first three steps, less what they share: 12 + 7 = 19.
    assert count_timesteps(make_scheduler("PNDMScheduler", {}), 10) == 19


def test_flow_matching_does_not_mix():
    flow = make_scheduler("FlowMatchEulerDiscreteScheduler", {})
    with pytest.raises(PipelineError, match="not for flow matching"):
        replace_scheduler(flow, "DDIM")
    with pytest.raises(PipelineError, match="is for flow matching"):
        replace_scheduler(make_scheduler("DDIMScheduler", {}), "FlowMatchEuler")
    assert (
        count_timesteps(make_scheduler("FlowMatchEulerDiscreteScheduler", {"use_dynamic_shifting": True}), 7)
        == 7
    )


def test_unknown_schedulers_and_steps():
    with pytest.raises(PipelineError, match="DDIMScheduler"):
        scheduler_class_name("DDIN")
    with pytest.raises(PipelineError, match="takes no 5000 steps"):
        count_timesteps(make_scheduler("DDIMScheduler", {}), 5000)


def test_image_to_image_runs_the_late_steps(counts):
    # strength 0.3 of 50 steps: the last 15.
    cost = cost_pipeline(load_pipeline("sdxl-refiner"), PipelineRequest(**SMALL, steps=50), counts)
    assert cost.timesteps == 15
    with pytest.raises(PipelineError, match="leave none"):
        cost_pipeline(load_pipeline("sdxl-refiner"), PipelineRequest(**SMALL, steps=3), counts)


def text_calls(cost):
    return [component.calls for component in cost.of_role("text_encoder")]


@pytest.mark.slow
def test_doubled_batch(counts):
    definition = load_pipeline("sd15")
    guided = cost_pipeline(definition, PipelineRequest(**SMALL, batch=2), counts)
    plain = cost_pipeline(definition, PipelineRequest(**SMALL, batch=2, guidance_scale=1.0), counts)
    assert (guided.of_role("denoiser")[0].call_batch, plain.of_role("denoiser")[0].call_batch) == (4, 2)
    assert guided.of_role("denoiser")[0].calls == plain.of_role("denoiser")[0].calls == 51
    assert (text_calls(guided), text_calls(plain)) == ([2], [1])
    assert guided.macs_per_step == 2 * plain.macs_per_step == plain.macs_per_step_with_guidance


@pytest.mark.slow
def test_two_calls(counts):
    cost = cost_pipeline(load_pipeline("lumina-image-2.0"), PipelineRequest(**SMALL, steps=4), counts)
    (denoiser,) = cost.of_role("denoiser")
    assert (denoiser.calls, denoiser.call_batch, denoiser.calls // cost.timesteps) == (8, 1, 2)
    assert cost.macs_per_step == 2 * denoiser.macs_per_call


@pytest.mark.slow
def test_distilled_guidance_is_no_second_pass(counts):
    definition = load_pipeline("flux1-schnell")
    request = PipelineRequest(**SMALL, steps=4, guidance_scale=3.5)
    cost = cost_pipeline(definition, request, counts)
    assert (cost.is_guided, cost.of_role("denoiser")[0].calls, text_calls(cost)) == (False, 4, [1, 1])
    assert cost.macs_per_step_with_guidance is None
    true = cost_pipeline(definition, PipelineRequest(**SMALL, steps=4, true_cfg_scale=4.0), counts)
    assert (true.of_role("denoiser")[0].calls, text_calls(true)) == (8, [2, 2])


@pytest.mark.slow
def test_empty_prompts_that_are_zeros_are_not_encoded(counts):
    definition = load_pipeline("sdxl-base")
    assert text_calls(cost_pipeline(definition, PipelineRequest(**SMALL), counts)) == [1, 1]
    negative = PipelineRequest(**SMALL, negative_prompt=True)
    assert text_calls(cost_pipeline(definition, negative, counts)) == [2, 2]


@pytest.mark.slow
def test_kandinsky_2_2_runs_a_prior_and_encodes_an_empty_image(counts):
    cost = cost_pipeline(
        load_pipeline("kandinsky-2.2"), PipelineRequest(height=100, width=100, steps=5), counts
    )
    (prior,) = cost.of_role("prior")
    (image,) = cost.of_role("image_encoder")
    assert (prior.calls, prior.call_batch, image.calls) == (25, 2, 1)
    # ceil(100 / 64) * 64 = 128 px, a latent of 16.
    assert (cost.geometry.computed_height, cost.geometry.latent_height) == (128, 16)
    assert "128 x 128" in cost.notes[0]


@pytest.mark.slow
def test_binned_resolutions(counts):
    definition = load_pipeline("sana-600m-1024")
    cost = cost_pipeline(
        definition, PipelineRequest(height=512, width=512, steps=2, guidance_scale=1.0), counts
    )
    assert (cost.geometry.computed_height, cost.geometry.latent_height) == (1024, 32)
    assert "512 x 512 at 1024 x 1024" in cost.notes[0]


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("sd15", {"height": 500}, "height 500: this pipeline takes multiples of 8 px: use 496 or 504"),
        ("flux1-dev", {"width": 72}, "width 72: this pipeline takes multiples of 16 px: use 64 or 80"),
        ("sd15", {"steps": 0}, "steps 0"),
        ("sd15", {"batch": 0}, "batch 0"),
        ("sd15", {"guidance_scale": 0.5}, "guidance scale 0.5: at least 1"),
        ("sd15", {"true_cfg_scale": 2.0}, "no true_cfg_scale"),
        ("sd15", {"prompt_tokens": 0}, "prompt tokens 0"),
    ],
)
def test_requests_that_are_refused(counts, name, change, words):
    with pytest.raises(PipelineError, match=words):
        cost_pipeline(load_pipeline(name), PipelineRequest(**{**SMALL, **change}), counts)


@pytest.mark.slow
def test_a_second_negative_step_costs_what_the_first_does(counts):
    """Totals are a straight line in the denoiser's calls, above what runs once."""
    definition = load_pipeline("sd15")
    totals = [
        cost_pipeline(definition, PipelineRequest(**SMALL, steps=steps, scheduler="DDIM"), counts).macs
        for steps in (10, 20, 30)
    ]
    assert totals[2] - totals[1] == totals[1] - totals[0] > 0
