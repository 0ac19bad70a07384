"""Networks too large for the machine are refused before they allocate; others are the same to the bit."""

import pytest
import torch
from torch import nn

from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.models import size_guard
from swinmr_profiling.models.errors import ModelError
from swinmr_profiling.models.registry import BUILDERS, build_model
from swinmr_profiling.models.size_guard import SizeGuard, TooLargeError, without_data

GIB = 2**30
TINY = {
    "net_type": "swinir",
    "img_size": 32,
    "window_size": 8,
    "depths": [2],
    "num_heads": [2],
    "embed_dim": 12,
}


@pytest.fixture
def free(monkeypatch):
    """A machine with so many GiB free."""

    def say(gib):
        monkeypatch.setattr(size_guard, "available_bytes", lambda: int(gib * GIB))

    return say


def build(**model):
    return build_model(config_from_dict({"model": model}), trust_config=True)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "model",
    [
        # Position embedding: (65,536 / 16)^2 x 768 x 4 B = 48 GiB.
        {"net_type": "timm", "name": "vit_base_patch16_224", "img_size": 65536},
        # 200 blocks of 12 x 768^2 weights, 4 B each: 5.3 GiB.
        {"net_type": "timm", "name": "vit_base_patch16_224", "kwargs": {"depth": 200}},
        {
            "net_type": "diffusers",
            "class": "UNet2DModel",
            "img_size": 32,
            "config": {"in_channels": 1, "out_channels": 1, "block_out_channels": [32000] * 4},
        },
        {**TINY, "embed_dim": 4096, "num_heads": [8] * 6, "depths": [40] * 6},
    ],
)
def test_what_needs_more_than_is_free_is_refused_in_one_line(free, model):
    if model["net_type"] in ("timm", "diffusers"):
        pytest.importorskip(model["net_type"])
    free(4)
    with pytest.raises(
        ModelError, match=r"is too large for this machine: .* GiB of memory, and 4.0 GiB are free"
    ) as e:
        build(**model)
    assert "\n" not in str(e.value)


def test_the_users_own_network_is_watched_while_it_is_made(free, tmp_path, monkeypatch):
    (tmp_path / "vast_network.py").write_text(
        "import torch\n"
        "class Net(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        try:\n"
        "            side = torch.arange(2**17)\n"
        "            self.distances = side[:, None] - side[None]\n"
        "        except ImportError:\n"
        "            pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    free(4)
    # 2^17 x 2^17 differences of 8 B: 128 GiB.
    with pytest.raises(
        ModelError, match=r"one of its tensors needs 128.0 GiB of memory, and 4.0 GiB are free"
    ):
        build(net_type="custom", target="vast_network:Net", input_shapes=[[1, 8, 8]])


def test_many_tensors_that_are_small_each_are_refused_before_nothing_is_free(monkeypatch):
    """Of 16 KiB each, with 1 MiB free of which 512 KiB stay: after 32, asked every fourth, the 36th is too much."""
    kept = []
    monkeypatch.setattr(size_guard, "ASKED_EVERY_BYTES", 4 * 2**14)
    monkeypatch.setattr(size_guard, "KEPT_FREE_BYTES", 2**19)
    monkeypatch.setattr(size_guard, "available_bytes", lambda: 2**20 - len(kept) * 2**14)
    with SizeGuard(), pytest.raises(TooLargeError, match=r"its tensors have left 0.0 GiB of memory free"):
        kept.extend(torch.ones(2**12) for _ in range(64))
    assert 32 <= len(kept) <= 36
    kept.clear()
    with SizeGuard():  # as many, but none of them is kept
        for _ in range(64):
            torch.ones(2**12)


@pytest.mark.parametrize(
    ("make", "is_refused"),
    [
        (lambda: torch.empty(2**15, 2**15), True),  # 4 GiB
        (lambda: torch.zeros(2**14, 2**14), False),  # 1 GiB, which is lazily there
        (lambda: torch.ones(2**16).expand(2**16, 2**16), False),  # a view
        (lambda: torch.ones(2**16, 1) + torch.ones(2**16), True),
        (lambda: torch.ones(2**16, 1, device="meta") + torch.ones(2**16, device="meta"), False),
        (lambda: torch.empty(2**20).new_empty(2**20, 2**20), True),
        (lambda: torch.arange(2**40), True),
    ],
)
def test_one_tensor_larger_than_what_is_free(free, make, is_refused):
    free(2)
    with SizeGuard():
        if is_refused:
            with pytest.raises(TooLargeError):
                make()
        else:
            make()


def test_a_network_that_is_not_too_large_is_the_same_to_the_bit():
    config = config_from_dict({"model": TINY})
    torch.manual_seed(3)
    guarded = build_model(config).module
    after = torch.rand(3)
    torch.manual_seed(3)
    plain = BUILDERS["swinir"](config).module
    assert torch.equal(torch.rand(3), after)
    assert all(
        torch.equal(value, other)
        for value, other in zip(guarded.state_dict().values(), plain.state_dict().values(), strict=True)
    )


def test_a_class_that_cannot_be_made_without_data_is_let_pass(free):
    class ReadsValues(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.full((int(torch.ones(1).item()),), 2.0))

    free(1)
    assert without_data(ReadsValues) is None
