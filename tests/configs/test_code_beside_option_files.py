"""Option files whose network this project does not know, in a repository that holds its code."""

import sys

import pytest

from swinmr_profiling.configs import ConfigError, config_from_dict, load_config
from swinmr_profiling.models.errors import ModelError
from swinmr_profiling.models.registry import build_model

REGISTRY = """
class Registry:
    def register(self, made=None):
        return (lambda made: made) if made is None else made

ARCH_REGISTRY = Registry()
"""
CLIP = """
import torch
from torch import nn
from {package}.registry import ARCH_REGISTRY

raise_if_run = open({ran!r}, "w").close()

class Part(nn.Module):
    pass

@ARCH_REGISTRY.register()
class TinyClip(nn.Module):
    def __init__(self, num_feat=4, clip_size=5, scale=1, spynet_path=None):
        super().__init__()
        assert spynet_path is None  # a file that is not there
        self.conv = nn.Conv2d(3 * clip_size, 3 * scale**2, 3, padding=1)
        self.scale, self.clip_size = scale, clip_size

    def forward(self, x):
        b, t, c, h, w = x.shape
        assert t == self.clip_size
        return nn.functional.pixel_shuffle(self.conv(x.reshape(b, t * c, h, w)), self.scale)

@ARCH_REGISTRY.register()
def tinyclip_s(scale=4, **kwargs):
    return TinyClip(2, 3, scale, **kwargs)
"""
TRAIN = """
datasets: {{train: {{type: {kind}, {frames}gt_size: 64, batch_size_per_gpu: 2}}}}
train: {{pixel_opt: {{type: L1Loss}}}}
"""


def repository(tmp_path, package):
    """A framework's repository; returns the folder of option files and the file that tells that its code ran."""
    archs, options = tmp_path / package / "archs", tmp_path / "options" / "train" / "Tiny"
    archs.mkdir(parents=True)
    options.mkdir(parents=True)
    ran = tmp_path / "ran"
    (tmp_path / package / "registry.py").write_text(REGISTRY)
    for folder in (archs.parent, archs):
        (folder / "__init__.py").write_text("")
    (archs / "tiny_arch.py").write_text(CLIP.format(package=package, ran=str(ran)))
    (archs / "broken_arch.py").write_text("def (:")
    return options, ran


def test_the_class_that_basicsr_registers_is_found_and_runs_only_with_consent(tmp_path):
    options, ran = repository(tmp_path, "basicsr")
    file = options / "a.yml"
    file.write_text(
        "scale: 4\nnetwork_g: {type: TinyClip, clip_size: 5, spynet_path: none/a.pth}\n"
        + TRAIN.format(kind="REDSDataset", frames="num_frame: 5, ")
    )
    loaded = load_config(file)
    model = loaded.config.model
    assert (model.target, model.kwargs) == ("tiny_arch.py:TinyClip", {"clip_size": 5, "spynet_path": None})
    # BasicSR hands no scale down; gt_size 64 at scale 4 is a patch of 16.
    assert (model.input_shapes, model.training_input_shapes) == ([[5, 3, 256, 256]], [[5, 3, 16, 16]])
    assert any("--trust-config lets that code run" in message for message in loaded.messages)
    with pytest.raises(ModelError, match="pass --trust-config"):
        build_model(loaded.config)
    assert not ran.exists()
    built = build_model(loaded.config, trust_config=True)
    assert ran.exists()
    # 15 channels of five frames into 3, kernels of 9, and 3 biases.
    assert sum(p.numel() for p in built.module.parameters()) == 15 * 3 * 9 + 3


def test_traiNNer_registers_in_lower_case_hands_its_scale_down_and_a_class_knows_its_frames(tmp_path):  # noqa: N802
    options, _ = repository(tmp_path, "traiNNer")
    file = options / "a.yml"
    file.write_text(
        "scale: 2\nuse_amp: true\nnetwork_g: {type: tinyclip}\n" + TRAIN.format(kind="x", frames="")
    )
    model = load_config(file).config.model
    assert (model.target, model.kwargs) == ("tiny_arch.py:TinyClip", {"scale": 2})
    assert model.training_input_shapes == [[5, 3, 32, 32]]
    # A function without such an argument: an image, or the clip that the file declares.
    file.write_text(
        "scale: 2\nuse_amp: true\nnetwork_g: {type: TinyClip_S}\n"
        + TRAIN.format(kind="PairedVideoDataset", frames="clip_size: 3, ")
    )
    loaded = load_config(file)
    assert loaded.config.model.target == "tiny_arch.py:tinyclip_s"
    assert loaded.config.model.input_shapes == [[3, 3, 256, 256]]


def test_frames_that_no_one_says_are_assumed_aloud(tmp_path):
    options, _ = repository(tmp_path, "traiNNer")
    file = options / "a.yml"
    file.write_text(
        "scale: 2\nuse_amp: true\nnetwork_g: {type: tinyclip_s}\ndatasets: {val: {type: VideoDataset}}\n"
    )
    loaded = load_config(file)
    assert loaded.config.model.input_shapes == [[7, 3, 256, 256]]
    assert any(
        "does not say how many frames" in message and "7 are assumed" in message
        for message in loaded.messages
    )


