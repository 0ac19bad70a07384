"""Live pipelines: what the hooks saw, counted, is what the components cost one by one; and nothing is left behind."""

import inspect

import pytest
import torch
from torch import nn

from swinmr_profiling.profiler.compute import create_profiler
from swinmr_profiling.profiler.counting import count_forward
from swinmr_profiling.profiler.pipelines.defined.schedule import replace_scheduler
from tests.tiny_pipelines import SIDE, TOKENS, VAE_FACTOR

pytest.importorskip("diffusers")
LATENT = SIDE // VAE_FACTOR


class Decode(nn.Module):
    def __init__(self, vae):
        super().__init__()
        self.vae = vae

    def forward(self, latent):
        return self.vae.decode(latent).sample


def hooked_calls(module):
    calls = []
    handle = module.register_forward_hook(lambda *_: calls.append(1))
    return calls, handle


def state_of(pipe):
    """All that a profiler could leave behind on the networks."""
    seen = {}
    for name, network in pipe.components.items():
        if isinstance(network, nn.Module):
            for path, module in network.named_modules():
                hooks = [len(v) for k, v in vars(module).items() if k.endswith("_hooks")]
                seen[name, path] = (hooks, module.training, sorted(vars(module)), type(module))
            seen[name] = {key: value.clone() for key, value in network.state_dict().items()}
    return seen


def same(before, after):
    assert before.keys() == after.keys()
    for key, value in before.items():
        if isinstance(value, dict):
            assert value.keys() == after[key].keys()
            assert all(torch.equal(tensor, after[key][name]) for name, tensor in value.items())
        else:
            assert value == after[key], key


# Calls of 4 steps: PNDM one more, Heun two a step but one for the last.
@pytest.mark.sampled(1)
@pytest.mark.parametrize(("scheduler", "times"), [("PNDM", 5), ("DDIM", 4), ("Heun", 7)])
@pytest.mark.parametrize(("scale", "passes"), [(7.5, 2), (1.0, 1)])
def test_total_is_components_times_calls_to_the_unit(load_tiny_pipeline, scheduler, times, scale, passes):
    pipe = load_tiny_pipeline("unet")
    pipe.scheduler = replace_scheduler(pipe.scheduler, scheduler)
    unet_inputs = (torch.randn(passes, 4, LATENT, LATENT), torch.tensor(1), torch.randn(passes, TOKENS, 32))
    unet = count_forward(pipe.unet, unet_inputs).macs
    text = count_forward(pipe.text_encoder, (torch.zeros(1, TOKENS, dtype=torch.int64),)).macs
    decode = count_forward(Decode(pipe.vae), (torch.randn(1, 4, LATENT, LATENT),)).macs
    before = state_of(pipe)
    unet_calls, unet_handle = hooked_calls(pipe.unet)
    text_calls, text_handle = hooked_calls(pipe.text_encoder)
    profiler = create_profiler()
    with profiler.watch(pipe):
        pipe("a cat", height=SIDE, width=SIDE, num_inference_steps=4, guidance_scale=scale)
    unet_handle.remove()
    text_handle.remove()
    profile = profiler.profile_pipeline(pipe, (1, 3, SIDE, SIDE), 4, "tiny", scale)
    assert profile["enabled"], profile
    assert (len(unet_calls), len(text_calls)) == (times, passes)
    assert profile["denoiser_calls"] == times
    expected = unet * times + text * passes + decode
    assert profile["total_macs"] == expected
    assert profile["predicted_total_macs"] == expected
    assert profile["total_flops"] == 2 * expected
    assert (profile["macs_per_step"], profile["vae_macs"], profile["text_encoder_macs"]) == (
        unet,
        decode,
        text * passes,
    )
    assert profile["incomplete"] == {}
    assert sum(profile["by_kind"].values()) == expected
    assert profile["by_kind"]["attention"] > 0
    assert profile["softmax_macs"] > 0
    assert profile["denoiser_steps"] == times
    # A run that is counted is no measurement of time.
    assert (profile["inference_time_seconds"], profile["throughput_tflops"]) == (None, None)
    assert profile["operators"] > 500
    assert profile["counting_us_per_operator"] > 0
    assert profile["device_peak_tflops"] is None
    same(before, state_of(pipe))


