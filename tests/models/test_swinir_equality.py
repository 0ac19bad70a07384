"""Our SwinIR against the independent implementation that the package spandrel carries."""

import pytest
import torch
from spandrel.architectures.SwinIR.__arch.SwinIR import SwinIR as ReferenceSwinIR

from swinmr_profiling.models.swin.swinir import SwinIR

pytestmark = pytest.mark.usefixtures("one_thread")
TINY = dict(
    img_size=32,
    in_chans=1,
    upscale=1,
    window_size=8,
    depths=[2, 2],
    embed_dim=24,
    num_heads=[2, 3],
    mlp_ratio=2,
    upsampler="",
    resi_connection="1conv",
)

# (options over TINY, input shape): every upsampler and residual connection, square, non-square and sizes that
# are not multiples of the window, batches of 1 and 3.
CASES = {
    "denoise": ({}, (1, 1, 32, 32)),
    "denoise, batch 3, odd size": ({}, (3, 1, 37, 45)),
    "3conv, img_range 255": ({"resi_connection": "3conv", "img_range": 255.0}, (1, 1, 37, 45)),
    "rgb": ({"in_chans": 3}, (1, 3, 40, 24)),
    "non-square img_size": ({"img_size": (32, 48)}, (1, 1, 32, 48)),
    "pixelshuffle x4": ({"in_chans": 3, "upscale": 4, "upsampler": "pixelshuffle"}, (1, 3, 30, 40)),
    "pixelshuffle x3, window 7": (
        {"upscale": 3, "upsampler": "pixelshuffle", "window_size": 7, "img_size": 28, "mlp_ratio": 4},
        (1, 1, 29, 35),
    ),
    "pixelshuffledirect x2": (
        {
            "in_chans": 3,
            "upscale": 2,
            "upsampler": "pixelshuffledirect",
            "patch_norm": False,
            "qkv_bias": False,
        },
        (1, 3, 30, 40),
    ),
    "nearest+conv x2": ({"upscale": 2, "upsampler": "nearest+conv"}, (1, 1, 32, 40)),
    "nearest+conv x4": ({"in_chans": 3, "upscale": 4, "upsampler": "nearest+conv"}, (1, 3, 32, 40)),
    "nearest+conv x8": ({"upscale": 8, "upsampler": "nearest+conv"}, (1, 1, 16, 24)),
    "absolute position embedding": ({"ape": True}, (2, 1, 32, 32)),
    "one window: no shift": ({"img_size": 8}, (1, 1, 24, 32)),
    "odd depths": ({"depths": [3, 1]}, (1, 1, 32, 32)),
}


def with_shared_weights(options, seed=0):
    """The reference and ours with the same weights, all of them moved away from their initial values."""
    torch.manual_seed(seed)
    options = {**TINY, **options}
    reference, ours = ReferenceSwinIR(**options), SwinIR(**options)
    with torch.no_grad():
        for parameter in reference.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    ours.load_state_dict(reference.state_dict())
    return reference.eval(), ours.eval()


@pytest.mark.parametrize("name", CASES)
def test_output_equals_reference(name):
    options, shape = CASES[name]
    reference, ours = with_shared_weights(options)
    image = torch.rand(shape)
    with torch.no_grad():
        expected, got = reference(image), ours(image)
    assert got.shape == expected.shape
    # img_range 255 scales the output, and its rounding, by 1/255.
    assert (got - expected).abs().max() < 1e-5
    # The comparison means something only if the deep path contributes.
    if not options.get("upsampler"):
        assert (expected - image).abs().max() > 1e-3


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["denoise, batch 3, odd size", "nearest+conv x4", "pixelshuffledirect x2"])
@pytest.mark.parametrize("checkpointing", ["none", "full"])
def test_gradients_equal_reference(name, checkpointing):
    """In float64: in float32 the reference itself is up to 4e-4 away from that (nearest+conv x4)."""
    options, shape = CASES[name]
    options = {**options, "drop_path_rate": 0.0}
    reference, ours = with_shared_weights(options)
    ours.gradient_checkpointing = checkpointing
    reference.double().train()
    ours.double().train()
    image = torch.rand(shape, dtype=torch.float64)
    for network in (reference, ours):
        network(image).square().mean().backward()
    ours_by_name = dict(ours.named_parameters())
    for key, parameter in reference.named_parameters():
        scale = parameter.grad.abs().max().clamp_min(1e-12)
        assert (ours_by_name[key].grad - parameter.grad).abs().max() / scale < 1e-12, key


