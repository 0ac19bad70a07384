"""All 24 released pipelines: parameter counts, and MACs against the published architecture's known figures."""

import pytest
import torch

from swinmr_profiling.profiler.pipelines.defined.component_counts import ComponentCounts
from swinmr_profiling.profiler.pipelines.defined.components import build_on_meta
from swinmr_profiling.profiler.pipelines.defined.cost import cost_pipeline
from swinmr_profiling.profiler.pipelines.defined.cost_records import PipelineRequest
from swinmr_profiling.profiler.pipelines.defined.definition import list_pipelines, load_pipeline

pytest.importorskip("diffusers")

# GMACs of one denoiser call at batch 1: 512 px, 1024 px.
DENOISER_GMACS = {
    "sd15": (401.6, 2337.0),
    "sd21-base": (402.1, 2337.5),
    "sdxl-base": (794.4, 3380.6),
    "sd3-medium": (1053.7, 4452.2),
    "flux1-dev": (10751.3, 37192.3),
    "sana-1600m-512": (418.3, None),
    "sana-1600m-1024": (None, 1483.3),
    "pixart-alpha-512": (618.0, None),
    "pixart-alpha-1024": (None, 3254.8),
    "lumina-image-2.0": (2998.9, 11914.6),
    "kandinsky-3": (431.1, 1624.2),
}


@pytest.fixture(scope="module")
def counts():
    return ComponentCounts()


def components(definition):
    optional = (definition.prior, definition.image_encoder, definition.safety_checker)
    return [
        definition.denoiser,
        definition.vae,
        *definition.text_encoders,
        *(component for component in optional if component is not None),
    ]


@pytest.mark.slow
def test_every_component_builds_with_its_recorded_parameters():
    built = {}
    for name in list_pipelines():
        for component in components(load_pipeline(name)):
            key = (component.class_path, repr(component.config))
            if key not in built:
                module = build_on_meta(component)
                assert all(tensor.is_meta for tensor in module.parameters()), (name, component.class_name)
                built[key] = sum(parameter.numel() for parameter in module.parameters())
            assert built[key] == component.parameters, (name, component.class_name)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", [name for name, (small, _) in DENOISER_GMACS.items() if small])
def test_macs_at_512_px(counts, name):
    cost = cost_pipeline(
        load_pipeline(name), PipelineRequest(height=512, width=512, guidance_scale=1.0), counts
    )
    counts.release()
    assert round(cost.macs_per_step_without_guidance / 1e9, 1) == DENOISER_GMACS[name][0]
    assert cost.geometry.vae_scale_factor == cost.definition.vae_scale_factor


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, (_, large) in DENOISER_GMACS.items() if large])
def test_macs_at_1024_px(counts, name):
    cost = cost_pipeline(
        load_pipeline(name), PipelineRequest(height=1024, width=1024, guidance_scale=1.0), counts
    )
    counts.release()
    assert round(cost.macs_per_step_without_guidance / 1e9, 1) == DENOISER_GMACS[name][1]


@pytest.mark.slow
def test_exact_macs_of_stable_diffusion_2_1(counts):
    cost = cost_pipeline(load_pipeline("sd21-base"), PipelineRequest(512, 512, 30, 7.5), counts)
    (text,) = cost.of_role("text_encoder")
    (decode,) = cost.of_role("vae_decode")
    (unet,) = cost.of_role("denoiser")
    assert cost.macs_per_step_without_guidance == 402_128_732_160
    assert unet.macs_per_call == cost.macs_per_step == 2 * 402_128_732_160
    assert text.macs_per_call == 22_563_616_768
    assert decode.macs_per_call == 1_257_259_466_752
    # PNDM calls the UNet once more than the steps; both prompts are encoded.
    assert cost.macs == 31 * 2 * 402_128_732_160 + 2 * 22_563_616_768 + 1_257_259_466_752
    assert cost.weight_bytes == 2 * (865_910_724 + 340_387_840 + 83_653_863)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("name", "role", "gmacs"),
    [
        ("sd3-medium", "vae_decode", 1257.5),
        ("sana-1600m-512", "vae_decode", 1046.1),
        ("kandinsky-3", "vae_decode", 3852.8),
        ("sd15", "safety_checker", 81.0),
        ("sdxl-refiner", "vae_encode", 558.3),
    ],
)
def test_macs_beside_the_denoiser(counts, name, role, gmacs):
    cost = cost_pipeline(load_pipeline(name), PipelineRequest(512, 512, guidance_scale=1.0), counts)
    counts.release()
    assert round(cost.of_role(role)[0].macs_per_call / 1e9, 1) == gmacs


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("name", "index", "tokens", "gmacs"),
    [
        ("sd15", 0, 77, 6.65),
        ("sd21", 0, 77, 22.56),
        ("sdxl-base", 1, 77, 48.93),
        ("pixart-alpha-512", 0, 120, 558.49),
        ("sd3-medium", 2, 256, 1198.30),
        ("flux1-dev", 1, 512, 2422.36),
        ("sana-1600m-512", 0, 300, 616.87),
    ],
)
def test_macs_of_text_encoders(counts, name, index, tokens, gmacs):
    encoder = load_pipeline(name).text_encoders[index]
    assert encoder.lengths(None).encoded == tokens
    assert round(counts.text(encoder, 1, tokens).count.macs / 1e9, 2) == gmacs
    counts.release()


def test_activations_of_a_known_size(counts):
    """The last decoder block at 512 px has 256 channels of 2 bytes at the input of its first norm: 128 MiB a tensor.

    Three of them live at once there (the input, which the residual waits for, its norm and the activation), beside the
    latent of 64 x 64 x 4 and the norm's statistics.
    """
    decode = counts.decode(load_pipeline("sd15").vae, 1, 64, 64)
    beside = decode.activation_peak_bytes - 3 * (256 * 512 * 512 * 2)
    assert 64 * 64 * 4 * 2 <= beside <= 64 * 64 * 4 * 2 + 2**10
    assert decode.count.counted_on == "meta"
    assert torch.bfloat16.itemsize == 2
