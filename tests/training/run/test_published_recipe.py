"""SwinMR's recipe, read in its repository and written here as a plain loop, against what train.py does."""

import json

import numpy as np
import pytest
import torch

from swinmr_profiling.configs import config_from_dict, load_config
from swinmr_profiling.models.registry import build_model
from swinmr_profiling.training.data.loader import build_loader
from swinmr_profiling.training.run.checkpoints import read_checkpoint
from tests.conftest import run_command

STEPS, BATCH, SIDE = 12, 4, 16
MILESTONES = [5, 9]
OPTION_FILE = {
    "task": "recipe",
    "gpu_ids": [0],
    "path": {"root": "runs"},
    "datasets": {
        "train": {
            "dataroot_H": "data",
            "mask": "G1D30",
            "H_size": SIDE,
            "dataloader_batch_size": BATCH,
            "dataloader_num_workers": 0,
        }
    },
    "netG": {
        "net_type": "swinir",
        "img_size": SIDE,
        "window_size": 8,
        "depths": [2, 2],
        "num_heads": [2, 2],
        "embed_dim": 12,
        "drop_path_rate": 0.0,
    },
    "train": {
        "G_lossfn_type": "charbonnier",
        "G_lossfn_weight": 1.0,
        "G_charbonnier_eps": 1e-9,
        "alpha": 15,
        "beta": 0.1,
        "gamma": 0,  # VGG19's weights are not part of this repository
        "E_decay": 0.999,
        "G_optimizer_type": "adam",
        "G_optimizer_lr": 2e-4,
        "G_optimizer_wd": 0,
        "G_optimizer_clipgrad": None,
        "G_scheduler_type": "MultiStepLR",
        "G_scheduler_milestones": MILESTONES,
        "G_scheduler_gamma": 0.5,
        "checkpoint_print": 1,
    },
}


@pytest.fixture
def config_file(tmp_path):
    """The option file as this project reads it, with an end (an option file has none)."""
    (tmp_path / "data").mkdir()
    np.save(tmp_path / "data/slices.npy", images())
    (tmp_path / "option.json").write_text(json.dumps(OPTION_FILE))
    raw = load_config(tmp_path / "option.json").config.model_dump(mode="json")
    raw["training"]["total_steps"] = STEPS
    raw["logging"]["tensorboard"] = False
    (tmp_path / "c.json").write_text(json.dumps(raw))
    return tmp_path / "c.json"


def images():
    rng = np.random.default_rng(0)
    return (200 * rng.random((10, SIDE, SIDE)) + 50).astype(np.float32)


def published_pair(image, mask):
    """(L, H) of data/dataset_CC*.py: scaled to 0..255, sampled with NumPy's transforms, the magnitude, over 255."""
    high = (image - image.min()) / (image.max() - image.min()) * 255
    kspace = np.fft.fftshift(np.fft.fft2(high)) * mask
    return np.abs(np.fft.ifft2(np.fft.ifftshift(kspace))) / 255, high / 255


def charbonnier(x, y):
    difference = x - y
    return torch.mean(torch.sqrt(difference * difference + 1e-9))


def published_loss(output, target):
    """total_loss of models/model_swinmr_npi.py."""
    x, y = torch.fft.fftn(output), torch.fft.fftn(target)
    frequency = (charbonnier(x.real, y.real) + charbonnier(x.imag, y.imag)) / 2
    return 15 * charbonnier(output, target) + 0.1 * frequency


def batches_of(config):
    loader = build_loader(config, "train")
    for epoch in range(STEPS):
        loader.batch_sampler.seek(epoch)
        yield from loader


def test_every_training_sample_is_the_published_pair(config_file):
    """Turned in one of 8 ways, as there; the crop is the whole image here."""
    config = load_config(config_file).config
    loader = build_loader(config, "train")
    _, mask = loader.dataset.degraded(0)
    for index in range(10):
        _, other = loader.dataset.degraded(index)
        np.testing.assert_array_equal(mask, other)  # one mask for all slices
    for batch in loader:
        for low, high, index in zip(batch["input"], batch["target"], batch["index"], strict=True):
            pair = np.stack(published_pair(images()[index], mask))
            ways = [np.rot90(side, turns, (1, 2)) for side in (pair, pair[:, :, ::-1]) for turns in range(4)]
            got = np.stack([low[0].numpy(), high[0].numpy()])
            assert min(np.abs(got - way).max() for way in ways) < 1e-6


def test_twelve_steps_equal_a_plain_loop(config_file, tmp_path):
    run = run_command("train.py", "--config", config_file, "--device", "cpu", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    rows = [json.loads(line) for line in (tmp_path / "runs/recipe/logs/log.jsonl").read_text().splitlines()]
    losses = [row["loss"] for row in rows if row["kind"] == "train"]
    content = read_checkpoint(tmp_path / "runs/recipe/checkpoints/last.pth")

    config = config_from_dict(json.loads(config_file.read_text()), tmp_path)
    torch.manual_seed(config.system.seed)
    net_g = build_model(config).module
    net_e = build_model(config).module
    net_e.load_state_dict(net_g.state_dict())  # update_E(0)
    optimizer = torch.optim.Adam(net_g.parameters(), lr=2e-4, weight_decay=0)
    net_g.train()
    expected = []
    for step, batch in zip(range(1, STEPS + 1), batches_of(config), strict=False):
        # MultiStepLR.step(n) before step n: a milestone's step is the first at the new rate.
        optimizer.param_groups[0]["lr"] = 2e-4 * 0.5 ** sum(step >= milestone for milestone in MILESTONES)
        optimizer.zero_grad()
        loss = published_loss(net_g(batch["input"]), batch["target"])
        loss.backward()
        optimizer.step()
        expected.append(loss.item())
        with torch.no_grad():
            for averaged, trained in zip(net_e.parameters(), net_g.parameters(), strict=True):
                averaged.mul_(0.999).add_(trained, alpha=0.001)

    assert len(losses) == STEPS
    assert losses == pytest.approx(expected, rel=1e-6)
    assert expected[-1] < expected[0]
    for name, network in (("params", net_g), ("params_ema", net_e)):
        for key, tensor in network.state_dict().items():
            assert (content[name][key] - tensor).abs().max() < 1e-6, (name, key)
