"""All torchvision classification models against the figure in their own weights' metadata (`_ops`, in GMACs)."""

import pytest
import torch
from torchvision import models
from torchvision.models import regnet

from swinmr_profiling.profiler.counting import count_forward

TOLERANCE_GMACS = 0.0005  # the metadata have three decimals
NAMES = [name for name in models.list_models(module=models) if not name.startswith("raft")]


@pytest.fixture(autouse=True)
def _regnet_parameters_on_the_cpu(monkeypatch):
    # RegNets compute their widths with tensors whose values they read, which the meta device has not.
    make = regnet.BlockParams.from_init_params

    def on_the_cpu(*args, **kwargs):
        with torch.device("cpu"):
            return make(*args, **kwargs)

    monkeypatch.setattr(regnet.BlockParams, "from_init_params", on_the_cpu)


def test_there_are_as_many_models_as_there_should_be():
    assert len(NAMES) >= 80


@pytest.mark.sampled(13)
@pytest.mark.parametrize("name", NAMES)
def test_classification_model(name):
    weights = models.get_model_weights(name).DEFAULT
    side = weights.transforms().crop_size[0]
    options = {}
    if name.startswith("vit"):
        # Vision transformers are built for one resolution.
        options = {"image_size": side}
    elif name == "googlenet":
        # Its metadata leave the auxiliary heads out.
        options = {"aux_logits": False}
    with torch.device("meta"):
        model = models.get_model(name, weights=None, **options).eval()
    report = count_forward(model, (torch.empty(1, 3, side, side, device="meta"),))
    assert report.macs / 1e9 == pytest.approx(weights.meta["_ops"], abs=TOLERANCE_GMACS)
    assert report.parameters == weights.meta["num_params"]
    assert report.uncounted_operators == {}
    assert report.counted_on == "meta"