@pytest.mark.parametrize("name", CASES)
def test_state_dict_goes_both_ways(name):
    reference, ours = with_shared_weights(CASES[name][0])
    answer = reference.load_state_dict(ours.state_dict(), strict=False)
    assert answer.unexpected_keys == []
    # Only what follows from the sizes is left out of ours.
    assert all(key.endswith(("attn_mask", "relative_position_index")) for key in answer.missing_keys)
    ours.load_state_dict(reference.state_dict(), strict=True)


def test_published_key_names():
    with torch.device("meta"):
        keys = set(SwinIR().state_dict())
    # 544 of the published file less 36 relative_position_index and 18 attn_mask.
    assert len(keys) == 544 - 36 - 18
    assert {
        "conv_first.weight",
        "patch_embed.norm.bias",
        "layers.5.residual_group.blocks.5.attn.relative_position_bias_table",
        "layers.0.residual_group.blocks.1.mlp.fc2.weight",
        "layers.3.conv.weight",
        "norm.weight",
        "conv_after_body.bias",
        "conv_last.weight",
    } <= keys


def test_reference_checkpoint_of_another_size_loads():
    """A published file carries the masks of its own image size; ours takes any."""
    reference, _ = with_shared_weights({"img_size": 64})
    torch.manual_seed(1)
    ours = SwinIR(**{**TINY, "img_size": 32}).eval()
    ours.load_state_dict(reference.state_dict())
    image = torch.rand(1, 1, 40, 48)
    with torch.no_grad():
        assert (ours(image) - reference(image)).abs().max() < 1e-5


def test_stochastic_depth_matches_its_definition():
    """Dropped with probability p, kept branches scaled by 1/(1-p): the expectation is the whole branch."""
    from swinmr_profiling.models.swin.swin_block import kept_samples

    torch.manual_seed(0)
    kept = kept_samples(torch.ones(1), 20_000, 0.25, training=True)
    assert kept.unique().tolist() == pytest.approx([0.0, 1 / 0.75])
    assert kept.mean().item() == pytest.approx(1.0, abs=0.02)
    assert kept_samples(kept, 3, 0.25, training=False) is None


def test_drop_path_rates_are_linear_over_all_blocks():
    network = SwinIR(**{**TINY, "depths": [2, 4], "num_heads": [2, 2], "drop_path_rate": 0.1})
    rates = [block.drop_path_rate for group in network.layers for block in group.residual_group.blocks]
    assert rates == pytest.approx([0.0, 0.02, 0.04, 0.06, 0.08, 0.1])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"embed_dim": 25}, "embed_dim 25 is not divisible by 2 heads"),
        ({"num_heads": [2]}, "2 depths but 1 num_heads"),
        ({"upscale": 2}, "upscale 2 needs an upsampler"),
        ({"upsampler": "bicubic"}, "'bicubic' is not one of"),
        ({"upsampler": "nearest+conv", "upscale": 3}, "upscale 2, 4 or 8, not 3"),
        ({"upsampler": "pixelshuffle", "upscale": 6}, "upscale 3 or a power of 2, not 6"),
        ({"resi_connection": "2conv"}, "'1conv' or '3conv', not '2conv'"),
        ({"gradient_checkpointing": "some"}, "not 'some'"),
        ({"in_chans": 2, "out_chans": 3}, "cannot be added to 3 output channels"),
    ],
)
def test_impossible_options_are_refused(options, words):
    with pytest.raises(ValueError, match=words.replace("+", r"\+")):
        SwinIR(**{**TINY, **options})


def test_image_too_small_to_reflect_pad():
    network = SwinIR(**TINY)
    with pytest.raises(ValueError, match="3 x 32 cannot be reflect-padded to windows of 8"):
        network(torch.rand(1, 1, 3, 32))


def test_runs_on_meta_and_in_bf16():
    with torch.device("meta"):
        network = SwinIR(**TINY)
    assert network(torch.empty(2, 1, 33, 40, device="meta")).shape == (2, 1, 33, 40)
    reference, ours = with_shared_weights({})
    image = torch.rand(1, 1, 32, 32)
    with torch.no_grad():
        got = ours.bfloat16()(image.bfloat16()).float()
        assert (got - reference(image)).abs().max() < 0.05
