"""What contradicts itself in a denoiser's config is refused with a way out, before anything is built."""

import pytest

from swinmr_profiling.configs import ConfigError, config_from_dict, load_config
from tests.configs.test_experiment_files import ROOT

UNET = {"net_type": "unet_denoiser"}
DIT = {"net_type": "dit_denoiser"}


def problems_of(model, **sections):
    with pytest.raises(ConfigError) as caught:
        config_from_dict({"model": model, **sections})
    return caught.value.problems


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        (
            {**UNET, "attention_resolutions": [16, 20]},
            "model.attention_resolutions: no level has features of 20 pixels: the levels have 256, 128, 64, 32, 16",
        ),
        (
            {**UNET, "img_size": [256, 250]},
            "model.img_size: 256 x 250 is not divisible by 16 (5 levels, each halves the sides): "
            "for 250 take 240 or 256",
        ),
        (
            {**UNET, "base_channels": 48},
            "model.num_groups: a level has 48 channels, which 32 groups do not divide: num_groups 24 or 48",
        ),
        (
            {**UNET, "head_channels": 48},
            "model.head_channels: attention at 16 pixels has 256 channels, not divisible by heads of 48: 32 or 64",
        ),
        (
            {**DIT, "img_size": 250},
            "model.img_size: 250 x 250 is not divisible by 8 (model.patch_size): for 250 take 248 or 256",
        ),
        ({**DIT, "patch_size": 3}, "model.patch_size: expected 2, 4 or 8, got 3"),
        (
            {**DIT, "num_heads": 7},
            "model.embed_dim: embed_dim 384 is not divisible by 7 heads: 364 or 392, or num_heads 6 or 8",
        ),
        (
            {**DIT, "embed_dim": 18, "num_heads": 6},
            "model.embed_dim: embed_dim 18 is not divisible by 4, sines and cosines of 2 axes: 12 or 24",
        ),
        (
            {
                "net_type": "diffusers",
                "class": "UNet2DModel",
                "config": {"in_channels": 3},
                "conditional": True,
            },
            "model.conditional: half of the channels is the zero-filled image, so config.in_channels must be given "
            "and even: set it, or conditional false",
        ),
        (
            {"net_type": "diffusers", "class": "UNet2DModel", "int64_inputs": ["class_labels"]},
            "model.int64_inputs: class_labels is not among inputs (there: none): give its shape there",
        ),
        ({"net_type": "diffusers"}, "model.class: missing: name of a class of diffusers is required"),
        (
            {**UNET, "atention_resolutions": [16]},
            "model.atention_resolutions: unknown key; did you mean attention_resolutions?",
        ),
    ],
)
def test_the_network(model, problem):
    assert problems_of(model) == [problem]


@pytest.mark.parametrize(
    ("sections", "start"),
    [
        ({"data": {"patch_size": 40}}, "data.patch_size: 40 x 40 is not divisible by 16"),
        ({"data": {"patch_size": 512}}, "data.patch_size: patch_size 512 x 512 is larger than the image"),
        ({"training": {"loss": {"type": "cross_entropy"}}}, "training.loss.type: a denoiser is trained on"),
        (
            {"training": {"early_stopping": {"metric": "val_psnr"}}},
            "training.early_stopping.metric: val_psnr needs images",
        ),
        (
            {"evaluation": {"sampling": {"sampling_steps": 1001}}},
            "evaluation.sampling.sampling_steps: 1001 steps, but training.diffusion.timesteps is 1000: at most that",
        ),
        (
            {"evaluation": {"sampling": {"guidance": 2.0}}},
            "evaluation.sampling.guidance: guidance needs training without condition too",
        ),
        ({"data": {"normalisation": "percentile"}}, "evaluation.sampling.clip: data.normalisation"),
        (
            {"training": {"diffusion": {"beta_start": 0.1}}},
            "training.diffusion.beta_end: beta_end 0.02 is not above beta_start 0.1",
        ),
    ],
)
def test_its_data_training_and_sampling(sections, start):
    (problem,) = problems_of(UNET, **sections)
    assert problem.startswith(start)


def test_without_a_condition_there_is_nothing_to_leave_out_or_to_guide():
    problems = problems_of(
        {**UNET, "conditional": False},
        training={"diffusion": {"condition_dropout": 0.1}},
        evaluation={"sampling": {"guidance": 2.0}},
    )
    assert [problem.partition(":")[0] for problem in problems] == [
        "training.diffusion.condition_dropout",
        "evaluation.sampling.guidance",
    ]


def test_other_networks_are_not_asked():
    raw = {
        "model": {"net_type": "swinir"},
        "evaluation": {"sampling": {"guidance": 2.0, "sampling_steps": 5000}},
    }
    assert not config_from_dict(raw).is_denoiser


def test_what_auto_picks_the_best_checkpoint_by():
    assert config_from_dict({"model": {"net_type": "swinir"}}).early_stopping_metric == "val_psnr"
    assert config_from_dict({"model": UNET}).early_stopping_metric == "val_loss"
    sampling = {"evaluation": {"sampling": {"validation_steps": 5}}}
    assert config_from_dict({"model": UNET, **sampling}).early_stopping_metric == "val_psnr"
    chosen = {"training": {"early_stopping": {"metric": "val_nmse"}}}
    assert config_from_dict({"model": {"net_type": "swinir"}, **chosen}).early_stopping_metric == "val_nmse"


@pytest.mark.parametrize(
    ("name", "net_type", "image", "patch"),
    [
        ("denoiser_unet", "unet_denoiser", (256, 256), (128, 128)),
        ("denoiser_unet_small", "unet_denoiser", (128, 96), (32, 96)),
        ("denoiser_dit", "dit_denoiser", (256, 256), (256, 256)),
        ("denoiser_dit_small", "dit_denoiser", (128, 96), (128, 96)),
    ],
)
def test_the_files(name, net_type, image, patch):
    config = load_config(ROOT / "configs" / f"{name}.json").config
    assert config.model.net_type == net_type
    assert config.experiment_name == name
    assert (config.image_hw, config.training_patch_hw) == (image, patch)
    assert config.model.in_chans == 2
    assert config.model.conditional
    assert config.training.diffusion.min_snr_gamma == 5
    assert config_from_dict(config.model_dump(mode="json")) == config


def test_a_class_of_diffusers_survives_the_round_trip():
    model = {"net_type": "diffusers", "class": "UNet2DConditionModel", "config": {"in_channels": 4}}
    config = config_from_dict({"model": {**model, "inputs": {"encoder_hidden_states": [77, 64]}}})
    dumped = config.model_dump(mode="json")
    assert dumped["model"]["class"] == "UNet2DConditionModel"
    assert config_from_dict(dumped) == config
