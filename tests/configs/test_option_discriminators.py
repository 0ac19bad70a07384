"""What becomes of an option file's discriminator: whose step, which network, or one line on why not."""

import json

import pytest

from swinmr_profiling.configs import load_config
from swinmr_profiling.configs.option_files.reading import read_config_file
from swinmr_profiling.models.discriminators import build_discriminator
from swinmr_profiling.models.errors import ModelError
from tests.configs.test_code_beside_option_files import repository
from tests.conftest import REPOSITORY

FOLDER = REPOSITORY / "tests/configs/option_files"
JUDGE = """
from torch import nn
from {package}.registry import ARCH_REGISTRY

@ARCH_REGISTRY.register()
class TinyGan(nn.Sequential):
    def __init__(self, num_in_ch=3, num_feat=4, weights_path=None):
        assert weights_path is None
        super().__init__(nn.Conv2d(num_in_ch, num_feat, 4, 2, 1), nn.Mish(), nn.Conv2d(num_feat, 1, 3))
"""
# 16 x 3 x 8 and 8 biases, 9 x 8 and one.
OF_WIDTH_8 = 16 * 3 * 8 + 8 + 9 * 8 + 1
TRAINNER = """
scale: 4
use_amp: true
network_g: {{type: compact, num_conv: 2, num_feat: 8}}
network_d: {{type: {network}}}
datasets: {{train: {{lq_size: 16, batch_size_per_gpu: 2, accum_iter: {accumulated}}}}}
train:
  ema_decay: 0.999
  grad_clip: true
  optim_g: {{type: AdamW, lr: 1e-4}}
  {optim_d}
  losses:
    - {{type: l1loss, loss_weight: 1.0}}
    - {{type: {loss}, gan_type: {kind}, loss_weight: {weight}}}
    - {{type: distsloss, loss_weight: {behind}}}
"""
NEOSR = """
scale = 4
[network_g]
type = "compact"
num_feat = 8
num_conv = 2
[network_d]
type = "{network}"
num_feat = 8
[datasets.train]
patch_size = 16
batch_size = 2
[train.optim_g]
type = "adamw"
[train.optim_d]
type = "adan_sf"
[train.pixel_opt]
type = "L1Loss"
[train.gan_opt]
type = "gan_loss"
{kind}
"""


def trainner(tmp_path, **changed):
    values = {
        "network": "unetdiscriminatorsn",
        "optim_d": "optim_d: {type: AdamW, lr: 1e-4}",
        "accumulated": 1,
        "loss": "ganloss",
        "kind": "vanilla",
        "weight": 0.1,
        "behind": 0,
    }
    file = tmp_path / "a.yml"
    file.write_text(TRAINNER.format(**(values | changed)))
    return file


def read(file):
    loaded = load_config(file)
    return loaded.config.training.adversarial, loaded.config, "\n".join(loaded.messages)


def test_kairs_published_file_is_its_own_step():
    section, config, said = read(FOLDER / "kair_bsrgan_gan.json")
    assert (section.order, section.type, section.relativistic, section.weight) == (
        "kair",
        "vanilla",
        False,
        0.1,
    )
    assert (section.discriminator, section.width, section.optimizer) == ("unet_sn", 64, "adam")
    # Real-ESRGAN prints this number for the network that KAIR calls discriminator_unet.
    network = build_discriminator(section, trust_config=False)
    assert sum(p.numel() for p in network.parameters()) == 4_376_897
    assert "netD discriminator_unet: training is predicted as KAIR's ModelGAN's step" in said
    assert (config.training.optimizer.type, config.training.optimizer.weight_decay) == ("adam", 0)
    assert config.training.other_step == "training.adversarial (in KAIR's order)"


KAIR_CODE = """
def define_D(opt):
    opt_net = opt['netD']
    net_type = opt_net['net_type']
    if net_type == 'discriminator_other':
        pass
    elif net_type == 'discriminator_tiny':
        from models.network_judge import Tiny as discriminator
        netD = discriminator(in_nc=opt_net['in_nc'], base_nc=opt_net['base_nc'])
"""


