"""The U-Net and the transformer: multiply-adds by hand, other people's implementations, meta tensors, checkpointing."""

from pathlib import Path

import pytest
import torch

from swinmr_profiling.configs import config_from_dict, load_config
from swinmr_profiling.models.denoisers.denoiser_inputs import timestep_embedding
from swinmr_profiling.models.denoisers.dit_denoiser import position_embedding
from swinmr_profiling.models.inputs import InputSpec
from swinmr_profiling.models.registry import build_model
from swinmr_profiling.profiler.counting import count_forward

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
TINY = {
    "unet_denoiser": {
        "net_type": "unet_denoiser",
        "img_size": 16,
        "base_channels": 8,
        "channel_multipliers": [1, 2],
        "num_res_blocks": 1,
        "attention_resolutions": [8],
        "head_channels": 8,
        "num_groups": 4,
    },
    "dit_denoiser": {
        "net_type": "dit_denoiser",
        "img_size": 16,
        "patch_size": 4,
        "embed_dim": 16,
        "depth": 2,
        "num_heads": 2,
    },
}


def build(model, **sections):
    return build_model(config_from_dict({"model": model, **sections}))


def parameters_of(module):
    return sum(parameter.numel() for parameter in module.parameters())


def macs_of(built):
    report = count_forward(built.module, built.example_inputs(1))
    assert report.counted_on == "meta"
    assert report.uncounted_operators == {}
    return report.macs


def awake(module):
    """The zeros that blocks and outputs start with, replaced: an untrained denoiser would say 0 to everything."""
    with torch.no_grad():
        for parameter in module.parameters():
            if not parameter.any():
                parameter.normal_(std=0.3)
    return module


def test_macs_of_the_small_unet_by_hand():
    """Pixels of the levels: N0 = 128 x 96 = 12288, N1 = 64 x 48 = 3072, N2 = 32 x 24 = 768; channels 16, 32, 32.

    A residual block from a to b channels: 9 ab + 9 bb, and ab where a and b differ, a pixel; 64 x 2 b for the time
    step. Attention of c channels: 4 cc a pixel, and 2 N N c.
    """
    by_hand = sum(
        (
            16 * 64 + 64 * 64,  # time embedding
            9 * 4 * 16 * 12288,  # first convolution: 2 noisy + 2 zero-filled channels
            9 * 16 * 16 * 2 * 12288 + 128 * 16,  # down, level 0: 16 -> 16
            9 * 16 * 16 * 3072,  # halved
            (9 * 16 * 32 + 9 * 32 * 32 + 16 * 32) * 3072 + 128 * 32,  # level 1: 16 -> 32
            9 * 32 * 32 * 768,  # halved
            9 * 32 * 32 * 2 * 768 + 128 * 32,  # level 2: 32 -> 32, with attention
            4 * 32 * 32 * 768 + 2 * 768 * 768 * 32,
            2 * (9 * 32 * 32 * 2 * 768 + 128 * 32),  # middle: two blocks, attention between
            4 * 32 * 32 * 768 + 2 * 768 * 768 * 32,
            2 * ((9 * 64 * 32 + 9 * 32 * 32 + 64 * 32) * 768 + 128 * 32),  # up, level 2: 32 + 32 -> 32, twice
            2 * (4 * 32 * 32 * 768 + 2 * 768 * 768 * 32),
            9 * 32 * 32 * 3072,  # doubled
            (9 * 64 * 32 + 9 * 32 * 32 + 64 * 32) * 3072 + 128 * 32,  # level 1: 32 + 32 -> 32
            (9 * 48 * 32 + 9 * 32 * 32 + 48 * 32) * 3072 + 128 * 32,  # 32 + 16 -> 32
            9 * 32 * 32 * 12288,  # doubled
            (9 * 48 * 16 + 9 * 16 * 16 + 48 * 16) * 12288 + 128 * 16,  # level 0: 32 + 16 -> 16
            (9 * 32 * 16 + 9 * 16 * 16 + 32 * 16) * 12288 + 128 * 16,  # 16 + 16 -> 16
            9 * 16 * 2 * 12288,  # last convolution
        )
    )
    assert by_hand == 899_329_024
    assert macs_of(build_model(load_config(CONFIGS / "denoiser_unet_small.json").config)) == by_hand