@pytest.mark.slow
def test_a_transformer_pipeline(load_tiny_pipeline):
    pipe = load_tiny_pipeline("transformer")
    profiler = create_profiler()
    with profiler.watch(pipe):
        pipe("a cat", height=SIDE, width=SIDE, num_inference_steps=3, guidance_scale=5.0)
    profile = profiler.profile_pipeline(pipe, (1, 3, SIDE, SIDE), 3, "tiny", 5.0)
    assert profile["enabled"], profile
    assert profile["model_component"] == "transformer"
    # 77 CLIP tokens, and 256 zeros in place of the T5 that was left out.
    inputs = {
        "hidden_states": torch.randn(2, 4, LATENT, LATENT),
        "encoder_hidden_states": torch.randn(2, TOKENS + 256, 64),
        "pooled_projections": torch.randn(2, 64),
        "timestep": torch.ones(2),
    }
    step = count_forward(pipe.transformer, (), inputs).macs
    assert profile["macs_per_step"] == step
    assert profile["denoiser_calls"] == 3
    assert profile["total_macs"] == profile["predicted_total_macs"]
    assert profile["total_macs"] == 3 * step + profile["text_encoder_macs"] + profile["vae_macs"]


@pytest.mark.slow
def test_the_interface(load_tiny_pipeline):
    pipe = load_tiny_pipeline("unet")
    profiler = create_profiler(enabled=True)
    step = profiler.measure_unet_macs(pipe, SIDE, SIDE, "a cat", 7.5)
    assert step == 2 * profiler.measure_unet_macs(pipe, SIDE, SIDE, "a cat", 1.0)
    text = profiler.measure_text_encoder_macs(pipe, "a cat", "")
    # The negative prompt is "" unless it is said to be none.
    assert text == profiler.measure_text_encoder_macs(pipe, "a cat")
    assert text == 2 * profiler.measure_text_encoder_macs(pipe, "a cat", None)
    decode = profiler.measure_vae_decode_macs(pipe, SIDE, SIDE)
    summary = profiler.summarize_macs(pipe, SIDE, SIDE, 30, "a cat", 7.5)
    assert summary == {
        "UNet per-step (GMACs)": step / 1e9,
        "Text encoder once (GMACs)": text / 1e9,
        "VAE decode once (GMACs)": decode / 1e9,
        "Total 30 steps (GMACs)": (31 * step + text + decode) / 1e9,
    }


KEYS = [
    "enabled",
    "model_component",
    "total_params",
    "params_str",
    "flops_per_step",
    "flops_per_step_str",
    "macs_per_step",
    "macs_per_step_str",
    "total_flops",
    "total_flops_str",
    "total_macs",
    "total_macs_str",
    "num_inference_steps",
    "inference_time_seconds",
    "inference_time_str",
    "input_shape",
    "latent_shape",
    "unet_macs_per_step",
    "vae_macs",
    "text_encoder_macs",
    "throughput_tflops",
]


@pytest.mark.slow
def test_without_a_run_it_is_a_prediction(load_tiny_pipeline):
    pipe = load_tiny_pipeline("unet")
    profile = create_profiler().profile_pipeline(pipe, (1, 3, SIDE, SIDE), 10, "tiny", 7.5)
    assert not set(KEYS) - set(profile)
    assert profile["source"] == "predicted"
    assert profile["inference_time_seconds"] is None
    assert profile["denoiser_calls"] == 11
    assert profile["total_params"] == sum(p.numel() for p in pipe.unet.parameters())
    assert profile["latent_shape"] == [1, 4, LATENT, LATENT]


def test_what_cannot_be_profiled_says_why_and_generation_goes_on(load_tiny_pipeline):
    pipe = load_tiny_pipeline("unet")
    profiler = create_profiler()

    class Strange:
        def __init__(self):
            self.components = {"thing": nn.Linear(2, 2)}

        def __call__(self):
            return self.components["thing"](torch.ones(1, 2))

    strange = Strange()
    with profiler.watch(strange):
        assert strange().shape == (1, 2)
    # Nobody knows what it is, and what it did is counted all the same: a product of 1 x 2 by 2 x 2.
    profile = profiler.profile_pipeline(strange, (1, 3, SIDE, SIDE), 4, "strange")
    assert (profile["enabled"], profile["total_macs"]) == (True, 4)
    assert profile["prediction"]["enabled"] is False
    assert "no prediction is written for Strange" in profile["prediction"]["reason"]
    assert any("no network is known as the denoiser" in note for note in profile["notes"])
    unwatched = create_profiler().profile_pipeline(strange, (1, 3, SIDE, SIDE), 4, "strange")
    assert (unwatched["enabled"], "no prediction is written" in unwatched["reason"]) == (False, True)
    refused = profiler.profile_pipeline(pipe, (1, 3, SIDE + 1, SIDE), 4, "tiny")
    assert refused["enabled"] is False
    assert "multiples of 2" in refused["reason"]