def kair(tmp_path, **changed):
    options = dict(read_config_file(FOLDER / "kair_ffdnet.json")[0])
    options |= {"model": "gan"} | changed.pop("top", {})
    options["netD"] = {"net_type": "discriminator_tiny", "in_nc": 3, "base_nc": 8}
    options["train"] |= {
        "gan_type": "ragan",
        "D_lossfn_weight": 0.1,
        "D_optimizer_type": "adam",
        "G_optimizer_type": "adamw",
        "G_optimizer_wd": 0.1,
        "G_optimizer_clipgrad": 5,
    } | changed
    file = tmp_path / "a.json"
    file.write_text(json.dumps(options))
    return file


def test_what_kairs_define_d_calls_is_built_with_consent(tmp_path):
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "select_network.py").write_text(KAIR_CODE)
    (tmp_path / "models" / "network_judge.py").write_text(
        "from torch import nn\n"
        "class Tiny(nn.Conv2d):\n"
        "    def __init__(self, in_nc, base_nc):\n"
        "        super().__init__(in_nc, base_nc, 4, 2, 1)\n"
    )
    section, config, said = read(kair(tmp_path))
    assert (section.order, section.type, section.relativistic) == ("kair", "vanilla", True)
    assert (section.target, section.kwargs) == ("models.network_judge:Tiny", {"in_nc": 3, "base_nc": 8})
    assert "--trust-config lets that code run" in said
    with pytest.raises(ModelError, match="pass --trust-config"):
        build_discriminator(section, trust_config=False)
    # Whatever the file says: ModelGAN takes Adam for both, and neither decays nor clips.
    training = config.training
    assert (training.optimizer.type, training.optimizer.weight_decay, training.gradient.clip_norm) == (
        "adam",
        0,
        None,
    )
    assert "train.G_optimizer_type: KAIR's ModelGAN takes adam whatever it says" in said


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (
            {},
            "discriminator_tiny is read, and not in the prediction (no such network is known here, nor called",
        ),
        ({"gan_type": "hinge"}, "not in the prediction (its loss of gan_type hinge is not known here)"),
        ({"D_lossfn_weight": 0}, "not in the prediction (its loss has the weight 0)"),
        (
            {"top": {"model": "plain"}},
            "netD discriminator_tiny is not used by model plain, which trains the gen",
        ),
    ],
)
def test_what_of_kair_is_left_out_is_told_in_one_line(tmp_path, changed, expected):
    section, _, said = read(kair(tmp_path, **changed))
    assert section.weight == 0
    [line] = [line for line in said.splitlines() if "netD" in line]
    assert expected in line


def test_trainner_is_read_with_its_own_code(tmp_path):
    repository(tmp_path, "traiNNer")
    (tmp_path / "traiNNer/archs/tinygan_arch.py").write_text(JUDGE.format(package="traiNNer"))
    section, config, said = read(
        trainner(tmp_path, network="tinygan, num_feat: 8, weights_path: a.pth", behind=0.5, kind="hinge")
    )
    assert (section.order, section.type, section.weight, section.relativistic) == (
        "trainner",
        "hinge",
        0.1,
        False,
    )
    assert (section.target, section.optimizer) == ("tinygan_arch.py:TinyGan", "adamw")
    network = build_discriminator(section, trust_config=True)
    assert sum(p.numel() for p in network.parameters()) == OF_WIDTH_8
    # No scale is handed down to it, as it is to the generator.
    assert section.kwargs == {"num_feat": 8, "weights_path": None}
    assert config.training.gradient.clip_norm == 100
    assert "train.losses.1: distsloss stand behind the adversarial loss, which is taken as the last" in said
    assert config.training.loss.components.spatial.weight == 1


