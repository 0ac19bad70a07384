"""Chosen modules that compute their forward again: the same gradients and buffers, in any tree of modules."""

import copy

import pytest
import torch
from torch import nn

from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.models.errors import ModelError
from swinmr_profiling.models.recomputation.recomputed_modules import (
    chosen_modules,
    never_called,
    recompute_modules,
    recomputed_modules,
)
from swinmr_profiling.models.registry import build_model
from swinmr_profiling.training.step.training_step import build_state

SWINMR = {"net_type": "swinmr", "img_size": 16, "depths": [2, 2], "num_heads": [2, 2], "embed_dim": 8,
          "window_size": 4}  # fmt: skip
UNET = {"net_type": "unet_denoiser", "img_size": 16, "base_channels": 8, "channel_multipliers": [1, 2],
        "num_res_blocks": 1, "attention_resolutions": [8], "num_groups": 4, "head_channels": 8,
        "drop_rate": 0.3}  # fmt: skip
DIT = {
    "net_type": "dit_denoiser",
    "img_size": 16,
    "patch_size": 4,
    "embed_dim": 16,
    "depth": 3,
    "num_heads": 2,
}
VIT = {"net_type": "timm", "name": "vit_tiny_patch16_224", "img_size": 32, "num_classes": 4,
       "kwargs": {"depth": 3, "embed_dim": 24, "num_heads": 3, "proj_drop_rate": 0.2}}  # fmt: skip
RESNET = {"net_type": "timm", "name": "resnet10t", "img_size": 32, "num_classes": 4}
CUSTOM = {"net_type": "custom", "target": "torch.nn:TransformerEncoderLayer", "input_shapes": [[4, 16]],
          "kwargs": {"d_model": 16, "nhead": 2, "dim_feedforward": 16, "batch_first": True}}  # fmt: skip
NETWORKS = {
    "swinmr": (
        SWINMR,
        [["layers.0", "layers.1.residual_group.blocks.1"], ["layers.*.blocks.*"], ["conv_first"]],
    ),
    "unet": (UNET, [["down.*.stages.*"], ["up.1.stages.0", "middle.0"], ["*.block", "conv_out"]]),
    "dit": (DIT, [["blocks.0", "blocks.2"], ["*.attn*", "*.mlp*"]]),
    "vit": (VIT, [["blocks.*"], ["blocks.1.mlp", "patch_embed"]]),
    "resnet": (RESNET, [["layer[13].*"], ["*.bn1", "layer2.0"]]),
    "custom": (CUSTOM, [["linear1", "self_attn"], ["*"]]),
}


def config_of(model, **training):
    data = {} if model["net_type"] in ("timm", "custom") else {"use_patches": False}
    return config_from_dict({"model": model, "training": training, "data": data})


def one_step(model, chosen):
    """Output, gradients and buffers of one forward and backward, in double precision."""
    torch.manual_seed(0)
    kind = {"gradient_checkpointing": chosen} if chosen else {}
    built = build_model(config_of(model, **kind), trust_config=True)
    module = built.module.double().train()
    with torch.no_grad():
        for parameter in module.parameters():
            # Denoisers begin with zeros, behind which every gradient is zero.
            if not parameter.any():
                parameter.normal_(std=0.1)
    inputs = built.example_inputs(2, dtype=torch.float64, which="training")
    torch.manual_seed(1)
    output = module(*inputs)
    output = output if isinstance(output, torch.Tensor) else output[0]
    (output * torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view_as(output)).sum().backward()
    gradients = {name: p.grad for name, p in module.named_parameters()}
    after = torch.rand(1)  # the random numbers that follow are the same, too
    return output.detach(), gradients, dict(module.named_buffers()), after, module