def test_a_name_that_no_code_registers_is_refused_as_before(tmp_path):
    options, _ = repository(tmp_path, "basicsr")
    file = options / "a.yml"
    for name in ("Part", "HiFaceGAN", "Elsewhere"):  # a class that is no network's, one that takes more, none
        file.write_text(f"network_g: {{type: {name}}}\n")
        with pytest.raises(ConfigError, match="is not a network that is known here"):
            load_config(file)


KAIR = """
def define_G(opt):
    opt_net = opt['netG']
    net_type = opt_net['net_type']
    if net_type == 'other':
        from models.network_other import Other as net
        netG = net()
    elif net_type == 'tinyvrt':
        from models.network_tiny import TinyVRT as net
        netG = net(upscale=opt_net['upscale'], img_size=opt_net['img_size'], depth=2,
                   nonblind_denoising=opt_net['nonblind_denoising'], spynet_path=opt_net['spynet_path'])
"""


@pytest.mark.parametrize(("nonblind", "channels"), [("false", 3), ("true", 4)])
def test_what_kairs_define_g_calls_is_found(tmp_path, nonblind, channels):
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "select_network.py").write_text(KAIR)
    (tmp_path / "models" / "network_tiny.py").write_text("")
    text = (
        '{"model": "vrt", "scale": 4, "gpu_ids": [0, 1], '
        '"netG": {"net_type": "tinyvrt", "upscale": 4, "spynet_path": "a", '
        f'"nonblind_denoising": {nonblind}}}, "datasets": {{"train": {{"num_frame": 6, "gt_size": 256, '
        '"dataset_type": "VideoRecurrentTrainDataset", '
        '"dataloader_batch_size": 8}}, "train": {"G_lossfn_type": "charbonnier"}}'
    )
    file = tmp_path / "a.json"
    file.write_text(text)
    loaded = load_config(file)
    model = loaded.config.model
    # What the file does not say is None there, as in KAIR.
    assert model.kwargs == {
        "upscale": 4, "img_size": None, "depth": 2, "nonblind_denoising": nonblind == "true", "spynet_path": None,
    }  # fmt: skip
    assert (model.target, loaded.config.data.batch_size) == ("models.network_tiny:TinyVRT", 4)
    assert model.training_input_shapes == [[6, channels, 64, 64]]
    # Vimeo-90K's seven frames, once more backwards, or the last one twice.
    for clip, frames in (
        ('-1, "mirror_sequence": true', 14),
        ('7, "pad_sequence": true', 8),
        ('-1, "pad_sequence": false', 7),
    ):
        file.write_text(text.replace('"num_frame": 6', f'"num_frame": {clip}'))
        assert load_config(file).config.model.training_input_shapes == [[frames, channels, 64, 64]]
    # plain4 gives kernels and noise levels beside the image; interpolation takes some of the frames alone.
    for other in (text.replace('"vrt"', '"plain4"'), text.replace("TrainDataset", "TrainVimeoVFIDataset")):
        file.write_text(other)
        with pytest.raises(ConfigError, match=r"netG\.net_type"):
            load_config(file)


NEOSR = """
import argparse, tomllib
from torch import nn
from neosr.registry import ARCH_REGISTRY

parser = argparse.ArgumentParser()
parser.add_argument("-opt")
upscale = tomllib.loads(open(parser.parse_args().opt).read())["scale"]

@ARCH_REGISTRY.register()
class tinynet(nn.Module):
    def __init__(self, dim=2, upscale=upscale):
        super().__init__()
        self.conv = nn.Conv2d(3, 3 * upscale**2, 1, bias=False)

    def forward(self, x):
        return self.conv(x)
"""


def test_neosrs_modules_read_the_option_file_from_their_own_command_line(tmp_path, monkeypatch):
    repository(tmp_path, "neosr")
    (tmp_path / "neosr" / "archs" / "tinynet_arch.py").write_text(NEOSR)
    file = tmp_path / "a.toml"
    file.write_text('scale = 3\n[network_g]\ntype = "tinynet"\ndim = 2\n')
    config = load_config(file).config
    assert config.model.command_line == ["-opt", str(file)]
    monkeypatch.setattr("sys.argv", ["profile_model.py", "--config", "a.toml"])
    # A scale of 3: 3 channels into 3 x 9.
    assert sum(p.numel() for p in build_model(config, trust_config=True).module.parameters()) == 3 * 27
    assert sys.argv == ["profile_model.py", "--config", "a.toml"]


def test_a_module_that_leaves_python_is_one_line(tmp_path):
    (tmp_path / "leaves.py").write_text("import sys\nsys.exit(3)\n")
    model = {
        "net_type": "custom",
        "target": "leaves.py:Net",
        "target_folder": str(tmp_path),
        "input_shapes": [[3]],
    }
    config = config_from_dict({"model": model, "data": {"use_patches": False}})
    with pytest.raises(ModelError, match=r"model\.target: cannot import leaves\.py:Net: SystemExit: 3"):
        build_model(config, trust_config=True)
