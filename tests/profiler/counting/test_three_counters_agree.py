"""Ours = fvcore with the handles it needs = FlopCounterMode on meta, to the unit, on whole networks."""

import copy

import pytest
import timm
import torch
import torchvision
from diffusers import UNet2DConditionModel
from spandrel.architectures.SwinIR import SwinIR
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from swinmr_profiling.profiler.counting import count_forward
from swinmr_profiling.profiler.counting.other_counters.fvcore_count import count_with_fvcore

SIDE = 224


def swinmr_small() -> tuple[nn.Module, tuple]:
    model = SwinIR(
        img_size=64,
        in_chans=1,
        upscale=1,
        window_size=8,
        depths=[6] * 4,
        num_heads=[6] * 4,
        embed_dim=60,
        mlp_ratio=2,
        upsampler="",
        resi_connection="1conv",
    )
    return model, (torch.zeros(1, 1, 64, 64),)


def timm_network(name: str, fused: bool) -> tuple[nn.Module, tuple]:
    model = timm.create_model(name)
    for module in model.modules():
        if hasattr(module, "fused_attn"):
            module.fused_attn = fused
    return model, (torch.zeros(1, 3, SIDE, SIDE),)


class FirstOutput(nn.Module):
    """jit traces tensors and tuples only."""

    def __init__(self, unet: nn.Module):
        super().__init__()
        self.unet = unet

    def forward(self, sample, timestep, context):
        return self.unet(sample, timestep, context, return_dict=False)[0]


def unet() -> tuple[nn.Module, tuple]:
    model = UNet2DConditionModel(
        block_out_channels=(32, 64),
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=24,
        attention_head_dim=8,
        norm_num_groups=8,
        sample_size=16,
    )
    return FirstOutput(model), (torch.zeros(1, 4, 16, 16), torch.tensor([1]), torch.zeros(1, 7, 24))


NETWORKS = {
    "SwinMR small": swinmr_small,
    "ResNet-50": lambda: (torchvision.models.resnet50(), (torch.zeros(1, 3, SIDE, SIDE),)),
    "ViT-B, fused": lambda: timm_network("vit_base_patch16_224", True),
    "ViT-B, not fused": lambda: timm_network("vit_base_patch16_224", False),
    "Swin-T, fused": lambda: timm_network("swin_tiny_patch4_window7_224", True),
    "Swin-T, not fused": lambda: timm_network("swin_tiny_patch4_window7_224", False),
    "UNet2DConditionModel": unet,
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", NETWORKS)
def test_three_counters_agree(name):
    module, inputs = NETWORKS[name]()
    module.eval()
    ours = count_forward(module, inputs)
    figures = count_with_fvcore(copy.deepcopy(module), inputs)
    assert sum(figures.exact.values()) == ours.macs
    assert figures.failures == []

    on_meta = module.to("meta")
    with torch.no_grad(), FlopCounterMode(display=False) as flop_counter:
        on_meta(*(t.to("meta") for t in inputs))
    assert flop_counter.get_total_flops() == ours.flops
