"""SwinMR and KAIR option files."""

import json
from pathlib import Path

import pytest

from swinmr_profiling.configs import ConfigError, load_config

# Laid out as the published file is, leading commas and comments included.
PUBLISHED = """{
  "task": "swinmr npi/G1D30"    // task name
  , "model": "swinmr_npi"    // 'swinmr_pi' or 'swinmr_npi'
  , "gpu_ids": [0]
  , "dist": false
  , "n_channels": 1    // 1 for grayscale, 3 for color
  , "path": {
    "root": "mri_recon"
    , "pretrained_netG": null      // path of pretrained model
  }

  , "datasets": {
    "train": {
      "name": "train_dataset"
      , "dataroot_H": "[datapath]"    // path of H training dataset
      , "mask": "G1D30"   // G1Dxx, G2Dxx, S10, R10
      , "H_size": 96    // patch
      , "is_noise": false
      , "dataloader_shuffle": true
      , "dataloader_num_workers": 16
      , "dataloader_batch_size": 8
    }
    , "test": {
      "name": "test_dataset"
      , "dataroot_H": "test/db"
      , "mask": "G1D30"
    }
  }

  , "netG": {
    "net_type": "swinir"
    , "upscale": 1
    , "in_chans": 1
    , "img_size": 256
    , "window_size": 8
    , "img_range": 1.0
    , "depths": [6, 6, 6, 6, 6, 6]
    , "embed_dim": 180    // channel number
    , "num_heads": [6, 6, 6, 6, 6, 6]
    , "mlp_ratio": 2
    , "upsampler": null
    , "resi_connection": "1conv"    // '1conv', '3conv'
    , "init_type": "default"
  }

  , "train": {
    "G_lossfn_type": "charbonnier"
    , "G_lossfn_weight": 1.0
    , "G_charbonnier_eps": 1e-9
    , "alpha": 15
    , "beta": 0.1
    , "gamma": 0.0025
    , "E_decay": 0.999    // set 0 to disable
    , "G_optimizer_type": "adam"
    , "G_optimizer_lr": 2e-4
    , "G_optimizer_wd": 0
    , "G_optimizer_clipgrad": null
    , "G_optimizer_reuse": true
    , "G_scheduler_type": "MultiStepLR"
    , "G_scheduler_milestones": [50000, 70000, 90000, 100000, 110000]
    , "G_scheduler_gamma": 0.5
    , "manual_seed": null
    , "checkpoint_test": 10000
    , "checkpoint_save": 5000
    , "checkpoint_print": 200
    , "is_early_stopping": false
    , "early_stopping_num": 8
  }
}
"""
NAMES = (
    "dncnn", "dpsr", "drunet", "fdncnn", "ffdnet", "imdn", "msrresnet0", "msrresnet1", "rrdb", "rrdbnet", "srmd",
    "swinir", "swinmr",
)  # fmt: skip
KNOWN = ", ".join(f'"{name}"' for name in NAMES)
UNKNOWN = (
    f"is not a network that is known here (known: {', '.join(NAMES[:12])} and 1 more): add the class that builds it: "
    "--module FILE.py:Class --trust-config"
)
OURS = Path(__file__).resolve().parents[2] / "configs" / "train_config_large.json"


def load(tmp_path, *changes: tuple[str, str], allow_unknown=False):
    text = PUBLISHED
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    file = tmp_path / "option.json"
    file.write_text(text)
    return load_config(file, allow_unknown=allow_unknown)


def problems_of(tmp_path, *changes) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, *changes)
    assert caught.value.file == str(tmp_path / "option.json")
    return caught.value.problems


