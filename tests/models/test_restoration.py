"""Restoration networks that option files name: their sizes, outputs by hand, and what is refused.

The parameters are those that the frameworks' own code makes (BasicSR 1.4.2, KAIR); with their weights the outputs are
equal to the last bit.
"""

import pytest
import torch

from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.models.checkpoints.checkpoint_network import found_network
from swinmr_profiling.models.errors import ModelError
from swinmr_profiling.models.registry import build_model
from swinmr_profiling.models.restoration.basicvsr import SpyNet, warped
from swinmr_profiling.models.restoration.build import NETWORKS
from swinmr_profiling.models.restoration.from_weights import restoration_section
from swinmr_profiling.models.restoration.kair import DistillationBlock
from swinmr_profiling.models.restoration.residual import EDSR, MSRResNet
from swinmr_profiling.models.restoration.span_plus import DySample, FoldedConv
from swinmr_profiling.profiler.counting import count_forward


def built(architecture, kwargs=None, **more):
    model = {"net_type": "restoration", "architecture": architecture, "kwargs": kwargs or {}, **more}
    side = 64 if architecture == "BasicVSR" else 32
    return build_model(config_from_dict({"model": {"img_size": side, **model}}))


def parameters(module):
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize(
    ("architecture", "kwargs", "published"),
    [
        ("EDSR", {}, 1_517_571),
        ("EDSR", {"num_feat": 256, "num_block": 32, "res_scale": 0.1}, 43_089_923),
        ("MSRResNet", {}, 1_517_571),
        ("BasicVSR", {"num_block": 30}, 6_291_311),
        ("MSRResNet0", {"nc": 16, "nb": 3, "upscale": 2, "upsample_mode": "pixelshuffle"}, 28_720),
        ("MSRResNet0", {"nc": 16, "nb": 3, "upscale": 4}, 24_080),
        ("IMDN", {"nc": 16, "nb": 3}, 29_276),
        ("SRMD", {"in_nc": 3, "nc": 16, "nb": 5, "upscale": 3, "act_mode": "BR"}, 11_419),
        # traiNNer-redux' artcnn_r8f64: 25 convolutions of 64 to 64, of 3 to 64, of 64 to 48.
        ("ArtCNN", {"filters": 64, "n_block": 8}, 9 * (25 * 64 * 64 + 3 * 64 + 64 * 48) + 26 * 64 + 48),
        # 15 convolutions of 9 weights: 5 to 64, 13 of 64 to 64, 64 to 4, each with a bias.
        ("FFDNet", {}, 9 * (5 * 64 + 13 * 64 * 64 + 64 * 4) + 14 * 64 + 4),
    ],
)
def test_parameters_are_the_published_ones(architecture, kwargs, published):
    assert parameters(built(architecture, kwargs).module) == published


def test_macs_of_edsr_by_hand():
    """x4, 64 features, 16 blocks: convolutions of 9 x 64 x 64 at 32 x 32 and twice as large, and the two ends."""
    network = built("EDSR")
    count = count_forward(network.module.eval(), network.example_inputs(1, "meta"))
    inner, pixels = 9 * 64 * 64, 32 * 32
    by_hand = pixels * (9 * 3 * 64 + 33 * inner) + pixels * 4 * inner + 4 * pixels * 4 * inner
    assert count.macs == by_hand + 16 * pixels * 9 * 64 * 3


@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_runs_on_its_own_inputs(name):
    small = {"BasicVSR": {"num_feat": 8, "num_block": 1}, "IMDN": {"nc": 8, "nb": 1}}
    small["SPANPlus"] = {"feature_channels": 8, "blocks": [1]}
    small["MAN"] = {"n_feats": 12, "n_resblocks": 1}
    small["ArtCNN"] = {"filters": 8, "n_block": 1}
    plain = {"num_feat": 8, "num_block": 1} if name in ("EDSR", "MSRResNet") else {"nc": 8, "nb": 3}
    side = 64 if name == "BasicVSR" else 32
    network = built(name, small.get(name, plain), frames=2, img_size=side)
    inputs = network.example_inputs(2)
    output = network.module(*inputs)
    scale = {"FFDNet": 1, "MAN": 2}.get(name, 4)
    assert output.shape[-2:] == (side * scale, side * scale)
    assert output.shape[0] == 2
    assert torch.isfinite(output).all()
    assert (inputs[0].shape[1] == 2) == (name == "BasicVSR")
    assert len(inputs) == (2 if name == "FFDNet" else 1)