def test_macs_of_the_small_transformer_by_hand():
    """768 tokens (32 x 24 patches of 4 x 4), width 96, 4 blocks."""
    block = 4 * 96 * 96 * 768 + 8 * 96 * 96 * 768 + 2 * 768 * 768 * 96 + 6 * 96 * 96
    by_hand = sum(
        (
            4 * 16 * 96 * 768,  # patches of 4 channels to tokens
            256 * 96 + 96 * 96,  # time embedding
            4 * block,  # projections, MLP, attention products, modulation
            2 * 96 * 96 + 96 * 2 * 16 * 768,  # last modulation; tokens to patches of 2 channels
        )
    )
    assert by_hand == 800_074_752
    assert macs_of(build_model(load_config(CONFIGS / "denoiser_dit_small.json").config)) == by_hand


@pytest.mark.slow
def test_the_published_dit_xl_2():
    """Peebles and Xie 2023, table 4: 118.64 Gflops (multiply-adds, by their words) and 675 M parameters at 256.

    The latent is 32 x 32 x 4; the output has 8 channels (learned variances); classes are a third input.
    """
    built = build(
        {
            "net_type": "dit_denoiser",
            "img_size": 32,
            "in_chans": 4,
            "out_chans": 8,
            "conditional": False,
            "patch_size": 2,
            "embed_dim": 1152,
            "depth": 28,
            "num_heads": 16,
            "num_classes": 1000,
        }
    )
    assert [spec.shape for spec in built.inputs["inference"]] == [(4, 32, 32), (), ()]
    assert macs_of(built) == pytest.approx(118.6e9, rel=1e-3)
    assert parameters_of(built.module) == pytest.approx(675e6, rel=5e-3)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("scale_shift", [True, False])
def test_the_unet_is_as_large_as_diffusers_own(scale_shift):
    """UNet2DModel of the same shape has the same parameters and multiply-adds, to the unit.

    But for one norm: with scale_shift theirs leaves out that of the middle attention (weight and bias of 32 channels).
    """
    model = {**TINY["unet_denoiser"], "img_size": 32, "channel_multipliers": [1, 2, 4], "num_res_blocks": 2}
    model |= {"attention_resolutions": [16, 8], "scale_shift": scale_shift, "conditional": False}
    built = build(model)
    theirs = build(
        {
            "net_type": "diffusers",
            "class": "UNet2DModel",
            "config": {
                "sample_size": 32,
                "in_channels": 1,
                "out_channels": 1,
                "block_out_channels": [8, 16, 32],
                "layers_per_block": 2,
                "down_block_types": ["DownBlock2D", "AttnDownBlock2D", "AttnDownBlock2D"],
                "up_block_types": ["AttnUpBlock2D", "AttnUpBlock2D", "UpBlock2D"],
                "attention_head_dim": 8,
                "norm_num_groups": 4,
                "resnet_time_scale_shift": "scale_shift" if scale_shift else "default",
            },
        }
    )
    assert parameters_of(built.module) == parameters_of(theirs.module) + 2 * 32 * scale_shift
    assert macs_of(built) == macs_of(theirs)


def test_embeddings_are_diffusers_own():
    from diffusers.models.embeddings import get_2d_sincos_pos_embed, get_timestep_embedding

    timesteps = torch.tensor([0, 1, 500, 999])
    theirs = get_timestep_embedding(timesteps, 64, flip_sin_to_cos=True, downscale_freq_shift=0)
    torch.testing.assert_close(timestep_embedding(timesteps, 64), theirs)
    assert timestep_embedding(timesteps, 7).shape == (4, 7)
    square = get_2d_sincos_pos_embed(32, 6, base_size=6, output_type="pt").float()
    torch.testing.assert_close(position_embedding(6, 6, 32, "cpu"), square)


@pytest.mark.parametrize("net_type", TINY)
def test_inputs_for_each_purpose(net_type):
    model = {**TINY[net_type], "img_size": [128, 96], "in_chans": 2}
    model |= {"attention_resolutions": [48]} if net_type == "unet_denoiser" else {}
    built = build(model, data={"patch_size": [32, 96]})
    assert built.inputs == {
        "inference": (InputSpec((4, 128, 96)), InputSpec((), "int64")),
        "training": (InputSpec((4, 32, 96)), InputSpec((), "int64")),
        "cross_check": (InputSpec((4, 64, 64)), InputSpec((), "int64")),
    }
    for purpose in ("training", "cross_check"):
        image, timesteps = built.example_inputs(2, which=purpose)
        assert timesteps.shape == (2,)
        with torch.no_grad():
            assert built.module(image, timesteps).shape == (2, 2, *image.shape[2:])