def test_a_disabled_profiler_says_zero_and_that_it_is_disabled(load_tiny_pipeline):
    pipe = load_tiny_pipeline("unet")
    off = create_profiler(enabled=False)
    with off.watch(pipe) as run:
        assert run is None
    profile = off.profile_pipeline(pipe, (1, 3, SIDE, SIDE), 4)
    assert (profile["enabled"], profile["reason"]) == (False, "profiling is switched off")
    assert not set(KEYS) - set(profile)
    assert (profile["total_macs"], profile["total_flops"], profile["total_params"]) == (0, 0, 0)
    assert off.measure_unet_macs(pipe) == off.measure_vae_decode_macs(pipe) == 0
    assert off.measure_text_encoder_macs(pipe, "a cat") == 0
    summary = off.summarize_macs(pipe, steps=30)
    assert summary.pop("enabled") is False
    assert set(summary.values()) == {0}
    assert "Total 30 steps (GMACs)" in summary


def test_every_method_has_the_defaults_of_other_profilers():
    for name in ("measure_unet_macs", "measure_vae_decode_macs", "summarize_macs"):
        parameters = inspect.signature(getattr(create_profiler(), name)).parameters
        assert (parameters["height"].default, parameters["width"].default) == (512, 512)
    for name in ("measure_unet_macs", "measure_text_encoder_macs", "summarize_macs"):
        assert inspect.signature(getattr(create_profiler(), name)).parameters["negative_prompt"].default == ""


def test_a_run_that_is_interrupted_keeps_what_was_counted_and_leaves_nothing_behind(load_tiny_pipeline):
    pipe = load_tiny_pipeline("unet")
    before = state_of(pipe)
    own = vars(type(pipe))["__call__"], vars(type(pipe.scheduler))["step"]
    profiler = create_profiler()

    def stop(*_):
        raise KeyboardInterrupt

    unet_inputs = (torch.randn(2, 4, LATENT, LATENT), torch.tensor(1), torch.randn(2, TOKENS, 32))
    text = count_forward(pipe.text_encoder, (torch.zeros(1, TOKENS, dtype=torch.int64),)).macs
    with pytest.raises(KeyboardInterrupt), profiler.watch(pipe):
        pipe("a cat", height=SIDE, width=SIDE, num_inference_steps=4, callback_on_step_end=stop)
    same(before, state_of(pipe))
    assert (vars(type(pipe))["__call__"], vars(type(pipe.scheduler))["step"]) == own
    profile = profiler.profile_pipeline(pipe, (1, 3, SIDE, SIDE), 4, "tiny", 7.5)
    assert profile["partial"] == "KeyboardInterrupt"
    assert any(note.startswith("partial: ") for note in profile["notes"])
    # One step, and the prompt twice; the decoder was not reached.
    assert profile["total_macs"] == count_forward(pipe.unet, unet_inputs).macs + 2 * text
    assert profile["never_called"] == ["vae"]


def test_a_run_that_raises_keeps_what_was_counted(load_tiny_pipeline):
    pipe = load_tiny_pipeline("unet")
    profiler = create_profiler()
    with pytest.raises(ValueError, match="divisible by"), profiler.watch(pipe):
        pipe("a cat", height=SIDE + 1, width=SIDE)
    profile = profiler.profile_pipeline(pipe, (1, 3, SIDE, SIDE), 4)
    assert (profile["enabled"], profile["total_macs"]) == (True, 0)
    assert profile["partial"].startswith("ValueError: ")