def test_the_published_file_is_our_large_config(tmp_path):
    loaded = load(tmp_path)
    ours = load_config(OURS).config
    assert loaded.config.model == ours.model
    assert loaded.config.model.embed_dim == 180
    assert loaded.config.model.depths == [6] * 6
    assert loaded.config.model.img_size == 256
    assert loaded.config.training_patch_hw == ours.training_patch_hw == (96, 96)
    assert loaded.config.data.batch_size == ours.data.batch_size == 8
    for section in ("optimizer", "gradient", "ema_decay"):
        assert getattr(loaded.config.training, section) == getattr(ours.training, section)
    # Ours has the orthonormal transform, and a schedule in completed steps.
    parts, own_parts = (c.training.loss.components.model_dump() for c in (loaded.config, ours))
    assert parts["frequency"].pop("transform") == "swinmr"
    assert own_parts["frequency"].pop("transform") == "orthonormal"
    assert parts == own_parts
    schedule = loaded.config.training.scheduler
    assert schedule.milestones == [step - 1 for step in ours.training.scheduler.milestones]
    assert (
        schedule.model_copy(update={"milestones": ours.training.scheduler.milestones})
        == ours.training.scheduler
    )
    # SwinMR has one mask for all slices.
    degradation = loaded.config.data.degradation
    assert degradation.fixed
    assert degradation.model_copy(update={"fixed": False}) == ours.data.degradation


def test_the_rest_of_the_published_file_has_its_counterparts(tmp_path):
    config = load(tmp_path).config
    assert config.experiment_name == "swinmr_npi_G1D30"
    assert config.paths.root == str(tmp_path / "mri_recon")
    assert config.data.train_dir is None  # a placeholder in the file
    assert config.data.val_dir == str(tmp_path / "test" / "db")
    assert config.data.num_workers == 16
    assert config.training.validate_every_steps == 10000
    assert config.training.checkpoint_every_steps == 5000
    assert config.logging.log_interval == 200
    assert (config.training.early_stopping.enabled, config.training.early_stopping.patience) == (False, 8)
    assert config.system.seed == 42  # null in the file
    assert config.training.initial_weights is None


def test_messages_say_what_was_done(tmp_path):
    assert load(tmp_path).messages == (
        "recognised as a SwinMR/KAIR option file: mapped to this project's sections",
        'mask "G1D30" is drawn as gaussian1d, 30 %, once for all slices, not SwinMR\'s mask file: figures are not '
        'comparable; for the file set mask "file" and mask_file',
        'datasets.train.dataroot_H "[datapath]" is a placeholder, not a folder: left out',
        "train.G_scheduler_milestones: step 50000 is the first at the new rate, so 49999 steps are at the one before: "
        "each is one less here",
        "no counterpart here, not used: model, datasets.train.name, datasets.train.is_noise, "
        "datasets.train.dataloader_shuffle, datasets.test.name, train.G_optimizer_reuse",
        'loss on k-space with transform "swinmr": all axes of the batch, unnormalised, so samples mix and it is about '
        "272 (sqrt(N x C x H x W) of 8 x 1 x 96 x 96) times an orthonormal one: another batch per device or patch is "
        "another loss",
    )


@pytest.mark.parametrize(
    ("gpus", "batch", "each", "said"),
    [
        ("[0, 1]", 8, 4, "8 is for all 2 gpu_ids: data.batch_size is 4 per device"),
        ("[0, 1, 2]", 8, 2, "data.batch_size is 2 per device (8 / 3 is not a whole number: 6 in all)"),
        ("[0, 1, 2, 3]", 2, 1, "data.batch_size is 1 per device (2 / 4 is not a whole number: 4 in all)"),
    ],
)
def test_the_global_batch_is_divided_by_the_devices(tmp_path, gpus, batch, each, said):
    loaded = load(
        tmp_path, ('"gpu_ids": [0]', f'"gpu_ids": {gpus}'), ('batch_size": 8', f'batch_size": {batch}')
    )
    assert loaded.config.data.batch_size == each
    assert any(
        line.startswith("datasets.train.dataloader_batch_size") and said in line for line in loaded.messages
    )