def test_names_of_trainner_are_known_in_any_case(tmp_path):
    section, _, said = read(
        trainner(tmp_path, network="UNetDiscriminatorSN, num_feat: 16, skip_connection: false")
    )
    assert (section.discriminator, section.width, section.skip_connection) == ("unet_sn", 16, False)
    assert "training is predicted as traiNNer-redux's step" in said
    section, _, _ = read(trainner(tmp_path, network="vggstylediscriminator, input_size: 256"))
    assert (section.discriminator, section.input_size) == ("vgg", 256)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (
            {"network": "dunet"},
            "no such network is known here, nor registered by code of traiNNer-redux around",
        ),
        ({"network": "unet"}, "no such network is known here"),  # neosr's name
        ({"loss": "multiscaleganloss"}, "its loss multiscaleganloss is not known here"),
        ({"kind": "other"}, "its loss of gan_type other is not known here"),
        ({"weight": 0}, "has no effect without an adversarial loss: it is not in the prediction"),
        ({"loss": "l1loss"}, "has no effect without an adversarial loss: it is not in the prediction"),
        ({"optim_d": ""}, "traiNNer-redux needs train.optim_d for it"),
        ({"accumulated": 2}, "its step over several batches is not known here"),
    ],
)
def test_what_of_trainner_is_left_out_is_told_in_one_line(tmp_path, changed, expected):
    section, _, said = read(trainner(tmp_path, **changed))
    assert section.weight == 0
    [line] = [line for line in said.splitlines() if "network_d" in line]
    assert expected in line


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("", ("vanilla", 0.1)),
        ('gan_type = "mse"\nloss_weight = 0.3', ("lsgan", 0.3)),
        ('gan_type = "huber"', ("huber", 0.1)),
    ],
)
def test_neosr_clips_and_has_losses_of_its_own(tmp_path, kind, expected):
    file = tmp_path / "a.toml"
    file.write_text(NEOSR.format(network="unet", kind=kind))
    section, config, said = read(file)
    assert (section.type, section.weight, section.order) == (*expected, "neosr")
    assert (section.discriminator, section.width) == ("unet_sn", 8)
    assert config.training.gradient.clip_norm == 1
    # adan_sf keeps five numbers a parameter, AdamW two.
    assert section.optimizer == "adamw"
    assert "train.optim_d.type adan_sf has no counterpart: AdamW stands in" in said
    assert "12 bytes a parameter more than is predicted" in said


def test_neosrs_own_code_sees_its_option_file(tmp_path):
    repository(tmp_path, "neosr")
    expected = ["-opt", str(tmp_path / "a.toml")]
    text = JUDGE.format(package="neosr").replace("TinyGan", "patchgan")
    text = text.replace("@ARCH", f"import sys\nassert sys.argv[1:] == {expected}\n\n@ARCH", 1)
    (tmp_path / "neosr/archs/patchgan_arch.py").write_text(text)
    file = tmp_path / "a.toml"
    file.write_text(NEOSR.format(network="patchgan", kind=""))
    section, _, _ = read(file)
    network = build_discriminator(section, trust_config=True)
    assert sum(p.numel() for p in network.parameters()) == OF_WIDTH_8


@pytest.mark.parametrize(
    ("name", "changed", "expected"),
    [
        (
            "basicsr_msrgan_x4.yml",
            ("SRGANModel", "OtherModel"),
            "the step of model_type OtherModel is not known here",
        ),
        (
            "basicsr_msrgan_x4.yml",
            ("VGGStyleDiscriminator", "Judge"),
            "nor registered by code of BasicSR around",
        ),
        (
            "basicsr_msrgan_x4.yml",
            ("gan_type: vanilla", "gan_type: other"),
            "gan_type other is not known here",
        ),
    ],
)
def test_what_of_basicsr_is_left_out_is_told_in_one_line(tmp_path, name, changed, expected):
    text = (FOLDER / name).read_text()
    assert changed[0] in text
    file = tmp_path / name
    file.write_text(text.replace(*changed))
    section, _, said = read(file)
    assert section.weight == 0
    [line] = [line for line in said.splitlines() if "network_d" in line]
    assert expected in line
