"""torch's fused layers read weights without calling the layers that hold them: adapters there must not be passed by."""

import pytest
import torch
from torch import nn

from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.configs.sections.strategy import LoraSection
from swinmr_profiling.models.errors import ModelError
from swinmr_profiling.models.inputs import BuiltModel, InputSpec
from swinmr_profiling.models.lora import add_adapters
from swinmr_profiling.profiler.prediction.trace.traced_step import trace_training

pytest.importorskip("peft")
WIDTH = 8


def encoder(layers=1):
    layer = nn.TransformerEncoderLayer(WIDTH, 2, 16, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, layers).eval()


def adapted(module, *targets):
    add_adapters(module, LoraSection(rank=2, targets=list(targets)), None)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if "lora_B" in name:
                parameter.normal_()
    return module


@pytest.mark.parametrize("targets", [("linear1",), ("linear2",), ("self_attn",)])
@pytest.mark.parametrize("masked", [False, True])
def test_evaluation_computes_what_training_does(targets, masked):
    """Without dropout both are the same; the fused kernel of evaluation would give the network without adapters."""
    module = adapted(encoder(2), *targets)
    x = torch.randn(3, 5, WIDTH)
    padding = torch.zeros(3, 5, dtype=torch.bool)
    if masked:
        padding[0, 3:] = True
    kept = ~padding
    with torch.no_grad():
        evaluated = module.eval()(x, src_key_padding_mask=padding)
        trained = module.train()(x, src_key_padding_mask=padding)
    assert torch.allclose(evaluated[kept], trained[kept], atol=1e-5)
    if targets != ("self_attn",):
        plain = [p for name, p in module.named_parameters() if "lora_B" in name]
        with torch.no_grad():
            for parameter in plain:
                parameter.zero_()
            without = module.eval()(x, src_key_padding_mask=padding)
        assert not torch.allclose(evaluated[kept], without[kept], atol=1e-3)


def test_a_layer_without_adapters_keeps_its_kernel():
    module = nn.Sequential(encoder(), nn.Linear(WIDTH, WIDTH))
    add_adapters(module, LoraSection(rank=2, targets=["1"]), None)
    assert module[0].layers[0].activation_relu_or_gelu
    assert module[0].use_nested_tensor


def test_a_part_of_torch_s_attention_is_refused_in_one_line():
    with pytest.raises(ModelError) as caught:
        add_adapters(encoder(), LoraSection(rank=2, targets=["out_proj"]), None)
    assert str(caught.value) == (
        "training.lora.targets: 'out_proj' names layers.0.self_attn.out_proj, whose weights torch's MultiheadAttention "
        "reads without calling it, so that an adapter there would do nothing: target the attention itself, 'self_attn'"
    )


class Reads(nn.Module):
    def __init__(self):
        super().__init__()
        self.called, self.read = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        return nn.functional.linear(self.called(x), self.read.weight)


def test_a_prediction_names_layers_that_the_network_reads_without_calling():
    network = Reads()
    training = {"lora": {"targets": ["called", "read"]}, "ema_decay": 0.0, "loss": {"type": "mse"}}
    model = {"net_type": "custom", "target": "somewhere:Reads", "input_shapes": [[4]]}
    config = config_from_dict({"model": model, "data": {"use_patches": False}, "training": training})
    add_adapters(network, config.training.lora, None)
    inputs = (InputSpec((4,)),)
    built = BuiltModel("custom", network, dict.fromkeys(("inference", "training", "cross_check"), inputs))
    notes = trace_training(built, config, 2, validation=False).assumptions
    assert "training.lora: the network does not call read: no adapter is trained there" in notes