def test_edsr_without_weights_gives_the_mean_colour():
    network = EDSR(num_feat=4, num_block=1, upscale=2)
    for parameter in network.parameters():
        torch.nn.init.zeros_(parameter)
    torch.testing.assert_close(
        network(torch.rand(1, 3, 4, 4))[0, :, 0, 0], torch.tensor([0.4488, 0.4371, 0.4040])
    )


def test_msrresnet_without_weights_enlarges_bilinearly():
    network = MSRResNet(num_feat=4, num_block=1, upscale=2)
    for parameter in network.parameters():
        torch.nn.init.zeros_(parameter)
    rows = torch.tensor([[0.0, 4.0], [0.0, 4.0]]).expand(1, 3, 2, 2)
    # Half a pixel apart, the border repeated: 0, 1/4, 3/4, 1 of the way.
    torch.testing.assert_close(network(rows)[0, 0, 0], torch.tensor([0.0, 1.0, 3.0, 4.0]))


@pytest.mark.parametrize("channels", [(3, 4), (2, 2)])
def test_a_folded_convolution_is_the_one_that_was_trained(channels):
    torch.manual_seed(0)
    conv = FoldedConv(*channels)
    image = torch.rand(1, channels[0], 6, 5)
    trained = conv.train()(image)
    torch.testing.assert_close(conv.eval()(image), trained, atol=1e-5, rtol=1e-5)


def test_dysample_without_offsets_enlarges_bilinearly():
    """Old pixels of 0 and 4: the new ones lie a quarter of a pixel from their middles, the border repeated."""
    network = DySample(4, 1, 2)
    for parameter in network.parameters():
        torch.nn.init.zeros_(parameter)
    network.end_conv.weight.data[0, 0] = 1
    image = torch.tensor([[0.0, 4.0], [0.0, 4.0]]).expand(1, 4, 2, 2)
    torch.testing.assert_close(network(image)[0, 0, 0], torch.tensor([0.0, 1.0, 3.0, 4.0]))


def test_flow_moves_an_image_by_whole_pixels():
    image = torch.arange(12.0).view(1, 1, 3, 4)
    right = torch.zeros(1, 2, 3, 4)
    right[:, 0] = 1  # x first
    assert warped(image, right)[0, 0, 1].tolist() == pytest.approx([5, 6, 7, 0], abs=1e-5)
    assert warped(image, right, "border")[0, 0, 1].tolist() == pytest.approx([5, 6, 7, 7], abs=1e-5)
    down = torch.zeros(1, 2, 3, 4)
    down[:, 1] = 1
    assert warped(image, down)[0, 0, 0].tolist() == pytest.approx([4, 5, 6, 7], abs=1e-5)


def test_spynet_without_weights_finds_no_motion():
    network = SpyNet()
    for parameter in network.parameters():
        torch.nn.init.zeros_(parameter)
    flow = network(torch.rand(1, 3, 40, 72), torch.rand(1, 3, 40, 72))
    assert flow.shape == (1, 2, 40, 72)
    assert not flow.any()


def test_a_distillation_block_keeps_a_quarter_each_time():
    block = DistillationBlock(8, "L", 0.05)
    assert [stage[0].weight.shape[:2] for stage in block.stages] == [(8, 8), (8, 6), (8, 6)]
    assert (block.last.weight.shape[:2], block.fusion.weight.shape[:2]) == ((2, 6), (8, 8))