def test_two_runs_in_one_block_have_the_figures_of_one(load_tiny_pipeline):
    pipe = load_tiny_pipeline("unet")
    profiler = create_profiler()
    call = dict(height=SIDE, width=SIDE, num_inference_steps=3)
    with profiler.watch(pipe):
        pipe("a cat", **call)
    once = profiler.profile_pipeline(pipe, (1, 3, SIDE, SIDE), 3)
    with profiler.watch(pipe):
        pipe("a cat", **call)
        pipe("a dog", **call)
    twice = profiler.profile_pipeline(pipe, (1, 3, SIDE, SIDE), 3)
    assert (once["pipeline_calls"], twice["pipeline_calls"]) == (1, 2)
    assert twice["total_macs"] == 2 * once["total_macs"]
    assert (twice["macs_per_step"], twice["macs_per_call"]) == (once["macs_per_step"], once["total_macs"])
    assert twice["summary"] == once["summary"]
    assert twice["macs_per_image"] == once["macs_per_image"]


@pytest.mark.slow
def test_the_run_knows_its_own_steps_and_images(load_tiny_pipeline):
    pipe = load_tiny_pipeline("unet")
    profiler = create_profiler()
    with profiler.watch(pipe):
        pipe(["a cat", "a dog"], height=SIDE, width=SIDE, num_inference_steps=2, num_images_per_prompt=2)
    profile = profiler.profile_pipeline(pipe, (1, 3, SIDE, SIDE), 30)
    assert (profile["num_inference_steps"], profile["batch"]) == (2, 4)
    assert profile["macs_per_image"] == profile["total_macs"] / 4
    assert any("2 steps, not for the 30" in note for note in profile["notes"])


@pytest.mark.slow
def test_what_nobody_has_a_formula_for_is_named(load_tiny_pipeline, monkeypatch):
    from swinmr_profiling.profiler.counting.operators import operator_table

    pipe = load_tiny_pipeline("unet")
    monkeypatch.delitem(operator_table.COUNTED, "aten::convolution")
    monkeypatch.setattr(
        "swinmr_profiling.profiler.counting.operators.operator_rules.runs_as_others", lambda _: False
    )
    profiler = create_profiler()
    with profiler.watch(pipe):
        pipe("a cat", height=SIDE, width=SIDE, num_inference_steps=1)
    profile = profiler.profile_pipeline(pipe, (1, 3, SIDE, SIDE), 1)
    assert sorted(profile["incomplete"]) == ["unet", "vae"]
    assert "no formula for aten::convolution" in profile["incomplete"]["unet"]
    parts = {part["name"]: part for part in profile["components_measured"]}
    assert (parts["unet"]["enabled"], parts["text_encoder"]["enabled"]) == (False, True)


@pytest.mark.slow
def test_watching_never_stops_a_generation(load_tiny_pipeline, monkeypatch):
    def fail(*_):
        raise RuntimeError("no tally")

    monkeypatch.setattr("swinmr_profiling.profiler.counting.tallies.Tallies.add", fail)
    pipe = load_tiny_pipeline("unet")
    profiler = create_profiler()
    with profiler.watch(pipe):
        images = pipe("a cat", height=SIDE, width=SIDE, num_inference_steps=1).images
    assert images[0].size == (SIDE, SIDE)
    profile = profiler.profile_pipeline(pipe, (1, 3, SIDE, SIDE), 1, "tiny", 7.5)
    assert "aten::convolution" in profile["incomplete"]["unet"]
    assert any("no tally" in note for note in profile["notes"])


@pytest.mark.slow
def test_two_denoisers_are_counted_together_and_not_predicted(load_tiny_pipeline):
    pipe = load_tiny_pipeline("unet")

    class Two:
        def __init__(self):
            self.components = {"unet": pipe.unet, "unet_2": type(pipe.unet)(**pipe.unet.config)}

        def __call__(self):
            for network in self.components.values():
                network(torch.ones(1, 4, LATENT, LATENT), 1, torch.ones(1, TOKENS, 32))

    two, profiler = Two(), create_profiler()
    with profiler.watch(two), torch.no_grad():
        two()
    profile = profiler.profile_pipeline(two, (1, 3, SIDE, SIDE), 2)
    assert profile["model_component"] == "unet + unet_2"
    assert profile["denoiser_calls"] == 2
    one = count_forward(
        pipe.unet, (torch.ones(1, 4, LATENT, LATENT), torch.tensor(1), torch.ones(1, TOKENS, 32))
    )
    assert (profile["macs_per_step"], profile["total_macs"]) == (one.macs, 2 * one.macs)