@pytest.mark.parametrize("gpus", ["[]", "null", "[5]"])
def test_one_device_or_none_takes_the_whole_batch(tmp_path, gpus):
    loaded = load(tmp_path, ('"gpu_ids": [0]', f'"gpu_ids": {gpus}'))
    assert loaded.config.data.batch_size == 8
    assert not any("gpu_ids" in line for line in loaded.messages)


@pytest.mark.parametrize(
    ("name", "mask", "fraction"),
    [
        ("G2D10", "gaussian2d", 0.1),
        ("R50", "radial", 0.5),
        ("S90", "spiral", 0.9),
        ("P2D20", "poisson2d", 0.2),
    ],
)
def test_official_mask_names(tmp_path, name, mask, fraction):
    train, test = '"mask": "G1D30"   // G1Dxx', '"mask": "G1D30"\n    }'
    loaded = load(tmp_path, (train, train.replace("G1D30", name)), (test, test.replace("G1D30", name)))
    assert loaded.config.data.degradation.mask == mask
    assert loaded.config.data.degradation.sampled_fraction == fraction


def test_an_unknown_mask_is_said(tmp_path):
    loaded = load(tmp_path, ('"mask": "G1D30"   //', '"mask": "AutoC10"   //'))
    assert 'mask "AutoC10" is not known: set data.degradation yourself' in loaded.messages


def test_losses_without_alpha_beta_gamma_are_the_image_alone(tmp_path):
    changes = [
        (', "alpha": 15', ""),
        (', "beta": 0.1', ""),
        (', "gamma": 0.0025', ""),
        ('"charbonnier"', '"l1"'),
        ('"G_lossfn_weight": 1.0', '"G_lossfn_weight": 2.5'),
    ]
    parts = load(tmp_path, *changes).config.training.loss.components
    assert (parts.spatial.type, parts.spatial.weight) == ("l1", 2.5)
    assert (parts.frequency.weight, parts.perceptual.weight, parts.ssim.weight) == (0, 0, 0)
    parts = load(tmp_path, *changes[:3], ('"charbonnier"', '"ssim"')).config.training.loss.components
    assert (parts.spatial.weight, parts.ssim.weight) == (0, 1)


def test_the_loss_weight_multiplies_all_three_parts(tmp_path):
    parts = load(tmp_path, ('"G_lossfn_weight": 1.0', '"G_lossfn_weight": 2')).config.training.loss.components
    assert (parts.spatial.weight, parts.frequency.weight, parts.perceptual.weight) == (30, 0.2, 0.005)


def test_values_without_a_counterpart_are_said(tmp_path):
    loaded = load(
        tmp_path,
        ('"MultiStepLR"', '"CosineAnnealingWarmRestarts"'),
        ('"adam"', '"lion"'),
        ('"charbonnier"', '"l2sum"'),
        ('"G_optimizer_clipgrad": null', '"G_optimizer_clipgrad": 0.5'),
    )
    said = "\n".join(loaded.messages)
    assert (
        'train.G_scheduler_type "CosineAnnealingWarmRestarts" has no counterpart: the rate stays constant'
        in said
    )
    assert "train.G_optimizer_type lion has no counterpart: AdamW stands in" in said
    assert 'train.G_lossfn_type "l2sum" has no counterpart: charbonnier is used' in said
    assert loaded.config.training.scheduler.type == "none"
    assert loaded.config.training.gradient.clip_norm == 0.5


def test_an_enlarging_file_of_kair(tmp_path):
    # H_size is the enlarged patch: 96 / 2 = 48 pixels enter the network. scale and n_channels stand in.
    loaded = load(
        tmp_path,
        ('"n_channels": 1 ', '"scale": 2, "n_channels": 3 '),
        (', "upscale": 1', ""),
        (', "in_chans": 1', ""),
        ('"upsampler": null', '"upsampler": "pixelshuffle"'),
        ('"img_size": 256', '"img_size": 48'),
    )
    model = loaded.config.model
    assert (model.upscale, model.in_chans, model.upsampler) == (2, 3, "pixelshuffle")
    assert loaded.config.training_patch_hw == (48, 48)
    assert any("H_size 96 is the enlarged patch: data.patch_size is 48" in line for line in loaded.messages)