@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_and_buffers_are_the_same(name):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        model, choices = NETWORKS[name]
        expected = one_step(model, None)
        assert all(g is None or g.abs().max() > 0 for key, g in expected[1].items() if "bias" not in key)
        for chosen in choices:
            found = one_step(model, chosen)
            forwards = recomputed_modules(found[4])
            assert forwards
            assert any(forward.calls for forward in forwards.values())
            assert torch.equal(found[0], expected[0])
            assert found[1].keys() == expected[1].keys()
            for key, gradient in expected[1].items():
                assert (gradient is None) == (found[1][key] is None), key
                assert gradient is None or torch.equal(found[1][key], gradient), (chosen, key)
            assert found[2].keys() == expected[2].keys()
            assert all(torch.equal(found[2][key], buffer) for key, buffer in expected[2].items())
            assert torch.equal(found[3], expected[3])
    finally:
        torch.set_num_threads(threads)


def test_running_statistics_are_updated_once_and_autocast_is_kept():
    def trained(chosen):
        torch.manual_seed(0)
        network = nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5), nn.Flatten(), nn.Linear(144, 2)
        )
        if chosen:
            recompute_modules(network, chosen)
        for _ in range(2):
            with torch.autocast("cpu", torch.bfloat16):
                out = network(torch.arange(128.0).view(2, 1, 8, 8) / 64)
            out.float().square().sum().backward()
        return network

    plain, again = trained([]), trained(["*"])
    assert plain[1].num_batches_tracked == again[1].num_batches_tracked == 2
    for (name, a), (_, b) in zip(plain.state_dict().items(), again.state_dict().items(), strict=True):
        assert torch.equal(a, b), name
    for (name, a), (_, b) in zip(plain.named_parameters(), again.named_parameters(), strict=True):
        assert torch.equal(a.grad, b.grad), name


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.seen += 1
        return x * self.weight * self.seen


def test_a_module_that_changes_a_buffer_is_refused():
    network = nn.Sequential(nn.Linear(2, 2), Counting())
    recompute_modules(network, ["1"])
    with pytest.raises(ModelError, match="1 changes its buffer seen in its forward"):
        network(torch.ones(2))


def test_of_modules_inside_one_another_the_outermost_is_chosen():
    network = nn.Sequential(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), nn.ModuleList([nn.Linear(2, 2)]))
    assert chosen_modules(network, ["*"]) == ["0", "1.0"]
    assert chosen_modules(network, ["1.0", "0.1", "0.*"]) == ["0.0", "0.1", "1.0"]


@pytest.mark.parametrize(
    ("pattern", "text"),
    [("layer.0", "no module is called 'layer.0': did you mean layers.0?"), ("x*", "no module is called 'x*'"),
     ("layers", 'layers is a ModuleList, which is not called itself: name its parts, as "layers.*"')],
)  # fmt: skip
def test_a_name_of_nothing_is_refused_in_one_line(pattern, text):
    with pytest.raises(ModelError) as caught:
        build_model(config_of(SWINMR, gradient_checkpointing=[pattern]))
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


def test_names_of_the_state_dict_and_copies_stay():
    network = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    names = list(network.state_dict())
    recompute_modules(network, ["0"])
    assert list(network.state_dict()) == names
    copied = copy.deepcopy(network)
    with torch.no_grad():
        copied[0].weight.zero_()
    # The copy's forward is the copy's own.
    assert recomputed_modules(copied)["0"].forward.__self__ is copied[0]
    copied(torch.ones(2)).sum().backward()
    assert never_called(network) == ["0"]
    assert never_called(copied) == []
    with pytest.raises(ModelError, match="checkpointed already"):
        recompute_modules(network, ["1"])


def test_a_budget_is_no_matter_of_the_network_and_refused_by_a_step():
    """A network is tested and exported with the config that it was trained with."""
    config = config_of(SWINMR, gradient_checkpointing={"budget": "1GiB"})
    module = build_model(config).module
    assert recomputed_modules(module) == {}
    with pytest.raises(ModelError, match="still to be chosen for the budget"):
        build_state(config, module, nn.Identity(), total_steps=1)