def test_a_video_too_small_for_its_flow_is_refused():
    """Half of the sixth level of its pyramid: 64 pixels at least, to which more than 32 are enlarged."""
    with pytest.raises(
        ModelError, match=r"model.img_size: BasicVSR does not take 32 x 40, but at least 33 x 33"
    ):
        built("BasicVSR", img_size=[32, 40])


@pytest.mark.parametrize(
    ("architecture", "kwargs", "words"),
    [
        ("EDRS", {}, "model.architecture: 'EDRS' is not known here: did you mean EDSR?"),
        (
            "Nothing",
            {},
            "one of ArtCNN, BasicVSR, EDSR, FFDNet, IMDN, MAN, MSRResNet, MSRResNet0, SPANPlus, SRMD is expected",
        ),
        (
            "EDSR",
            {"num_feats": 8},
            r"model.kwargs.num_feats: EDSR takes no such argument: did you mean num_feat\?",
        ),
        ("EDSR", {"upscale": 5}, "EDSR refuses .*scale 5: a power of 2, or 3, is expected"),
        ("EDSR", {"num_block": "a"}, "model.kwargs.num_block: a whole number from 1 is expected, not 'a'"),
        ("EDSR", {"img_range": 0}, "model.kwargs.img_range: a number other than 0 is expected, not 0"),
        ("MSRResNet", {"upscale": 8}, "upscale 8: 2, 3 or 4 is expected"),
        ("IMDN", {"act_mode": "Q"}, "act_mode 'Q': R, L, BR or BL is expected"),
        ("SRMD", {"upsample_mode": "no"}, "upsample_mode 'no': one of upconv, pixelshuffle, convtranspose"),
    ],
)
def test_what_cannot_be_built_is_one_line(architecture, kwargs, words):
    with pytest.raises(ModelError, match=words) as caught:
        built(architecture, kwargs)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("architecture", "kwargs"),
    [
        ("EDSR", {"num_feat": 8, "num_block": 2, "upscale": 3}),
        ("EDSR", {"num_feat": 8, "num_block": 3, "upscale": 8}),
        ("EDSR", {"num_in_ch": 1, "num_out_ch": 1, "num_feat": 8, "num_block": 1, "rgb_mean": [0.5]}),
        ("MSRResNet", {"num_feat": 8, "num_block": 2, "upscale": 2}),
        ("MSRResNet", {"num_feat": 8, "num_block": 1, "upscale": 3, "num_in_ch": 1, "num_out_ch": 1}),
        ("MSRResNet", {"num_feat": 8, "num_block": 2}),
        ("BasicVSR", {"num_feat": 8, "num_block": 2}),
    ],
)
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_network_is_found_in_its_weights(tmp_path, architecture, kwargs, wrapped):
    module = built(architecture, kwargs).module
    weights = module.state_dict()
    torch.save(
        {"params_ema": weights} if wrapped else {f"module.{k}": v for k, v in weights.items()},
        tmp_path / "a.pth",
    )
    found = found_network(tmp_path / "a.pth")
    assert found.section["architecture"] == architecture
    again = build_model(config_from_dict({"model": found.section})).module
    assert {k: v.shape for k, v in again.state_dict().items()} == {k: v.shape for k, v in weights.items()}
    again.load_state_dict(weights, strict=True)


def test_weights_of_no_convolution_are_of_no_such_network():
    marks = ("conv_first", "body.0.conv1", "conv_after_body", "upsample.0", "conv_last")
    assert restoration_section({f"{mark}.weight": torch.zeros(3) for mark in marks}) is None
    assert restoration_section({f"{mark}.weight": torch.zeros(0, 0, 3, 3) for mark in marks}) is None


def test_weights_of_a_part_more_are_of_no_such_network(tmp_path):
    weights = built("EDSR", {"num_feat": 8, "num_block": 2}).module.state_dict()
    torch.save(weights | {"more.weight": torch.zeros(3)}, tmp_path / "a.pth")
    with pytest.raises(ModelError, match="are of no network that is known here"):
        found_network(tmp_path / "a.pth")