@pytest.mark.parametrize("net_type", TINY)
def test_time_step_and_condition_reach_the_output(net_type):
    torch.manual_seed(0)
    module = awake(build(TINY[net_type]).module).eval()
    image = torch.randn(2, 2, 16, 16)
    with torch.no_grad():
        first = module(image, torch.tensor([3, 700]))
        later = module(image, torch.tensor([3, 701]))
        image[1, 1] += 1  # the second sample's condition
        other = module(image, torch.tensor([3, 700]))
    for changed in (later, other):
        torch.testing.assert_close(changed[0], first[0])
        assert (changed[1] - first[1]).abs().max() > 1e-4


def test_classes_reach_the_output():
    torch.manual_seed(0)
    module = awake(build({**TINY["dit_denoiser"], "num_classes": 10}).module).eval()
    image, timesteps = torch.randn(1, 2, 16, 16), torch.tensor([5])
    with torch.no_grad():
        # The last row of the table is "no class".
        outputs = [module(image, timesteps, torch.tensor([number])) for number in (0, 9, 10)]
    assert (outputs[0] - outputs[1]).abs().max() > 1e-4
    assert (outputs[1] - outputs[2]).abs().max() > 1e-4


def test_pixels_of_a_patch_come_back_where_they_were():
    """A transformer whose tokens are the patches themselves is the identity: 16 = 4 x 4 pixels, no blocks' doing."""
    module = build({**TINY["dit_denoiser"], "img_size": [8, 12], "conditional": False}).module
    with torch.no_grad():
        module.patch_embed.weight.copy_(torch.eye(16).reshape(16, 1, 4, 4))
        module.final.linear.weight.copy_(torch.eye(16))
        image = torch.randn(1, 1, 8, 12)
        # The norm of a token and its position are undone by hand.
        tokens = module.patch_embed(image).flatten(2).transpose(1, 2) + position_embedding(2, 3, 16, "cpu")
        mean, std = tokens.mean(-1), tokens.var(-1, correction=0).add(1e-6).sqrt()
        output = module(image, torch.tensor([7]))
    for token in range(6):
        row, column = divmod(token, 3)
        patch = output[0, 0, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4].reshape(16)
        torch.testing.assert_close(patch, (tokens[0, token] - mean[0, token]) / std[0, token])


@pytest.mark.parametrize("net_type", TINY)
def test_a_new_network_predicts_nothing(net_type):
    """adaLN-zero and ADM's zeroed last convolution: training starts from 0."""
    built = build(TINY[net_type])
    with torch.no_grad():
        assert not built.module(*built.example_inputs(2)).any()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("net_type", TINY)
@pytest.mark.parametrize("checkpointing", ["none", "light", "full"])
def test_forward_and_backward_on_meta(net_type, checkpointing):
    built = build(TINY[net_type], training={"gradient_checkpointing": checkpointing})
    module = built.module.to("meta").train()
    output = module(*built.example_inputs(3, "meta", which="training"))
    assert output.shape == (3, 1, 16, 16)
    output.square().mean().backward()
    assert all(parameter.grad is not None for parameter in module.parameters())


@pytest.mark.parametrize("net_type", TINY)
def test_checkpointing_changes_memory_and_no_gradient(net_type):
    model = TINY[net_type] if net_type == "dit_denoiser" else {**TINY[net_type], "drop_rate": 0.2}
    gradients, saved = [], []
    for checkpointing in ("none", "full"):
        torch.manual_seed(0)
        built = build(model, training={"gradient_checkpointing": checkpointing})
        module = awake(built.module).train()
        kept = []
        torch.manual_seed(1)  # of dropout
        with torch.autograd.graph.saved_tensors_hooks(lambda x, kept=kept: kept.append(x) or x, lambda x: x):
            loss = module(*built.example_inputs(2, which="training")).square().mean()
        loss.backward()
        gradients.append([parameter.grad for parameter in module.parameters()])
        saved.append(sum(tensor.numel() for tensor in kept))
    for plain, recomputed in zip(*gradients, strict=True):
        torch.testing.assert_close(plain, recomputed)
    assert saved[1] < 0.6 * saved[0]