def test_a_scale_that_contradicts_the_network_is_said(tmp_path):
    loaded = load(tmp_path, ('"n_channels": 1 ', '"scale": 4, "n_channels": 1 '))
    assert loaded.config.model.upscale == 1
    assert "scale 4 is not used: netG.upscale is 1" in loaded.messages


def test_an_unknown_network_key_is_an_error_unless_allowed(tmp_path):
    change = ('"window_size": 8', '"window_sizes": 8')
    assert problems_of(tmp_path, change) == ["netG.window_sizes: unknown key; did you mean window_size?"]
    loaded = load(tmp_path, change, allow_unknown=True)
    assert "netG.window_sizes: unknown key, ignored; did you mean window_size?" in loaded.messages


def test_errors_name_the_option_files_own_keys(tmp_path):
    problems = problems_of(
        tmp_path,
        ('"embed_dim": 180', '"embed_dim": 128'),
        ('"H_size": 96', '"H_size": 512'),
        ('"E_decay": 0.999', '"E_decay": 2'),
        ('"n_channels": 1 ', '"scale": "2", "n_channels": 1 '),
        (', "upscale": 1', ""),
        ('"checkpoint_save": 5000', '"checkpoint_save": 0'),
    )
    assert sorted(problems) == [
        "datasets.train.H_size: patch_size 512 x 512 is larger than the image (256 x 256, "
        "netG.img_size): at most "
        "that, or use_patches false",
        "netG.embed_dim: embed_dim 128 is not divisible by 6 heads: 126 or 132, or num_heads 4 or 8",
        'scale: expected whole number, 1 to 64, got "2"',
        "train.E_decay: expected number, 0 to 1, got 2",
        "train.checkpoint_save: expected whole number, 1 to 10^9, got 0",
    ]


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (
            {"netG": {"net_type": "vrt"}},
            f'netG.net_type: "vrt" of KAIR {UNKNOWN}',
        ),
        ({"netG": {}}, f"netG.net_type: missing: expected one of {KNOWN}"),
        ({"netG": 3}, "netG: expected an object {...}, got 3"),
        (
            {"datasets": {}, "train": {}},
            f"netG: missing: the network's options, with net_type (one of {KNOWN}), are required",
        ),
        (
            {"netG": {"net_type": ["swinir"]}},
            f'netG.net_type: ["swinir"] of KAIR {UNKNOWN}',
        ),
    ],
)
def test_other_networks_are_refused(tmp_path, raw, problem):
    file = tmp_path / "option.json"
    file.write_text(json.dumps(raw))
    with pytest.raises(ConfigError) as caught:
        load_config(file)
    assert str(caught.value) == f"{file}: {problem}"


def test_the_least_option_file(tmp_path):
    file = tmp_path / "least.json"
    file.write_text('{"netG": {"net_type": "swinmr"}}')
    loaded = load_config(file)
    assert loaded.config.experiment_name == "least"
    assert loaded.config.model == load_config(OURS).config.model
    assert loaded.config.training.loss == load_config(OURS).config.training.loss


@pytest.mark.parametrize("key", ["G_lossfn_type", "G_optimizer_type", "G_scheduler_type"])
def test_a_type_that_is_no_text_is_said_too(tmp_path, key):
    file = tmp_path / "option.json"
    file.write_text(json.dumps({"netG": {"net_type": "swinir"}, "train": {key: ["l1"]}}))
    assert any(
        line.startswith(f'train.{key} ["l1"] has no counterpart') for line in load_config(file).messages
    )
